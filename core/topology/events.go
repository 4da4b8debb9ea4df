package topology

import (
	"sync"

	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
)

// outbox queues events in the order of their changes, also under topology.mu, and delivers them
// one at a time, outside of it.
type outbox struct {
	sink *event.Sink

	// mu guards the fields below. Nothing is called while it is held.
	mu         sync.Mutex
	queue      []func(*event.Sink)
	delivering bool
	added      uint64     // facts, ever
	delivered  uint64     // of them
	progress   *sync.Cond // delivered has grown
}

func newOutbox(sink *event.Sink) *outbox {
	o := &outbox{sink: sink}
	o.progress = sync.NewCond(&o.mu)
	return o
}

// add queues an event. The caller calls deliver or flush afterwards.
func (o *outbox) add(fact func(*event.Sink)) {
	if o.sink == nil {
		return
	}
	o.mu.Lock()
	o.queue = append(o.queue, fact)
	o.added++
	o.mu.Unlock()
}

// deliver delivers the queued events. If another goroutine delivers already, it returns at once.
func (o *outbox) deliver() {
	for fact := o.next(false); fact != nil; fact = o.next(true) {
		fact(o.sink)
	}
}

// next takes the event that deliver delivers next, nil if there is none or another goroutine
// delivers. told says that the one before has been delivered.
func (o *outbox) next(told bool) (fact func(*event.Sink)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if told {
		o.delivering = false
		o.delivered++
		o.progress.Broadcast()
	}
	if o.delivering || len(o.queue) == 0 {
		return nil
	}
	o.delivering = true
	fact, o.queue[0] = o.queue[0], nil
	o.queue = o.queue[1:]
	return fact
}

// flush delivers the queued events and blocks until all events that were queued before the call
// are delivered. A sink must not call it.
func (o *outbox) flush() {
	o.mu.Lock()
	queued := o.added
	o.mu.Unlock()
	o.deliver()
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.delivered < queued {
		o.progress.Wait() // for the goroutine that delivers
	}
}

// emit queues an event if the sink has a function for it.
func emit[E any](o *outbox, to func(*event.Sink) func(E), e E) {
	if o.sink == nil || to(o.sink) == nil {
		return
	}
	o.add(func(s *event.Sink) { to(s)(e) })
}

func (t *Topology) announceStart(first description.Topology) {
	emit(t.outbox, func(s *event.Sink) func(event.TopologyOpening) { return s.TopologyOpening },
		event.TopologyOpening{TopologyID: t.id})
	t.announceTopology(description.Topology{}, first)
	for _, s := range first.Servers {
		t.announceOpening(s)
	}
}

func (t *Topology) announceEnd(last description.Topology) {
	for _, s := range last.Servers {
		t.announceClosed(s)
	}
	t.announceTopology(last, last.WithoutServers())
	emit(t.outbox, func(s *event.Sink) func(event.TopologyClosed) { return s.TopologyClosed },
		event.TopologyClosed{TopologyID: t.id})
}

// announceChange queues events in the specification's order: servers that changed, servers that
// were removed, servers that were added, and then the topology.
func (t *Topology) announceChange(
	previous, next description.Topology, changes []description.Change,
) {
	if t.outbox.sink == nil {
		return
	}
	for _, c := range changes {
		if c.Previous != nil && c.Current != nil && !c.Previous.Equal(c.Current) {
			emit(t.outbox,
				func(s *event.Sink) func(event.ServerDescriptionChanged) { return s.ServerDescriptionChanged },
				event.ServerDescriptionChanged{
					TopologyID: t.id, Address: c.Current.Address, Previous: c.Previous, New: c.Current,
				})
		}
	}
	for _, c := range changes {
		if c.Current == nil {
			t.announceClosed(c.Previous)
		}
	}
	for _, c := range changes {
		if c.Previous == nil {
			t.announceOpening(c.Current)
		}
	}
	if !previous.Equal(next) {
		t.announceTopology(previous, next)
	}
}

// warnIfDeserted queues an event if no server is left.
func (t *Topology) warnIfDeserted(topology description.Topology) {
	if why := topology.Deserted(); why != nil {
		emit(t.outbox, func(s *event.Sink) func(event.NoServers) { return s.NoServers },
			event.NoServers{TopologyID: t.id, Err: why})
	}
}

func (t *Topology) announceTopology(previous, next description.Topology) {
	emit(t.outbox,
		func(s *event.Sink) func(event.TopologyDescriptionChanged) { return s.TopologyDescriptionChanged },
		event.TopologyDescriptionChanged{TopologyID: t.id, Previous: previous, New: next})
}

func (t *Topology) announceOpening(s *description.Server) {
	emit(t.outbox, func(s *event.Sink) func(event.ServerOpening) { return s.ServerOpening },
		event.ServerOpening{TopologyID: t.id, Address: s.Address})
}

func (t *Topology) announceClosed(s *description.Server) {
	emit(t.outbox, func(s *event.Sink) func(event.ServerClosed) { return s.ServerClosed },
		event.ServerClosed{TopologyID: t.id, Address: s.Address})
}
