package pool

import (
	"context"
	"time"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/internal/ctxwatch"
	"github.com/mooringdb/mooring/core/internal/timeoutms"
)

// CheckOut returns a connection, which the caller owns until CheckIn. It blocks until a
// connection has been checked in or established, ctx has ended, or WaitQueueTimeout is over;
// waiters are served in the order that Config.Caller says. A check-out that a connection is being
// established for takes what comes first, that one or one that is checked in. The error is a
// *ClosedError, a *PoolClearedError, a *WaitQueueTimeoutError (which wraps the reason that ctx
// ended), or the error of Connect.
func (p *Pool[C]) CheckOut(ctx context.Context) (*Conn[C], error) {
	return p.CheckOutWithin(ctx, 0)
}

// CheckOutWithin returns what CheckOut returns. If timeoutMS governs ctx, limit bounds the wait in
// place of WaitQueueTimeout, and it includes the establishment of a connection. 0 means no limit.
func (p *Pool[C]) CheckOutWithin(ctx context.Context, limit time.Duration) (*Conn[C], error) {
	start := p.clock(p.timed)
	p.mu.Lock()
	p.emitLocked(fact{kind: checkOutStarted})
	if err, reason := p.refusalLocked(ctx); err != nil {
		p.emitLocked(fact{kind: checkOutFailed, reason: string(reason), err: err, since: start})
		p.unlock(nil)
		return nil, err
	}
	var doomed []*Conn[C]
	if p.waiters.len == 0 {
		var c *Conn[C]
		if c, doomed = p.takeLocked(start, nil); c != nil {
			p.lendLocked(c, start)
			p.unlock(doomed)
			return c, nil
		}
	}
	w := p.newWaiter(ctx, start)
	p.waiters.push(p.callerOf(ctx), w)
	doomed = p.serveLocked(start, doomed)
	p.unlock(doomed)
	p.wait(ctx, w, limit)
	c, err := w.conn, w.err
	p.retire(w)
	return c, err
}

// CheckIn takes back a connection that CheckOut returned. A broken or stale connection is closed;
// any other goes to the first waiter, or becomes available. CheckIn panics if the connection is
// not checked out of this pool, which is a bug in the caller.
func (p *Pool[C]) CheckIn(c *Conn[C]) {
	if c.pool != p {
		panic("bug: connection checked in to a pool that it is not of")
	}
	now := p.clock(p.ages)
	p.mu.Lock()
	if c.state != connInUse {
		p.mu.Unlock()
		panic("bug: connection checked in that is not checked out")
	}
	p.emitLocked(fact{kind: checkedIn, id: c.id})
	p.useLocked(c, PurposeOther)
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
	if p.waiters.len+p.connecting.len > 0 {
		doomed = p.serveLocked(now, doomed)
	}
	p.unlock(doomed)
}

func (p *Pool[C]) callerOf(ctx context.Context) any {
	if p.cfg.Caller == nil {
		return nil
	}
	return p.cfg.Caller(ctx)
}

// clock returns the current time if it is wanted. Reading the clock takes as long as the rest of
// a check-out.
func (p *Pool[C]) clock(wanted bool) (now time.Time) {
	if wanted {
		now = time.Now()
	}
	return now
}

// refusalLocked returns the reason that nothing can be checked out now.
//
//nolint:revive,staticcheck // the reason belongs to the error
func (p *Pool[C]) refusalLocked(ctx context.Context) (error, event.CheckOutFailedReason) {
	switch {
	case p.state == StateClosed:
		return &ClosedError{p.cfg.Address}, event.CheckOutPoolClosed
	case p.state == StatePaused:
		return p.clearedErrorLocked(), event.CheckOutConnectionError
	case ctx.Err() != nil:
		return p.timeoutLocked(ctxwatch.Err(ctx)), event.CheckOutTimeout
	default:
		return nil, ""
	}
}

// takeLocked takes the available connection that was used last. It appends the perished ones that
// it finds before it to doomed.
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

// serveLocked hands available connections to the waiters in their order, and begins to establish
// connections for the next ones. It is called after every change that could help a
// waiter.
func (p *Pool[C]) serveLocked(now time.Time, doomed []*Conn[C]) []*Conn[C] {
	for p.waiters.len+p.connecting.len > 0 {
		var c *Conn[C]
		c, doomed = p.takeLocked(now, doomed)
		switch {
		case c != nil:
			p.handOverLocked(c, p.nextLocked())
		case p.waiters.len > 0 && p.hasRoomLocked():
			w := p.waiters.pop()
			p.createLocked(w.ctx, w)
		case p.cooldown.err != nil && len(p.conns) == 0:
			p.evictLocked(p.cooldown.err, event.CheckOutConnectionError)
		default:
			return doomed
		}
	}
	return doomed
}

