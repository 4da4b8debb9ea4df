package pool

import (
	"context"
	"fmt"
	"time"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/internal/ctxwatch"
)

// waiter is a check-out that could not be served at once. It stands in the queue until it is given a connection, or
// until a connection is being established for it; the pool's mu guards it until done is closed.
type waiter[C Resource] struct {
	ctx        context.Context //nolint:containedctx // a call's, for as long as the call lasts: a connection made for it gets its values
	start      time.Time
	done       chan struct{} // closed when conn or err is set
	conn       *Conn[C]
	err        error
	pending    *Conn[C] // being established for this waiter
	prev, next *waiter[C]
	queued     bool
}

// CheckOut gives a connection to the caller, who owns it until CheckIn. It waits, in the order of arrival, until one is
// returned or established, until ctx ends, or until WaitQueueTimeout is over. Its error is a *ClosedError, a
// *PoolClearedError, a *WaitQueueTimeoutError (which wraps why ctx ended), or what Connect returned.
func (p *Pool[C]) CheckOut(ctx context.Context) (*Conn[C], error) {
	start := time.Now()
	p.mu.Lock()
	p.emitLocked(fact{kind: checkOutStarted})
	if err, reason := p.refusalLocked(ctx); err != nil {
		p.emitLocked(fact{kind: checkOutFailed, reason: string(reason), err: err, duration: time.Since(start)})
		p.unlock()
		return nil, err
	}
	var doomed []*Conn[C]
	if p.waiters.len == 0 {
		var c *Conn[C]
		if c, doomed = p.takeLocked(start, nil); c != nil {
			p.lendLocked(c, start)
			p.unlock()
			closeAll(doomed)
			return c, nil
		}
	}
	w := &waiter[C]{ctx: ctx, start: start, done: make(chan struct{})}
	p.waiters.push(w)
	doomed = p.serveLocked(doomed)
	p.unlock()
	closeAll(doomed)
	return p.wait(ctx, w)
}

// CheckIn returns a connection that CheckOut gave. One that is broken or stale is closed; else the waiter who came
// first gets it. Returning a connection twice, or to another pool, is a bug in the caller and panics.
func (p *Pool[C]) CheckIn(c *Conn[C]) {
	if c.pool != p {
		panic("bug: connection checked in to a pool that it is not of")
	}
	now := time.Now()
	p.mu.Lock()
	if c.state != connInUse {
		p.mu.Unlock()
		panic("bug: connection checked in that is not checked out")
	}
	p.emitLocked(fact{kind: checkedIn, id: c.id})
	var doomed []*Conn[C]
	reason, err, perished := p.perishedLocked(c, now)
	switch {
	case p.state == StateClosed:
		p.closeLocked(c, event.ClosedPoolClosed, nil)
		doomed = append(doomed, c)
	case perished:
		p.closeLocked(c, reason, err)
		doomed = append(doomed, c)
	default:
		p.inUse--
		p.makeAvailableLocked(c, now)
	}
	if p.waiters.len > 0 {
		doomed = p.serveLocked(doomed)
	}
	p.unlock()
	closeAll(doomed)
	if len(doomed) > 0 && p.cfg.MinSize > 0 {
		p.nudge()
	}
}

// refusalLocked says why nothing can be checked out now.
func (p *Pool[C]) refusalLocked(ctx context.Context) (error, event.CheckOutFailedReason) { //nolint:revive,staticcheck // the reason belongs to the error
	switch {
	case p.state == StateClosed:
		return &ClosedError{p.cfg.Address}, event.CheckOutPoolClosed
	case p.state == StatePaused:
		return p.clearedErrorLocked(), event.CheckOutConnectionError
	case ctx.Err() != nil:
		return &WaitQueueTimeoutError{Address: p.cfg.Address, Err: ctxwatch.Err(ctx)}, event.CheckOutTimeout
	default:
		return nil, ""
	}
}

