package pool

import (
	"context"
	"time"
)

// maintain is the pool's own goroutine, the specification's background thread: it interrupts after an interrupting clear, closes what perished and establishes up to MinSize. No run
// waits for anything.
func (p *Pool[C]) maintain(ctx context.Context) {
	var tick <-chan time.Time
	if p.cfg.MaintenanceInterval > 0 {
		ticker := time.NewTicker(p.cfg.MaintenanceInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-tick:
		}
		p.interruptAll()
		if tick != nil {
			p.prune()
			p.populate(ctx)
		}
		p.flush()
	}
}

// interruptAll carries out an interrupting clear: it fails what is being done on connections that the clear made
// stale, and gives up those that are being established.
func (p *Pool[C]) interruptAll() {
	p.mu.Lock()
	if !p.interrupt {
		p.mu.Unlock()
		return
	}
	p.interrupt = false
	cause := &PoolClearedError{Address: p.cfg.Address, Cause: p.clearedBy, Interrupted: true}
	var busy []*Conn[C]
	for c := range p.conns {
		if !c.isStaleLocked() {
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
	// A connection may be checked in between: it is stale, so nobody gets it again.
	for _, c := range busy {
		c.resource.Interrupt(cause)
	}
}

// prune closes the available connections that perished.
func (p *Pool[C]) prune() {
	now := p.clock(p.ages)
	p.mu.Lock()
	var doomed []*Conn[C]
	kept := p.available[:0]
	for _, c := range p.available {
		reason, err, perished := p.perishedLocked(c, now)
		if !perished {
			kept = append(kept, c)
			continue
		}
		p.closeLocked(c, reason, err)
		doomed = append(doomed, c)
	}
	clear(p.available[len(kept):])
	p.available = kept
	doomed = p.serveLocked(now, doomed) // there may be room now
	p.unlock()
	closeAll(doomed)
}

// populate begins to establish one connection if there are fewer than MinSize; its success brings the next run. One at
// a time leaves room within MaxConnecting for those who wait.
func (p *Pool[C]) populate(ctx context.Context) {
	p.mu.Lock()
	if !p.populating && uint64(len(p.conns)) < p.cfg.MinSize && p.hasRoomLocked() {
		p.populating = true
		p.createLocked(ctx, nil)
	}
	p.unlock()
}
