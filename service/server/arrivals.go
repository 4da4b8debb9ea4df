package server

import (
	"net/netip"
	"sync"
)

// arrivals holds the connections that are accepted, and wait to be served. The turn goes round
// between addresses: no client waits for another one's that opens many. It is safe for concurrent
// use.
type arrivals struct {
	// arrived gets a value when a connection is added; capacity 1.
	arrived chan struct{}

	mu    sync.Mutex // guards what follows; nothing blocks while it is held
	lines map[netip.Addr][]*client
	turns []netip.Addr // of the lines
}

func newArrivals() arrivals {
	return arrivals{arrived: make(chan struct{}, 1), lines: map[netip.Addr][]*client{}}
}

// add adds a connection that counts for an address.
func (a *arrivals) add(from netip.Addr, c *client) {
	a.mu.Lock()
	line := a.lines[from]
	if len(line) == 0 {
		a.turns = append(a.turns, from)
	}
	a.lines[from] = append(line, c)
	a.mu.Unlock()
	select {
	case a.arrived <- struct{}{}:
	default:
	}
}

// next removes the next connection that is not closed, nil if there is none, and passes the turn
// on.
func (a *arrivals) next() *client {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.turns) > 0 {
		from := a.turns[0]
		line := a.lines[from]
		c := line[0]
		line[0] = nil
		a.turns = a.turns[1:]
		if len(line) > 1 {
			a.lines[from] = line[1:]
			a.turns = append(a.turns, from)
		} else {
			delete(a.lines, from)
		}
		if !c.closed.Load() {
			return c
		}
	}
	return nil
}
