package pool

import (
	"context"
	"time"

	"github.com/mooringdb/mooring/core/ctxwatch"
	"github.com/mooringdb/mooring/core/event"
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
	start := clock(p.timed)
	p.mu.Lock()
	p.facts.emit(fact{kind: checkOutStarted})
	if err, reason := p.refusalLocked(ctx); err != nil {
		p.facts.emit(fact{kind: checkOutFailed, reason: string(reason), err: err, since: start})
		p.unlock(nil)
		return nil, err
	}
	var doomed []*Conn[C]
	if p.waiting.queued.len == 0 {
		var c *Conn[C]
		if c, doomed = p.takeLocked(start, nil); c != nil {
			p.lendLocked(c, start)
			p.unlock(doomed)
			return c, nil
		}
	}
	w := p.retired.get(ctx, start)
	p.waiting.queued.push(p.cfg.callerOf(ctx), w)
	doomed = p.serveLocked(start, doomed)
	p.unlock(doomed)
	p.wait(ctx, w, limit)
	c, err := w.conn, w.err
	p.retired.put(w)
	return c, err
}

// CheckIn takes back a connection that CheckOut returned. A broken or stale connection is closed;
// any other goes to the first waiter, or becomes available. CheckIn panics if the connection is
// not checked out of this pool, which is a bug in the caller.
func (p *Pool[C]) CheckIn(c *Conn[C]) {
	if c.pool != p {
		panic("bug: connection checked in to a pool that it is not of")
	}
	now := clock(p.ages)
	p.mu.Lock()
	if c.state != connInUse {
		p.mu.Unlock()
		panic("bug: connection checked in that is not checked out")
	}
	p.facts.emit(fact{kind: checkedIn, id: c.id})
	c.useLocked(PurposeOther)
	var doomed []*Conn[C]
	reason, err, perished := c.perishedLocked(now)
	switch {
	case p.state == StateClosed:
		p.closeLocked(c, event.ClosedPoolClosed, nil)
		doomed = append(doomed, c)
	case perished:
		p.closeLocked(c, reason, err)
		doomed = append(doomed, c)
	default:
		p.counts.inUse--
		p.makeAvailableLocked(c, now)
	}
	if p.waiting.some() {
		doomed = p.serveLocked(now, doomed)
	}
	p.unlock(doomed)
}

func (c *Config[C]) callerOf(ctx context.Context) any {
	if c.Caller == nil {
		return nil
	}
	return c.Caller(ctx)
}

// waitLimit returns the bound of a wait that begins now; 0: no limit.
func (c *Config[C]) waitLimit() time.Duration {
	if c.WaitLimit == nil {
		return c.WaitQueueTimeout
	}
	return c.WaitLimit()
}

// clock returns the current time if it is wanted. Reading the clock takes as long as the rest of
// a check-out.
func clock(wanted bool) (now time.Time) {
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
		reason, err, perished := c.perishedLocked(now)
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
	for p.waiting.some() {
		var c *Conn[C]
		c, doomed = p.takeLocked(now, doomed)
		switch {
		case c != nil:
			p.handOverLocked(c, p.waiting.next())
		case p.waiting.queued.len > 0 && p.hasRoomLocked():
			w := p.waiting.queued.pop()
			p.createLocked(w.ctx, w)
		case p.growth.cooldown.err != nil && len(p.conns) == 0:
			p.evictLocked(p.growth.cooldown.err, event.CheckOutConnectionError)
		default:
			return doomed
		}
	}
	return doomed
}

// hasRoomLocked reports whether another connection may be created.
func (p *Pool[C]) hasRoomLocked() bool {
	return p.state == StateReady && p.growth.cooldown.err == nil &&
		uint64(p.counts.pending) < p.cfg.MaxConnecting && !p.isFullLocked()
}

func (p *Pool[C]) isFullLocked() bool { return p.maxSize > 0 && uint64(len(p.conns)) >= p.maxSize }

func (p *Pool[C]) lendLocked(c *Conn[C], start time.Time) {
	c.state = connInUse
	p.counts.inUse++
	p.facts.emit(fact{kind: checkedOut, id: c.id, since: start})
}

// handOverLocked gives c to w. unlock wakes w after it has released mu, since waking a goroutine
// takes as long as all the work under mu.
func (p *Pool[C]) handOverLocked(c *Conn[C], w *waiter[C]) {
	p.lendLocked(c, w.start)
	w.conn = c
	p.waiting.handed.push(w)
}

// wait blocks until w is served, ctx ends, or the time in the queue is over. In the last two
// cases it refuses w itself. The time in the queue does not bound an establishment: a waiter whose
// connection is being established stays. Under timeoutMS it does.
func (p *Pool[C]) wait(ctx context.Context, w *waiter[C], limit time.Duration) {
	governed := timeoutms.Governs(ctx)
	if !governed {
		limit = p.cfg.waitLimit()
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
			p.facts.flush() // delivers the events up to its own
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
		p.waiting.disown(w.pending)
	default:
		p.waiting.queued.remove(w)
	}
	w.refuse(&p.facts, p.timeoutLocked(err), event.CheckOutTimeout)
}

// timeoutLocked returns the error of a wait that was given up.
func (p *Pool[C]) timeoutLocked(err error) *WaitQueueTimeoutError {
	e := &WaitQueueTimeoutError{Address: p.cfg.Address, Err: err}
	if p.cfg.Service != nil && p.isFullLocked() {
		cursors, transactions := p.counts.pinned[PurposeCursor], p.counts.pinned[PurposeTransaction]
		e.Usage = &Usage{
			MaxSize: p.maxSize, Cursors: cursors, Transactions: transactions,
			Other: p.counts.inUse - cursors - transactions,
		}
	}
	return e
}
