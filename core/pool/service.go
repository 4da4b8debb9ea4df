package pool

import (
	"bytes"
	"slices"
)

// ServiceID names one of the services behind a load balancer. Zero stands for none.
type ServiceID = [12]byte

// ServiceStats is one of the services that a pool's connections lead to.
type ServiceStats struct {
	Service     ServiceID
	Generation  uint64
	Connections int // established ones
}

// Services are those that connections lead to in load-balancer mode, by ID; in the other, nil.
func (p *Pool[C]) Services() []ServiceStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []ServiceStats
	for id, s := range p.services.known {
		all = append(all, ServiceStats{Service: id, Generation: s.generation, Connections: s.conns})
	}
	slices.SortFunc(all, func(a, b ServiceStats) int { return bytes.Compare(a.Service[:], b.Service[:]) })
	return all
}

// service is one thing that connections lead to: a service behind a load balancer, or the server itself.
type service struct {
	id         ServiceID
	generation uint64
	conns      int // established ones, in load-balancer mode

	interrupted uint64 // the generation since the last interrupting clear: connections of older ones are to be interrupted
}

// clear gives what connections lead to a new generation.
func (s *service) clear(generation uint64, interrupt bool) {
	s.generation = generation
	if interrupt {
		s.interrupted = generation
	}
}

// services is load-balancer mode's book of generations. They all come from one count, the pool's of all its clears, so
// a service never has a generation twice: not even when it was forgotten, as nothing led to it any more, and came back.
//
// A connection is stale if its service was cleared since it was begun, though it was not known then where it would lead.
// If the service was not known then, or was forgotten since, the clear of any such service counts: better one
// connection too many than one that is not as good as it looks.
type services struct {
	known     map[ServiceID]*service // those that connections lead to
	forgotten uint64                 // the generation of all others: at least any that one of them ever had
}

func (s *services) generation(id ServiceID) uint64 {
	if known := s.known[id]; known != nil {
		return known.generation
	}
	return s.forgotten
}

// clear gives a service a new generation, above all others.
func (s *services) clear(id ServiceID, generation uint64, interrupt bool) {
	if known := s.known[id]; known != nil {
		known.clear(generation, interrupt)
		return
	}
	s.forgotten = generation
}

// join counts a connection that turned out to lead to a service, and says its generation: the service's, or, if that
// is newer, the one with which the connection was begun.
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

// leave counts a connection that is closed.
func (s *services) leave(from *service) {
	from.conns--
	if from.conns == 0 {
		s.forgotten = max(s.forgotten, from.generation)
		delete(s.known, from.id)
	}
}
