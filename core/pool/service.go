package pool

import (
	"bytes"
	"slices"
)

// ServiceID names a service behind a load balancer. Zero stands for none.
type ServiceID = [12]byte

// ServiceStats describes one service that the pool's connections lead to.
type ServiceStats struct {
	Service     ServiceID
	Generation  uint64
	Connections int // established ones
}

// Services returns the services that connections lead to in load-balancer mode, sorted by ID; in
// the other mode, nil.
func (p *Pool[C]) Services() []ServiceStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []ServiceStats
	for id, s := range p.generations.services.known {
		all = append(all, ServiceStats{Service: id, Generation: s.generation, Connections: s.conns})
	}
	slices.SortFunc(all,
		func(a, b ServiceStats) int { return bytes.Compare(a.Service[:], b.Service[:]) })
	return all
}

// service holds the generation of what connections lead to: a service behind a load balancer, or
// the server itself.
type service struct {
	id         ServiceID
	generation uint64
	conns      int // established ones, in load-balancer mode

	// interrupted is the generation of the last interrupting clear: connections of older ones are
	// to be interrupted.
	interrupted uint64
}

// clear sets a new generation.
func (s *service) clear(generation uint64, interrupt bool) {
	s.generation = generation
	if interrupt {
		s.interrupted = generation
	}
}

// services holds the generations of load-balancer mode. They all come from one count, that of all
// clears of the pool, so a service never has a generation twice, even if it is forgotten and
// comes back.
//
// A connection is stale if its service was cleared after it was begun, although its service was
// not known then. If the service was unknown, or was forgotten since, the clear of any such
// service counts: closing one good connection is better than using a stale one.
type services struct {
	known map[ServiceID]*service // the services that connections lead to
	// forgotten is the generation of all others: at least as high as any of them ever had.
	forgotten uint64
}

func (s *services) generation(id ServiceID) uint64 {
	if known := s.known[id]; known != nil {
		return known.generation
	}
	return s.forgotten
}

// clear sets a new generation for a service, above all others.
func (s *services) clear(id ServiceID, generation uint64, interrupt bool) {
	if known := s.known[id]; known != nil {
		known.clear(generation, interrupt)
		return
	}
	s.forgotten = generation
}

// join counts a connection that leads to a service. It returns the connection's generation: the
// service's, or the one with which the connection was begun if that is higher.
func (s *services) join(id ServiceID, begun uint64) (to *service, generation uint64) {
	to = s.known[id]
	if to == nil {
		if s.known == nil {
			s.known = make(map[ServiceID]*service)
		}
		to = &service{id: id, generation: s.forgotten}
		s.known[id] = to
	}
	to.conns++
	return to, min(begun, to.generation)
}

// leave counts a connection as closed.
func (s *services) leave(from *service) {
	from.conns--
	if from.conns == 0 {
		s.forgotten = max(s.forgotten, from.generation)
		delete(s.known, from.id)
	}
}

// generations holds the generations of a pool's connections.
type generations struct {
	count    uint64  // how often the pool was cleared
	server   service // what all connections lead to, except in load-balancer mode
	services services
	// interrupt is the cause of an interrupting clear that is not carried out yet.
	interrupt error
}

// clear sets a new generation of a service, or of the server if id is zero.
func (g *generations) clear(id ServiceID, interrupt bool) {
	g.count++
	if id == (ServiceID{}) {
		g.server.clear(g.count, interrupt)
	} else {
		g.services.clear(id, g.count, interrupt)
	}
}
