package pool

import (
	"context"
	"time"

	"github.com/mooringdb/mooring/core/event"
)

// Conn is one connection of a pool. Whoever has checked it out owns it until CheckIn.
type Conn[C Resource] struct {
	pool       *Pool[C]
	id         uint64
	generation uint64 // until it is established, the pool's when it was created
	resource   C      // set when established
	service    ServiceID
	leadsTo    *service // nil while pending in load-balancer mode

	// The pool's mu guards what follows.

	state     connState
	since     time.Time               // when it was created, and later when it became available
	cancel    context.CancelCauseFunc // of the establishment, and nil after it, since it holds on to a check-out's context
	owner     *waiter[C]              // who waits for the establishment; nil if nobody does (any more)
	populates bool                    // created for MinSize, not for a check-out
	purpose   Purpose
}

type connState uint8

const (
	connPending connState = iota
	connAvailable
	connInUse
	connClosed
)

// ID counts the pool's connections from 1.
func (c *Conn[C]) ID() uint64 { return c.id }

// Generation is the pool's when the connection was created; in load-balancer mode, its service's.
func (c *Conn[C]) Generation() uint64 { return c.generation }

// Service is what the connection leads to in load-balancer mode, and zero in the other.
func (c *Conn[C]) Service() ServiceID { return c.service }

// Resource is the connection itself.
func (c *Conn[C]) Resource() C { return c.resource }

// createLocked makes a connection that is still to be established; this is only book-keeping.
func (p *Pool[C]) createLocked(ctx context.Context, owner *waiter[C]) {
	p.lastID++
	p.pending++
	c := &Conn[C]{pool: p, id: p.lastID, generation: p.generation, since: time.Now(), owner: owner, populates: owner == nil}
	if p.cfg.Service == nil {
		c.leadsTo = &p.server
	}
	p.conns[c] = struct{}{}
	if owner != nil {
		owner.pending = c
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c.cancel = cancel
	p.emitLocked(fact{kind: connectionCreated, id: c.id})
	p.running.Go(func() {
		defer cancel(nil)
		p.establish(ctx, c)
	})
}

// establish connects c and gives it to its owner, or to whoever waits, or makes it available.
func (p *Pool[C]) establish(ctx context.Context, c *Conn[C]) {
	resource, err := p.cfg.Connect(ctx, c.id)
	connected := err == nil
	if cause := context.Cause(ctx); cause != nil {
		err = cause // the pool gave it up
	} else if err != nil && p.cfg.ConnectFailed != nil {
		p.cfg.ConnectFailed(c.generation, err)
	}
	var service ServiceID
	if err == nil && p.cfg.Service != nil {
		service = p.cfg.Service(resource)
	}
	p.mu.Lock()
	c.cancel = nil
	if c.populates {
		p.populating = false
	}
	if err == nil {
		err = context.Cause(ctx) // the pool may have given it up just now
	}
	c.resource, c.service = resource, service
	if err != nil {
		p.establishFailedLocked(c, err)
	} else {
		p.establishedLocked(c)
	}
	var doomed []*Conn[C]
	if connected && c.state == connClosed {
		doomed = append(doomed, c)
	}
	doomed = p.serveLocked(p.clock(p.ages), doomed)
	p.nudge() // there may be something to populate
	p.unlock(doomed)
}

// establishedLocked finds out what c leads to and gives it away, unless that was cleared meanwhile: the specification
// would have the owner use it, but it may have met the server before whatever that was cleared for.
func (p *Pool[C]) establishedLocked(c *Conn[C]) {
	now := time.Now()
	p.emitLocked(fact{kind: connectionReady, id: c.id, duration: now.Sub(c.since)})
	if p.cfg.Service != nil {
		c.leadsTo, c.generation = p.services.join(c.service, c.generation)
	}
	p.retry = backoff{}
	owner := c.owner
	c.owner = nil
	switch {
	case c.isStaleLocked():
		p.closeLocked(c, event.ClosedStale, nil)
		p.startOverLocked(owner)
	case owner != nil:
		p.pending--
		p.handOverLocked(c, owner)
	default:
		p.pending--
		p.makeAvailableLocked(c, now)
	}
}

// startOverLocked does for a check-out whose connection was stale at once what a check-out of now would get: the place of
// that connection, for another one, if the pool is not paused.
func (p *Pool[C]) startOverLocked(w *waiter[C]) {
	switch {
	case w == nil:
	case p.state == StateReady:
		p.createLocked(w.ctx, w)
	default:
		p.refuseLocked(w, p.clearedErrorLocked(), event.CheckOutConnectionError)
	}
}

func (p *Pool[C]) establishFailedLocked(c *Conn[C], err error) {
	reason, failure := event.ClosedError, event.CheckOutConnectionError
	if p.state == StateClosed {
		reason, failure = event.ClosedPoolClosed, event.CheckOutPoolClosed
	}
	if !c.isStaleLocked() { // or whoever cleared the pool says when to go on
		p.retry = p.retry.next(p.cfg.MaintenanceInterval)
	}
	owner := c.owner
	c.owner = nil
	p.closeLocked(c, reason, err)
	if owner != nil {
		p.refuseLocked(owner, err, failure)
	}
}

// makeAvailableLocked puts c where the next check-out finds it.
func (p *Pool[C]) makeAvailableLocked(c *Conn[C], now time.Time) {
	c.state, c.since = connAvailable, now
	p.available = append(p.available, c)
}

// perishedLocked says whether an established connection must not be used any more, and why.
func (p *Pool[C]) perishedLocked(c *Conn[C], now time.Time) (reason event.ClosedReason, err error, perished bool) { //nolint:revive // err explains reason
	switch {
	case !c.resource.Alive(): // before stale: what broke it may have cleared the pool, too
		return event.ClosedError, brokenError(c.resource), true
	case c.isStaleLocked():
		return event.ClosedStale, nil, true
	case c.state == connAvailable && p.cfg.MaxIdleTime > 0 && now.Sub(c.since) > p.cfg.MaxIdleTime:
		return event.ClosedIdle, nil, true
	default:
		return "", nil, false
	}
}

// isStaleLocked is false for a pending connection in load-balancer mode: what it will lead to is not known.
func (c *Conn[C]) isStaleLocked() bool {
	return c.leadsTo != nil && c.generation != c.leadsTo.generation
}

// brokenError is why the connection is not alive, if it can say so.
func brokenError(r Resource) error {
	if e, ok := r.(interface{ Err() error }); ok {
		return e.Err()
	}
	return nil
}

// closeLocked takes c out of the pool's count. The caller takes it out of p.available and gives it to unlock, if it has
// a resource to close.
func (p *Pool[C]) closeLocked(c *Conn[C], reason event.ClosedReason, err error) {
	switch c.state {
	case connPending:
		p.pending--
	case connInUse:
		p.inUse--
	case connAvailable:
	case connClosed:
		panic("bug: connection closed twice")
	}
	if p.cfg.Service != nil && c.leadsTo != nil {
		p.services.leave(c.leadsTo)
	}
	c.state = connClosed
	delete(p.conns, c)
	p.emitLocked(fact{kind: connectionClosed, id: c.id, reason: string(reason), err: err})
}
