package pool

import (
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/internal/outbox"
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

// facts queues the facts of a pool for its sink.
type facts struct {
	sink    *event.Sink
	address address.Address
	options event.PoolOptions
	wanted  uint16 // the kinds of facts that the sink listens to, as bits
	outbox  *outbox.Outbox[fact]
}

func newFacts(s *event.Sink, of address.Address, options event.PoolOptions) facts {
	f := facts{sink: s, address: of, options: options, wanted: wants(s)}
	f.outbox = outbox.New(f.deliver)
	return f
}

func (f *facts) wants(k factKind) bool { return f.wanted&(1<<k) != 0 }

// emit queues a fact. The caller holds the pool's mu, and calls unlock or flush before it returns;
// Ready and Clear are the exceptions.
func (f *facts) emit(of fact) {
	if !f.wants(of.kind) {
		return
	}
	if !of.since.IsZero() {
		of.duration = time.Since(of.since)
	}
	f.outbox.Add(of)
}

// hold holds back the facts that are queued from now on, until Pool.Deliver.
func (f *facts) hold() {
	if f.wanted != 0 {
		f.outbox.Hold()
	}
}

// flush hands the queued events to the sink, in order, up to the first hold. When it returns, the
// events that were queued before the call have been delivered, by this goroutine or another;
// those behind a hold wait for Pool.Deliver.
func (f *facts) flush() {
	if f.wanted != 0 {
		f.outbox.Flush()
	}
}

func (f facts) deliver(of fact) {
	s, addr := f.sink, f.address
	switch of.kind {
	case poolCreated:
		s.PoolCreated(event.PoolCreated{Address: addr, Options: f.options})
	case poolReady:
		s.PoolReady(event.PoolReady{Address: addr})
	case poolCleared:
		s.PoolCleared(event.PoolCleared{
			Address: addr, ServiceID: of.service, InterruptInUseConnections: of.interrupt,
			Err: of.err,
		})
	case poolClosed:
		s.PoolClosed(event.PoolClosed{Address: addr})
	case connectionCreated:
		s.ConnectionCreated(event.ConnectionCreated{Address: addr, ConnectionID: of.id})
	case connectionReady:
		s.ConnectionReady(event.ConnectionReady{
			Address: addr, ConnectionID: of.id, Duration: of.duration,
		})
	case connectionClosed:
		s.ConnectionClosed(event.ConnectionClosed{
			Address: addr, ConnectionID: of.id, Reason: event.ClosedReason(of.reason), Err: of.err,
		})
	case checkOutStarted:
		s.ConnectionCheckOutStarted(event.ConnectionCheckOutStarted{Address: addr})
	case checkOutFailed:
		s.ConnectionCheckOutFailed(event.ConnectionCheckOutFailed{
			Address: addr, Reason: event.CheckOutFailedReason(of.reason), Duration: of.duration,
			Err: of.err,
		})
	case checkedOut:
		s.ConnectionCheckedOut(event.ConnectionCheckedOut{
			Address: addr, ConnectionID: of.id, Duration: of.duration,
		})
	case checkedIn:
		s.ConnectionCheckedIn(event.ConnectionCheckedIn{Address: addr, ConnectionID: of.id})
	}
}

// Deliver releases the events that the oldest Ready or Clear has held back, and hands them to the
// sink. The caller of each Ready and each Clear that returned true calls it once, without locks,
// after it has told the sink why it made the pool ready or cleared it: so a cause is always
// delivered before its consequence. Events behind a later hold stay queued.
func (p *Pool[C]) Deliver() {
	// the oldest hold: the owners make their changes in the order of their calls
	p.facts.outbox.Release()
	p.facts.flush()
}

// unlock releases mu, wakes the waiters that were handed a connection under it, closes the
// resources of doomed, and delivers the queued events.
func (p *Pool[C]) unlock(doomed []*Conn[C]) {
	handed := p.waiting.handed
	p.waiting.handed = queue[C]{}
	p.mu.Unlock()
	for w := handed.pop(); w != nil; w = handed.pop() {
		w.served <- struct{}{}
	}
	if p.facts.wanted != 0 || len(doomed) > 0 {
		p.unlocked(doomed)
	}
}

func (p *Pool[C]) unlocked(doomed []*Conn[C]) {
	for _, c := range doomed {
		_ = c.resource.Close() // there is nothing to do about an error
	}
	if len(doomed) > 0 && p.cfg.MinSize > 0 {
		p.wake.nudge()
	}
	p.facts.flush()
}

// options returns the options that differ from the defaults.
func (c *Config[C]) options(maxSize uint64) event.PoolOptions {
	o := event.PoolOptions{
		MinSize: int(c.MinSize), MaxIdleTime: c.MaxIdleTime,
		WaitQueueTimeout: c.waitLimit(),
	}
	if maxSize != DefaultMaxSize {
		o.MaxSize, o.Unlimited = int(maxSize), maxSize == 0
	}
	if c.MaxConnecting != DefaultMaxConnecting {
		o.MaxConnecting = int(c.MaxConnecting)
	}
	return o
}
