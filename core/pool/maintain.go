package pool

import (
	"context"
	"time"
)

// maintain runs on the pool's own goroutine, the specification's background thread: it carries
// out interrupting clears, closes what perished, and establishes up to MinSize. No run of the
// loop waits for I/O.
func (p *Pool[C]) maintain(ctx context.Context) {
	var tick <-chan time.Time
	if p.cfg.MaintenanceInterval > 0 {
		ticker := time.NewTicker(p.cfg.MaintenanceInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			p.interruptAll() // for a clear just before the end
			return
		case <-p.wake:
		case <-tick:
		case <-retry:
		}
		retry = nil
		p.interruptAll()
		later := p.resume()
		if tick != nil {
			p.prune()
			later = max(later, p.populate(ctx))
		}
		if later > 0 {
			retry = time.After(later)
		}
		p.facts.flush()
	}
}

// interruptAll carries out the interrupting clears: it interrupts the connections in use that
// existed at the time of the clear, and cancels those that were being established.
func (p *Pool[C]) interruptAll() {
	p.mu.Lock()
	cause := p.generations.interrupt
	p.generations.interrupt = nil
	if cause == nil {
		p.mu.Unlock()
		return
	}
	var busy []*Conn[C]
	for c := range p.conns {
		if c.leadsTo == nil || c.generation >= c.leadsTo.interrupted {
			continue
		}
		switch c.state {
		case connPending:
			c.cancel(cause)
		case connInUse:
			busy = append(busy, c)
		case connAvailable, connClosed:
		}
	}
	p.mu.Unlock()
	// A connection may be checked in before this: it is stale, so it is not given out again.
	for _, c := range busy {
		c.resource.Interrupt(cause)
	}
}

// prune closes the available connections that have perished.
func (p *Pool[C]) prune() {
	now := clock(p.ages)
	p.mu.Lock()
	var doomed []*Conn[C]
	kept := p.available[:0]
	for _, c := range p.available {
		reason, err, perished := c.perishedLocked(now)
		if !perished {
			kept = append(kept, c)
			continue
		}
		p.closeLocked(c, reason, err)
		doomed = append(doomed, c)
	}
	clear(p.available[len(kept):])
	p.available = kept
	doomed = p.serveLocked(now, doomed) // a closed connection makes room
	p.unlock(doomed)
}

// populate begins to establish one connection if there are fewer than MinSize; the end of that
// brings the next run. One at a time leaves room within MaxConnecting for check-outs. After a
// failure it returns how long to wait.
func (p *Pool[C]) populate(ctx context.Context) (later time.Duration) {
	p.mu.Lock()
	if !p.growth.populating && uint64(len(p.conns)) < p.cfg.MinSize && p.hasRoomLocked() {
		if later = time.Until(p.growth.retry.at); later <= 0 {
			p.growth.populating = true
			p.createLocked(ctx, nil)
		}
	}
	p.unlock(nil)
	return later
}

// growth says when the pool may establish connections.
type growth struct {
	populating bool     // a connection is being established for MinSize
	retry      backoff  // after establishments that failed
	cooldown   cooldown // after Config.ConnectFailed returned true
}

// restart forgets earlier failures.
func (g *growth) restart() { g.retry, g.cooldown = backoff{}, cooldown{} }

// cooldownTime is how long the pool begins no establishment after a failure of the owner's own. It
// is as long as a server stays unknown at least after one of the server's
// (minHeartbeatFrequencyMS).
const cooldownTime = 500 * time.Millisecond

// cooldown holds the failure after which the pool begins no establishment, and until when.
type cooldown struct {
	err   error // nil: the pool establishes connections
	until time.Time
}

// resume ends a cooldown whose time is over, and serves the check-outs that wait. It returns how
// much of the time is left.
func (p *Pool[C]) resume() (later time.Duration) {
	p.mu.Lock()
	var doomed []*Conn[C]
	if p.growth.cooldown.err != nil {
		if later = time.Until(p.growth.cooldown.until); later <= 0 {
			p.growth.cooldown = cooldown{}
			doomed = p.serveLocked(clock(p.ages), nil)
		}
	}
	p.unlock(doomed)
	return later
}

// firstRetry is how long the pool waits before it populates after a first failure.
const firstRetry = 500 * time.Millisecond

// backoff holds when to populate again after failures: the delay doubles each time. The owner may
// make the pool ready sooner, once it has seen the server; in load-balancer mode it never does.
type backoff struct {
	at    time.Time
	after time.Duration
}

func (b backoff) next(most time.Duration) backoff {
	after := min(max(2*b.after, firstRetry), most)
	return backoff{at: time.Now().Add(after), after: after}
}