// nextLocked removes and returns the first waiter. If a connection is being established for it,
// that is now for the first waiter without one, or for none.
func (p *Pool[C]) nextLocked() *waiter[C] {
	w := p.connecting.head
	if w == nil {
		return p.waiters.pop()
	}
	c := w.pending
	p.disownLocked(c)
	if heir := p.waiters.pop(); heir != nil {
		p.assignLocked(c, heir)
	}
	return w
}

// assignLocked makes c, which is being established, the connection of w. If w has had another one,
// it keeps its place.
func (p *Pool[C]) assignLocked(c *Conn[C], w *waiter[C]) {
	c.owner, w.pending = w, c
	if !w.queued {
		p.connecting.push(w)
	}
}

// disownLocked ends what assignLocked began. It returns the waiter, nil if c is for none.
func (p *Pool[C]) disownLocked(c *Conn[C]) *waiter[C] {
	w := c.owner
	if w != nil {
		c.owner, w.pending = nil, nil
		p.connecting.remove(w)
	}
	return w
}

// hasRoomLocked reports whether another connection may be created.
func (p *Pool[C]) hasRoomLocked() bool {
	return p.state == StateReady && p.cooldown.err == nil &&
		uint64(p.pending) < p.cfg.MaxConnecting && !p.isFullLocked()
}

func (p *Pool[C]) isFullLocked() bool { return p.maxSize > 0 && uint64(len(p.conns)) >= p.maxSize }

func (p *Pool[C]) lendLocked(c *Conn[C], start time.Time) {
	c.state = connInUse
	p.inUse++
	p.emitLocked(fact{kind: checkedOut, id: c.id, since: start})
}

// handOverLocked gives c to w. unlock wakes w after it has released mu, since waking a goroutine
// takes as long as all the work under mu.
func (p *Pool[C]) handOverLocked(c *Conn[C], w *waiter[C]) {
	p.lendLocked(c, w.start)
	w.conn = c
	p.handed.push(w)
}

func (p *Pool[C]) refuseLocked(w *waiter[C], err error, reason event.CheckOutFailedReason) {
	p.emitLocked(fact{kind: checkOutFailed, reason: string(reason), err: err, since: w.start})
	w.err = err
	w.served <- struct{}{}
}

// newWaiter returns a new waiter, or one that is out of use.
func (p *Pool[C]) newWaiter(ctx context.Context, start time.Time) *waiter[C] {
	w, ok := p.retired.Get().(*waiter[C])
	if !ok {
		w = &waiter[C]{served: make(chan struct{}, 1)}
	}
	w.ctx, w.start = ctx, start
	return w
}

// retire puts w back for reuse. Neither the queue nor a pending connection may refer to it.
func (p *Pool[C]) retire(w *waiter[C]) {
	*w = waiter[C]{served: w.served}
	p.retired.Put(w)
}

// wait blocks until w is served, ctx ends, or the time in the queue is over. In the last two
// cases it refuses w itself. The time in the queue does not bound an establishment: a waiter whose
// connection is being established stays. Under timeoutMS it does.
func (p *Pool[C]) wait(ctx context.Context, w *waiter[C], limit time.Duration) {
	governed := timeoutms.Governs(ctx)
	if !governed {
		limit = p.cfg.WaitQueueTimeout
	}
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	for ended := ctx.Done(); ; {
		select {
		case <-w.served:
			p.flush() // delivers the events up to its own
			return
		case <-ended:
			ended = nil
			p.leave(w, ctxwatch.Err(ctx), true)
		case <-timeout:
			timeout = nil
			p.leave(w, nil, governed)
		}
	}
}

// leave refuses w because its context ended with err, or because its time is over if err is nil.
// always says that this holds for a waiter whose connection is being established, too. The
// establishment goes on in any case, for the next waiter.
func (p *Pool[C]) leave(w *waiter[C], err error, always bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case w.conn != nil || w.err != nil: // served meanwhile
		return
	case w.pending != nil && !always:
		return
	case w.pending != nil:
		p.disownLocked(w.pending)
	default:
		p.waiters.remove(w)
	}
	p.refuseLocked(w, p.timeoutLocked(err), event.CheckOutTimeout)
}

// timeoutLocked returns the error of a wait that was given up.
func (p *Pool[C]) timeoutLocked(err error) *WaitQueueTimeoutError {
	e := &WaitQueueTimeoutError{Address: p.cfg.Address, Err: err}
	if p.cfg.Service != nil && p.isFullLocked() {
		cursors, transactions := p.pinned[PurposeCursor], p.pinned[PurposeTransaction]
		e.Usage = &Usage{
			MaxSize: p.maxSize, Cursors: cursors, Transactions: transactions,
			Other: p.inUse - cursors - transactions,
		}
	}
	return e
}
