package pool

import (
	"time"

	"github.com/mooringdb/mooring/core/event"
)

// fact holds what an event is made of. Facts are queued under mu, in order, and delivered without
// it.
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

// wants returns the kinds that a sink listens to, as bits. Facts of other kinds are not queued.
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

// emitLocked queues a fact. The caller calls unlock or flush before it returns; Ready and Clear
// are the exceptions.
func (p *Pool[C]) emitLocked(f fact) {
	if !p.wants(f.kind) {
		return
	}
	if !f.since.IsZero() {
		f.duration = time.Since(f.since)
	}
	p.outbox.Add(f)
}

// holdLocked holds back the facts that are queued from now on, until Deliver.
func (p *Pool[C]) holdLocked() {
	if p.wanted != 0 {
		p.outbox.Hold()
	}
}

// Deliver releases the events that the oldest Ready or Clear has held back, and hands them to the
// sink. The caller of each Ready and each Clear that returned true calls it once, without locks,
// after it has told the sink why it made the pool ready or cleared it: so a cause is always
// delivered before its consequence. Events behind a later hold stay queued.
func (p *Pool[C]) Deliver() {
	p.outbox.Release() // the oldest hold: the owners make their changes in the order of their calls
	p.flush()
}

// unlock releases mu, wakes the waiters that were handed a connection under it, closes the
// resources of doomed, and delivers the queued events.
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
		_ = c.resource.Close() // there is nothing to do about an error
	}
	if len(doomed) > 0 && p.cfg.MinSize > 0 {
		p.nudge()
	}
	p.flush()
}

// flush hands the queued events to the sink, in order, up to the first hold. When it returns, the
// events that were queued before the call have been delivered, by this goroutine or another;
// those behind a hold wait for Deliver.
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
		s.ConnectionReady(event.ConnectionReady{
			Address: addr, ConnectionID: f.id, Duration: f.duration,
		})
	case connectionClosed:
		s.ConnectionClosed(event.ConnectionClosed{
			Address: addr, ConnectionID: f.id, Reason: event.ClosedReason(f.reason), Err: f.err,
		})
	case checkOutStarted:
		s.ConnectionCheckOutStarted(event.ConnectionCheckOutStarted{Address: addr})
	case checkOutFailed:
		s.ConnectionCheckOutFailed(event.ConnectionCheckOutFailed{
			Address: addr, Reason: event.CheckOutFailedReason(f.reason), Duration: f.duration,
			Err: f.err,
		})
	case checkedOut:
		s.ConnectionCheckedOut(event.ConnectionCheckedOut{
			Address: addr, ConnectionID: f.id, Duration: f.duration,
		})
	case checkedIn:
		s.ConnectionCheckedIn(event.ConnectionCheckedIn{Address: addr, ConnectionID: f.id})
	}
}

// options returns the options that differ from the defaults.
func (p *Pool[C]) options() event.PoolOptions {
	o := event.PoolOptions{
		MinSize: int(p.cfg.MinSize), MaxIdleTime: p.cfg.MaxIdleTime,
		WaitQueueTimeout: p.cfg.WaitQueueTimeout,
	}
	if p.maxSize != DefaultMaxSize {
		o.MaxSize, o.Unlimited = int(p.maxSize), p.maxSize == 0
	}
	if p.cfg.MaxConnecting != DefaultMaxConnecting {
		o.MaxConnecting = int(p.cfg.MaxConnecting)
	}
	return o
}
