package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/mooringdb/mooring/core/topology"
)

// lifecycle is what calls of Start and Close have to agree on. Its zero value is a client that was not started.
type lifecycle struct {
	// mu guards the fields below. Nothing is called while it is held.
	mu     sync.Mutex
	state  lifeState
	cancel context.CancelCauseFunc // of the Start that is under way, else nil
}

type lifeState uint8

const (
	lifeNew lifeState = iota
	lifeStarting
	lifeStarted
	lifeClosed
)

var errStartedBefore = errors.New("client was started before")

// errClosed is the end of a Start that came after Close, or that Close overtook.
var errClosed = fmt.Errorf("start client: %w", topology.ErrClosed)

// begin is a Start that runs until settle, or until Close cancels its context.
func (l *lifecycle) begin(ctx context.Context) (context.Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case lifeNew:
	case lifeStarting, lifeStarted:
		return nil, errStartedBefore
	case lifeClosed:
		return nil, errClosed
	}
	l.state = lifeStarting
	ctx, l.cancel = context.WithCancelCause(ctx)
	return ctx, nil
}

// settle ends a Start, which succeeded or not so far. Where it did not, another may follow; where Close overtook it, the
// error says so.
func (l *lifecycle) settle(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel(nil)
	l.cancel = nil
	switch {
	case l.state == lifeClosed:
		return errClosed
	case err != nil:
		l.state = lifeNew
	default:
		l.state = lifeStarted
	}
	return err
}

func (l *lifecycle) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = lifeClosed
	if l.cancel != nil {
		l.cancel(errClosed)
	}
}

// Start begins to monitor the deployment. It does not wait for a server to be found: operations do. What it does wait for,
// until ctx ends or the client is closed, is DNS, where a mongodb+srv string names the deployment; if that fails, Start may be
// called again, and helps if the error is a *seedlist.LookupError. The client lives until Close; of ctx it takes the values,
// not the end.
func (c *Client) Start(ctx context.Context) error {
	starting, err := c.life.begin(ctx)
	if err != nil {
		return err
	}
	if c.topology.Load() == nil {
		err = c.lookUp(starting)
	}
	if err := c.life.settle(err); err != nil {
		c.abandon(ctx)
		return err
	}
	return c.topology.Load().Start(ctx)
}

// abandon ends the topology that Start found out about after Close had looked for one.
func (c *Client) abandon(ctx context.Context) {
	if t := c.topology.Load(); t != nil {
		_ = t.Close(ctx) // it was never started: there is nothing to wait for
	}
}

// Close ends the monitors and the pools: idle connections are closed at once, those in use when their operation ends. It waits
// for the driver's goroutines until ctx ends. Operations that wait for a server, and later ones, fail, and so does a Start
// that is under way.
func (c *Client) Close(ctx context.Context) error {
	c.life.close()
	if t := c.topology.Load(); t != nil {
		return t.Close(ctx)
	}
	return nil
}
