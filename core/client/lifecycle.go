package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/mooringdb/mooring/core/topology"
)

// lifecycle holds the state that Start and Close share. Its zero value is a client that was not
// started.
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

// errClosed is the error of a Start after Close, and of one that Close interrupts.
var errClosed = fmt.Errorf("start client: %w", topology.ErrClosed)

// begin begins a Start, which settle ends. Close cancels the context that it returns.
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

// settle ends a Start, whose outcome so far is err. After an error Start may be called again. If
// Close was called meanwhile, the error says so.
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

// Start begins to monitor the deployment, and returns without waiting for a server: operations do
// that. If a mongodb+srv string names the deployment, Start blocks until DNS has answered, ctx has
// ended or the client is closed. After an error it may be called again, which helps if the error is
// a *seedlist.LookupError. The client keeps the values of ctx, but not its end: it runs until
// Close.
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

// abandon ends a topology that Start made after Close had found none.
func (c *Client) abandon(ctx context.Context) {
	if t := c.topology.Load(); t != nil {
		_ = t.Close(ctx) // it was never started: there is nothing to wait for
	}
}

// Close tells the deployment that the sessions of the client are over, with a short time limit of
// its own, and ends the monitors and the pools. Idle connections are closed at once, and those in
// use when their operations end. It blocks until the goroutines of the driver have ended, or until
// ctx ends. Operations that wait for a server fail with topology.ErrClosed, and so do later ones
// and a Start that has not returned.
func (c *Client) Close(ctx context.Context) error {
	c.life.close()
	if t := c.topology.Load(); t != nil {
		c.endPooled(ctx)
		return t.Close(ctx)
	}
	return nil
}
