package topology

import (
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
)

// emit queues an event if the sink has a function for it.
func emit[E any](t *Topology, to func(*event.Sink) func(E), e E) {
	if t.cfg.Sink == nil {
		return
	}
	if tell := to(t.cfg.Sink); tell != nil {
		t.outbox.Add(func() { tell(e) })
	}
}

func (t *Topology) announceStart(first description.Topology) {
	emit(t, func(s *event.Sink) func(event.TopologyOpening) { return s.TopologyOpening },
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
	emit(t, func(s *event.Sink) func(event.TopologyClosed) { return s.TopologyClosed },
		event.TopologyClosed{TopologyID: t.id})
}

// announceChange queues events in the specification's order: servers that changed, servers that
// were removed, servers that were added, and then the topology.
func (t *Topology) announceChange(
	previous, next description.Topology, changes []description.Change,
) {
	if t.cfg.Sink == nil {
		return
	}
	for _, c := range changes {
		if c.Previous != nil && c.Current != nil && !c.Previous.Equal(c.Current) {
			emit(t,
				func(s *event.Sink) func(event.ServerDescriptionChanged) {
					return s.ServerDescriptionChanged
				},
				event.ServerDescriptionChanged{
					TopologyID: t.id, Address: c.Current.Address, Previous: c.Previous,
					New: c.Current,
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
		emit(t, func(s *event.Sink) func(event.NoServers) { return s.NoServers },
			event.NoServers{TopologyID: t.id, Err: why})
	}
}

func (t *Topology) announceTopology(previous, next description.Topology) {
	emit(t,
		func(s *event.Sink) func(event.TopologyDescriptionChanged) {
			return s.TopologyDescriptionChanged
		},
		event.TopologyDescriptionChanged{TopologyID: t.id, Previous: previous, New: next})
}

func (t *Topology) announceOpening(s *description.Server) {
	emit(t, func(s *event.Sink) func(event.ServerOpening) { return s.ServerOpening },
		event.ServerOpening{TopologyID: t.id, Address: s.Address})
}

func (t *Topology) announceClosed(s *description.Server) {
	emit(t, func(s *event.Sink) func(event.ServerClosed) { return s.ServerClosed },
		event.ServerClosed{TopologyID: t.id, Address: s.Address})
}
