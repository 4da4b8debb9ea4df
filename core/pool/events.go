package pool

import (
	"slices"
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
	held factKind = iota // no event: what follows waits for Deliver
	poolCreated
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
		held:              true,
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
	p.events = append(p.events, f)
}

// holdLocked holds back what is queued from now on until Deliver.
func (p *Pool[C]) holdLocked() {
	if p.wants(held) {
		p.emitLocked(fact{kind: held})
		p.holds++
	}
}

// Deliver follows each Ready and each Clear that returned true, once and without locks: it lets go of what they held
// back, and hands it to the sink. By then the caller has told the sink what he made the pool ready or cleared it for,
// so that nobody hears of the consequence first. Holds that came later stay.
func (p *Pool[C]) Deliver() {
	p.mu.Lock()
	if p.holds > 0 {
		// The owners' changes are in the order of their calls, so it is right to let go of the first, whosoever it is.
		i := firstHold(p.events)
		p.events = slices.Delete(p.events, i, i+1)
		p.holds--
	}
	p.mu.Unlock()
	p.flush()
}

func firstHold(events []fact) int {
	return slices.IndexFunc(events, func(f fact) bool { return f.kind == held })
}

// unlock releases mu, wakes those up who were given a connection under it, tears down the connections that were closed,
// and delivers what was queued.
func (p *Pool[C]) unlock(doomed []*Conn[C]) {
	queued, handed := len(p.events) > 0, p.handed
	p.handed = queue[C]{}
	p.mu.Unlock()
	for w := handed.pop(); w != nil; w = handed.pop() {
		w.served <- struct{}{}
	}
	if queued || len(doomed) > 0 {
		p.unlocked(doomed, queued)
	}
}

func (p *Pool[C]) unlocked(doomed []*Conn[C], queued bool) {
	for _, c := range doomed {
		_ = c.resource.Close() // nobody could do anything about an error
	}
	if len(doomed) > 0 && p.cfg.MinSize > 0 {
		p.nudge()
	}
	if queued {
		p.flush()
	}
}

// flush hands the queued events to the sink, in order, up to the first hold. When it returns, those that were queued
// before it was called have been delivered, here or by another goroutine; those behind a hold wait for Deliver.
func (p *Pool[C]) flush() {
	if p.wanted == 0 {
		return
	}
	p.outbox.Lock()
	defer p.outbox.Unlock()
	batch := p.takeEvents()
	if batch == nil {
		return
	}
	for i := range batch {
		p.deliver(&batch[i])
	}
	clear(batch)
	p.spare = batch[:0]
}

// takeEvents takes those before the first hold. outbox is held.
func (p *Pool[C]) takeEvents() []fact {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.events)
	if p.holds > 0 {
		n = firstHold(p.events)
	}
	if n == 0 {
		return nil
	}
	batch, rest := p.events[:n], p.events[n:]
	p.events = append(p.spare[:0], rest...)
	p.spare = nil
	clear(rest)
	return batch
}

func (p *Pool[C]) deliver(f *fact) {
	s, addr := p.cfg.Sink, p.cfg.Address
	switch f.kind {
	case held:
		panic("bug: a hold is delivered")
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
