package pool

import (
	"context"
	"time"

	"github.com/mooringdb/mooring/core/event"
)

// Conn holds one connection of a pool. The caller of CheckOut owns it until CheckIn.
type Conn[C Resource] struct {
	pool       *Pool[C]
	id         uint64
	generation uint64 // the pool's generation at creation, until the connection is established
	resource   C      // set when established
	service    ServiceID
	leadsTo    *service // nil while pending in load-balancer mode

	// The pool's mu guards the fields below.

	state connState
	since time.Time // when it was created, later when it became available
	// cancel ends the establishment. It is nil after it, since it refers to the context of a
	// check-out.
	cancel    context.CancelCauseFunc
	owner     *waiter[C] // waits for the establishment; nil if there is no waiter
	populates bool       // created for MinSize, not for a check-out
	purpose   Purpose
}

type connState uint8

const (
	connPending connState = iota
	connAvailable
	connInUse
	connClosed
)

// ID returns the connection's number. The pool's connections are numbered from 1.
func (c *Conn[C]) ID() uint64 { return c.id }

// Generation returns the generation of the pool when the connection was created, in load-balancer
// mode that of its service.
func (c *Conn[C]) Generation() uint64 { return c.generation }

// Service returns the service that the connection leads to in load-balancer mode, and zero
// otherwise.
func (c *Conn[C]) Service() ServiceID { return c.service }

// Resource returns the value that Connect returned.
func (c *Conn[C]) Resource() C { return c.resource }

// createLocked adds a pending connection. It only does the bookkeeping: establish connects it.
func (p *Pool[C]) createLocked(ctx context.Context, owner *waiter[C]) {
	p.lastID++
	p.counts.pending++
	c := &Conn[C]{
		pool: p, id: p.lastID, generation: p.generations.count, since: time.Now(),
		populates: owner == nil,
	}
	if p.cfg.Service == nil {
		c.leadsTo = &p.generations.server
	}
	p.conns[c] = struct{}{}
	if owner != nil {
		p.waiting.assign(c, owner)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c.cancel = cancel
	p.facts.emit(fact{kind: connectionCreated, id: c.id})
	p.running.Go(func() {
		defer cancel(nil)
		p.establish(ctx, c)
	})
}

// establish connects c and gives it to its owner, or to the first waiter, or makes it available.
func (p *Pool[C]) establish(ctx context.Context, c *Conn[C]) {
	resource, err := p.cfg.Connect(ctx, c.id)
	connected, own := err == nil, false
	if cause := context.Cause(ctx); cause != nil {
		err = cause // the pool canceled it
	} else if err != nil && p.cfg.ConnectFailed != nil {
		own = p.cfg.ConnectFailed(c.generation, err)
	}
	var service ServiceID
	if err == nil && p.cfg.Service != nil {
		service = p.cfg.Service(resource)
	}
	p.mu.Lock()
	c.cancel = nil
	if c.populates {
		p.growth.populating = false
	}
	if err == nil {
		err = context.Cause(ctx) // the pool may have canceled it at this moment
	}
	c.resource, c.service = resource, service
	if own {
		p.growth.cooldown = cooldown{err: err, until: time.Now().Add(cooldownTime)}
	}
	if err != nil {
		p.establishFailedLocked(c, err)
	} else {
		p.establishedLocked(c)
	}
	var doomed []*Conn[C]
	if connected && c.state == connClosed {
		doomed = append(doomed, c)
	}
	doomed = p.serveLocked(clock(p.ages), doomed)
	p.wake.nudge() // MinSize may need another one
	p.unlock(doomed)
}

// establishedLocked finds out which service c leads to and hands c over, unless that was cleared
// meanwhile. The specification lets the owner use c in that case. This pool does not: c may have
// reached the server before the event that the clear was for.
func (p *Pool[C]) establishedLocked(c *Conn[C]) {
	now := time.Now()
	p.facts.emit(fact{kind: connectionReady, id: c.id, duration: now.Sub(c.since)})
	if p.cfg.Service != nil {
		c.leadsTo, c.generation = p.generations.services.join(c.service, c.generation)
	}
	p.growth.restart()
	switch {
	case c.isStaleLocked():
		p.closeLocked(c, event.ClosedStale, nil)
		p.startOverLocked(c)
	case c.owner != nil:
		p.counts.pending--
		p.handOverLocked(c, p.waiting.disown(c))
	default:
		p.counts.pending--
		p.makeAvailableLocked(c, now)
	}
}

// startOverLocked serves the check-out that c, which was stale when it was established, was for,
// as a check-out of now: unless the pool is paused, another connection takes the place of c.
func (p *Pool[C]) startOverLocked(c *Conn[C]) {
	w := c.owner
	switch {
	case w == nil:
	case p.state == StateReady:
		c.owner = nil
		p.createLocked(w.ctx, w)
	default:
		p.waiting.disown(c)
		w.refuse(&p.facts, p.clearedErrorLocked(), event.CheckOutConnectionError)
	}
}

func (p *Pool[C]) establishFailedLocked(c *Conn[C], err error) {
	reason, failure := event.ClosedError, event.CheckOutConnectionError
	if p.state == StateClosed {
		reason, failure = event.ClosedPoolClosed, event.CheckOutPoolClosed
	}
	if !c.isStaleLocked() { // a clear also says when to go on, by Ready
		p.growth.retry = p.growth.retry.next(p.cfg.MaintenanceInterval)
	}
	owner := p.waiting.disown(c)
	p.closeLocked(c, reason, err)
	if owner != nil {
		owner.refuse(&p.facts, err, failure)
	}
}

// makeAvailableLocked appends c to the available connections. The next check-out takes it.
func (p *Pool[C]) makeAvailableLocked(c *Conn[C], now time.Time) {
	c.state, c.since = connAvailable, now
	p.available = append(p.available, c)
}

// perishedLocked reports whether c, which is established, must not be used any more, and why.
//
//nolint:revive // err explains reason
func (c *Conn[C]) perishedLocked(
	now time.Time,
) (reason event.ClosedReason, err error, perished bool) {
	idle := c.pool.cfg.MaxIdleTime
	switch {
	case !c.resource.Alive(): // checked before stale: what broke it may have cleared the pool, too
		return event.ClosedError, brokenError(c.resource), true
	case c.isStaleLocked():
		return event.ClosedStale, nil, true
	case c.state == connAvailable && idle > 0 && now.Sub(c.since) > idle:
		return event.ClosedIdle, nil, true
	default:
		return "", nil, false
	}
}

// isStaleLocked reports whether c is of an older generation. It is false for a pending connection
// in load-balancer mode, whose service is not known.
func (c *Conn[C]) isStaleLocked() bool {
	return c.leadsTo != nil && c.generation != c.leadsTo.generation
}

// brokenError returns the reason that the connection is not alive, if it has one.
func brokenError(r Resource) error {
	if e, ok := r.(interface{ Err() error }); ok {
		return e.Err()
	}
	return nil
}

// closeLocked removes c from the pool's count. The caller removes it from p.available and passes
// it to unlock if it has a resource to close.
func (p *Pool[C]) closeLocked(c *Conn[C], reason event.ClosedReason, err error) {
	switch c.state {
	case connPending:
		p.counts.pending--
	case connInUse:
		p.counts.inUse--
	case connAvailable:
	case connClosed:
		panic("bug: connection closed twice")
	}
	if p.cfg.Service != nil && c.leadsTo != nil {
		p.generations.services.leave(c.leadsTo)
	}
	c.state = connClosed
	delete(p.conns, c)
	p.facts.emit(fact{kind: connectionClosed, id: c.id, reason: string(reason), err: err})
}
