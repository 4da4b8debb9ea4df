package pool

// ServiceID names one of the services behind a load balancer. Zero stands for none.
type ServiceID = [12]byte

// service is one thing that connections lead to: a service behind a load balancer, or the server itself.
type service struct {
	generation uint64
	conns      int // established ones, in load-balancer mode
}

// services is load-balancer mode's book of generations. They all come from one count, the pool's of all its clears, so
// a service never has a generation twice: not even when it was forgotten and came back. A connection is stale if its
// service was cleared since it was begun, whether or not it was known then where it would lead.
//
// A service is forgotten when it has no connections any more; but not as long as one is pending, which may turn out to
// lead there. So no pending connection was begun before a clear that is forgotten, and forgotten is at most the
// generation with which any of them was begun.
type services struct {
	known     map[ServiceID]*service
	idle      int    // of the known ones, without connections
	forgotten uint64 // at least the generation of each service that is not known
}

func (s *services) generation(id ServiceID) uint64 {
	if known := s.known[id]; known != nil {
		return known.generation
	}
	return s.forgotten
}

// clear gives a service a new generation, above all others.
func (s *services) clear(id ServiceID, generation uint64, pending bool) {
	switch known := s.known[id]; {
	case known != nil:
		known.generation = generation
	case pending:
		s.know(id).generation = generation
	default:
		s.forgotten = generation
	}
}

// join counts a connection that turned out to lead to a service, and says its generation. The connection was begun
// with the generation begun; if the service was cleared since, that remains its generation, and makes it stale.
func (s *services) join(id ServiceID, begun uint64) (to *service, generation uint64) {
	to = s.known[id]
	if to == nil {
		to = s.know(id)
	}
	if to.conns == 0 {
		s.idle--
	}
	to.conns++
	return to, min(begun, to.generation)
}

// leave counts a connection that is closed.
func (s *services) leave(from *service) {
	from.conns--
	if from.conns == 0 {
		s.idle++
	}
}

// know makes a service known that has no connections yet.
func (s *services) know(id ServiceID) *service {
	if s.known == nil {
		s.known = make(map[ServiceID]*service)
	}
	known := &service{generation: s.forgotten}
	s.known[id] = known
	s.idle++
	return known
}

// forget forgets the services without connections. No connection may be pending.
func (s *services) forget() {
	if s.idle == 0 {
		return
	}
	for id, known := range s.known {
		if known.conns == 0 {
			s.forgotten = max(s.forgotten, known.generation)
			delete(s.known, id)
		}
	}
	s.idle = 0
}