// takeLocked takes the available connection that was used last, and appends to doomed those that perished meanwhile.
func (p *Pool[C]) takeLocked(now time.Time, doomed []*Conn[C]) (*Conn[C], []*Conn[C]) {
	for n := len(p.available); n > 0; n = len(p.available) {
		c := p.available[n-1]
		p.available[n-1] = nil
		p.available = p.available[:n-1]
		reason, err, perished := p.perishedLocked(c, now)
		if !perished {
			return c, doomed
		}
		p.closeLocked(c, reason, err)
		doomed = append(doomed, c)
	}
	return nil, doomed
}

// serveLocked does for the waiters, first come first served, what can be done now: hand over what is available, or
// begin to establish. It is called after every change that could help one.
func (p *Pool[C]) serveLocked(doomed []*Conn[C]) []*Conn[C] {
	for p.waiters.len > 0 {
		var c *Conn[C]
		c, doomed = p.takeLocked(time.Now(), doomed)
		switch {
		case c != nil:
			p.handOverLocked(c, p.waiters.pop())
		case p.hasRoomLocked():
			w := p.waiters.pop()
			p.createLocked(w.ctx, w)
		default:
			return doomed
		}
	}
	return doomed
}

// hasRoomLocked says whether another connection may be created.
func (p *Pool[C]) hasRoomLocked() bool {
	return p.state == StateReady && uint64(p.pending) < p.cfg.MaxConnecting &&
		(p.maxSize == 0 || uint64(len(p.conns)) < p.maxSize)
}

func (p *Pool[C]) lendLocked(c *Conn[C], start time.Time) {
	c.state = connInUse
	p.inUse++
	p.emitLocked(fact{kind: checkedOut, id: c.id, since: start})
}

func (p *Pool[C]) handOverLocked(c *Conn[C], w *waiter[C]) {
	p.lendLocked(c, w.start)
	w.conn, w.pending = c, nil
	close(w.done)
}

func (p *Pool[C]) refuseLocked(w *waiter[C], err error, reason event.CheckOutFailedReason) {
	p.emitLocked(fact{kind: checkOutFailed, reason: string(reason), err: err, since: w.start})
	w.err, w.pending = err, nil
	close(w.done)
}

// wait waits until w is served, ctx ends, or the time in the queue is over.
func (p *Pool[C]) wait(ctx context.Context, w *waiter[C]) (*Conn[C], error) {
	var timeout <-chan time.Time
	if p.cfg.WaitQueueTimeout > 0 {
		timer := time.NewTimer(p.cfg.WaitQueueTimeout)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		select {
		case <-w.done:
		case <-ctx.Done():
			p.leave(w, &WaitQueueTimeoutError{Address: p.cfg.Address, Err: ctxwatch.Err(ctx)}, true)
		case <-timeout:
			timeout = nil
			if !p.leave(w, &WaitQueueTimeoutError{Address: p.cfg.Address}, false) {
				continue // a connection is being established for it: only ctx bounds that
			}
		}
		p.Deliver()
		return w.conn, w.err
	}
}

// leave ends w's wait with err, unless it is over already; unless even, it does nothing to a waiter whose connection
// is being established. That goes on in any case, for whoever comes next.
func (p *Pool[C]) leave(w *waiter[C], err error, evenEstablishing bool) (over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case w.conn != nil || w.err != nil:
		return true
	case w.pending != nil && !evenEstablishing:
		return false
	case w.pending != nil:
		w.pending.owner = nil
	default:
		p.waiters.remove(w)
	}
	p.refuseLocked(w, err, event.CheckOutTimeout)
	return true
}

// queue is the wait queue: a linked list, so that a waiter can leave from its middle.
type queue[C Resource] struct {
	head, tail *waiter[C]
	len        int
}

func (q *queue[C]) push(w *waiter[C]) {
	w.prev, w.queued = q.tail, true
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	q.len++
}

func (q *queue[C]) pop() *waiter[C] {
	w := q.head
	if w != nil {
		q.remove(w)
	}
	return w
}

func (q *queue[C]) remove(w *waiter[C]) {
	if !w.queued {
		panic(fmt.Sprintf("bug: waiter is not in the queue (%d are)", q.len))
	}
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	q.len--
}
