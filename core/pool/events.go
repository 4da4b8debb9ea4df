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
	service   ServiceID
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

// wants says which kinds a sink listens to, as bits, so that what nobody wants is not even queued.
func wants(s *event.Sink) (kinds uint16) {
	if s == nil {
		return 0
	}
	for kind, wanted := range [...]bool{
		poolCreated:       s.PoolCreated != nil,
		poolReady:         s.PoolReady != nil,
		poolCleared:       s.PoolCleared != nil,
		poolClosed:        s.PoolClosed != nil,
		connectionCreated: s.ConnectionCreated != nil,
		connectionReady:   s.ConnectionReady != nil,
		connectionClosed:  s.ConnectionClosed != nil,
		checkOutStarted:   s.ConnectionCheckOutStarted != nil,
		checkOutFailed:    s.ConnectionCheckOutFailed != nil,
		checkedOut:        s.ConnectionCheckedOut != nil,
		checkedIn:         s.ConnectionCheckedIn != nil,
	} {
		if wanted {
			kinds |= 1 << kind
		}
	}
	return kinds
}

func (p *Pool[C]) wants(k factKind) bool { return p.wanted&(1<<k) != 0 }

// emitLocked queues a fact. Whoever queues one calls unlock or flush before returning, Ready and Clear excepted.
func (p *Pool[C]) emitLocked(f fact) {
	if !p.wants(f.kind) {
		return
	}
	if !f.since.IsZero() {
		f.duration = time.Since(f.since)
	}
	p.outbox.Add(f)
}

// holdLocked holds back what is queued from now on until Deliver.
func (p *Pool[C]) holdLocked() {
	if p.wanted != 0 {
		p.outbox.Hold()
	}
}

// Deliver follows each Ready and each Clear that returned true, once and without locks: it lets go of what they held
// back, and hands it to the sink. By then the caller has told the sink what he made the pool ready or cleared it for,
// so that nobody hears of the consequence first. Holds that came later stay.
func (p *Pool[C]) Deliver() {
	p.outbox.Release() // the first hold, since the owners' changes are in the order of their calls
	p.flush()
}

// unlock releases mu, wakes those up who were given a connection under it, tears down the connections that were closed,
// and delivers what was queued.
func (p *Pool[C]) unlock(doomed []*Conn[C]) {
	handed := p.handed
	p.handed = queue[C]{}
	p.mu.Unlock()
	for w := handed.pop(); w != nil; w = handed.pop() {
		w.served <- struct{}{}
	}
	if p.wanted != 0 || len(doomed) > 0 {
		p.unlocked(doomed)
	}
}

func (p *Pool[C]) unlocked(doomed []*Conn[C]) {
	for _, c := range doomed {
		_ = c.resource.Close() // nobody could do anything about an error
	}
	if len(doomed) > 0 && p.cfg.MinSize > 0 {
		p.nudge()
	}
	p.flush()
}

// flush hands the queued events to the sink, in order, up to the first hold. When it returns, those that were queued
// before it was called have been delivered, here or by another goroutine; those behind a hold wait for Deliver.
func (p *Pool[C]) flush() {
	if p.wanted != 0 {
		p.outbox.Flush()
	}
}

func (p *Pool[C]) deliver(f fact) {
	s, addr := p.cfg.Sink, p.cfg.Address
	switch f.kind {
	case poolCreated:
		s.PoolCreated(event.PoolCreated{Address: addr, Options: p.options()})
	case poolReady:
		s.PoolReady(event.PoolReady{Address: addr})
	case poolCleared:
		s.PoolCleared(event.PoolCleared{
			Address: addr, ServiceID: f.service, InterruptInUseConnections: f.interrupt, Err: f.err,
		})
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
		o.MaxSize, o.Unlimited = int(p.maxSize), p.maxSize == 0
	}
	if p.cfg.MaxConnecting != DefaultMaxConnecting {
		o.MaxConnecting = int(p.cfg.MaxConnecting)
	}
	return o
}
