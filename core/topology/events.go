package topology

import (
	"sync"

	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
)

// outbox holds events until they may be delivered: facts queue up in the order of the changes that they tell of, also
// under topology.mu, and are delivered one at a time, outside of it.
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

// add queues a fact; deliver must follow.
func (o *outbox) add(fact func(*event.Sink)) {
	if o.sink == nil {
		return
	}
	o.mu.Lock()
	o.queue = append(o.queue, fact)
	o.added++
	o.mu.Unlock()
}

// deliver hands over what is queued. If another goroutine is at it, it does the work: for those who need not know when.
// If the sink panics, what is left waits for the next.
func (o *outbox) deliver() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deliverLocked()
}

func (o *outbox) deliverLocked() {
	if o.delivering {
		return
	}
	o.delivering = true
	defer func() { o.delivering = false }()
	for len(o.queue) > 0 {
		fact := o.queue[0]
		o.queue[0] = nil
		o.queue = o.queue[1:]
		o.tellLocked(fact)
	}
}

// tellLocked hands over one fact. mu is released meanwhile; it is held again also when the sink panics.
func (o *outbox) tellLocked(fact func(*event.Sink)) {
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.delivered++
		o.progress.Broadcast()
	}()
	fact(o.sink)
}

// flush is deliver, and returns when everything that was queued before has been delivered. A sink must not call it.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for queued := o.added; o.delivered < queued; {
		if o.delivering {
			o.progress.Wait()
		} else { // nobody is, or whoever was has panicked
			o.deliverLocked()
		}
	}
}

// emit queues an event for whoever wants it.
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

// announceChange keeps the specification's order: servers that changed, that went, that came, and then all at once.
func (t *Topology) announceChange(previous, next description.Topology, changes []description.Change) {
	if t.outbox.sink == nil {
		return
	}
	for _, c := range changes {
		if c.Previous != nil && c.Current != nil && !c.Previous.Equal(c.Current) {
			emit(t.outbox, func(s *event.Sink) func(event.ServerDescriptionChanged) { return s.ServerDescriptionChanged },
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

// warnIfDeserted tells that nobody is left who could be asked, if that is so.
func (t *Topology) warnIfDeserted(topology description.Topology) {
	if why := topology.Deserted(); why != nil {
		emit(t.outbox, func(s *event.Sink) func(event.NoServers) { return s.NoServers },
			event.NoServers{TopologyID: t.id, Err: why})
	}
}

func (t *Topology) announceTopology(previous, next description.Topology) {
	emit(t.outbox, func(s *event.Sink) func(event.TopologyDescriptionChanged) { return s.TopologyDescriptionChanged },
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
