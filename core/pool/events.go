package pool

import (
	"time"

	"github.com/mooringdb/mooring/core/event"
)

// fact is an event in the making: queued under mu, in order, and delivered outside it.
type fact struct {
	kind      factKind
	id        uint64
	duration  time.Duration
	since     time.Time // if set, the duration is counted from here
	reason    string
	interrupt bool
	err       error
}

type factKind uint8

const (
	poolCreated factKind = iota
	poolReady
	poolCleared
	poolClosed
	connectionCreated
	connectionReady
	connectionClosed
	checkOutStarted
	checkOutFailed
	checkedOut
	checkedIn
)

// wants says whether the sink listens to a kind, so that what nobody wants is not even queued.
func wants(s *event.Sink, k factKind) bool {
	if s == nil {
		return false
	}
	switch k {
	case poolCreated:
		return s.PoolCreated != nil
	case poolReady:
		return s.PoolReady != nil
	case poolCleared:
		return s.PoolCleared != nil
	case poolClosed:
		return s.PoolClosed != nil
	case connectionCreated:
		return s.ConnectionCreated != nil
	case connectionReady:
		return s.ConnectionReady != nil
	case connectionClosed:
		return s.ConnectionClosed != nil
	case checkOutStarted:
		return s.ConnectionCheckOutStarted != nil
	case checkOutFailed:
		return s.ConnectionCheckOutFailed != nil
	case checkedOut:
		return s.ConnectionCheckedOut != nil
	case checkedIn:
		return s.ConnectionCheckedIn != nil
	default:
		return false
	}
}

// emitLocked queues a fact. Whoever queues one calls unlock or Deliver before returning, Ready and Clear excepted.
func (p *Pool[C]) emitLocked(f fact) {
	if !wants(p.cfg.Sink, f.kind) {
		return
	}
	if !f.since.IsZero() {
		f.duration = time.Since(f.since)
	}
	p.events = append(p.events, f)
}

// unlock releases mu and delivers what was queued under it.
func (p *Pool[C]) unlock() {
	queued := len(p.events) > 0
	p.mu.Unlock()
	if queued {
		p.Deliver()
	}
}

// Deliver hands the queued events to the sink, in order. When it returns, all events that were queued before it was
// called have been delivered, here or by another goroutine. Only Ready and Clear leave it to their caller; if he does
// not, the pool's goroutine does it soon.
func (p *Pool[C]) Deliver() {
	if p.cfg.Sink == nil {
		return
	}
	p.outbox.Lock()
	defer p.outbox.Unlock()
	p.mu.Lock()
	batch := p.events
	p.events, p.spare = p.spare[:0], nil
	p.mu.Unlock()
	for _, f := range batch {
		p.deliver(f)
	}
	clear(batch)
	p.mu.Lock()
	p.spare = batch
	p.mu.Unlock()
}

func (p *Pool[C]) deliver(f fact) {
	s, addr := p.cfg.Sink, p.cfg.Address
	switch f.kind {
	case poolCreated:
		s.PoolCreated(event.PoolCreated{Address: addr, Options: p.options()})
	case poolReady:
		s.PoolReady(event.PoolReady{Address: addr})
	case poolCleared:
		s.PoolCleared(event.PoolCleared{Address: addr, InterruptInUseConnections: f.interrupt, Err: f.err})
	case poolClosed:
		s.PoolClosed(event.PoolClosed{Address: addr})
	case connectionCreated:
		s.ConnectionCreated(event.ConnectionCreated{Address: addr, ConnectionID: f.id})
	case connectionReady:
		s.ConnectionReady(event.ConnectionReady{Address: addr, ConnectionID: f.id, Duration: f.duration})
	case connectionClosed:
		s.ConnectionClosed(event.ConnectionClosed{
			Address: addr, ConnectionID: f.id, Reason: event.ClosedReason(f.reason), Err: f.err,
		})
	case checkOutStarted:
		s.ConnectionCheckOutStarted(event.ConnectionCheckOutStarted{Address: addr})
	case checkOutFailed:
		s.ConnectionCheckOutFailed(event.ConnectionCheckOutFailed{
			Address: addr, Reason: event.CheckOutFailedReason(f.reason), Duration: f.duration, Err: f.err,
		})
	case checkedOut:
		s.ConnectionCheckedOut(event.ConnectionCheckedOut{Address: addr, ConnectionID: f.id, Duration: f.duration})
	case checkedIn:
		s.ConnectionCheckedIn(event.ConnectionCheckedIn{Address: addr, ConnectionID: f.id})
	}
}

// options are those that differ from the defaults.
func (p *Pool[C]) options() event.PoolOptions {
	o := event.PoolOptions{
		MinSize: int(p.cfg.MinSize), MaxIdleTime: p.cfg.MaxIdleTime, WaitQueueTimeout: p.cfg.WaitQueueTimeout,
	}
	if p.maxSize != DefaultMaxSize {
		o.MaxSize = int(p.maxSize)
	}
	if p.cfg.MaxConnecting != DefaultMaxConnecting {
		o.MaxConnecting = int(p.cfg.MaxConnecting)
	}
	return o
}
