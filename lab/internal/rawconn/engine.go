// Package rawconn runs commands on a MongoDB server over plain TCP. Its framing is
// fakemongo/wire's: nothing of the product's wire protocol takes part, so that what it runs checks
// the product against something else. It knows neither logins nor TLS.
package rawconn

import (
	"net"
	"sync"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

// Engine runs commands on a server: it implements deployment.Engine. Each command has a connection
// for itself while it runs. Its methods may be called by several goroutines, also from a bubble of
// testing/synctest: reading from the server keeps the bubble's time from passing.
type Engine struct {
	address string

	// mu guards the fields below.
	mu   sync.Mutex
	idle []net.Conn
	last int32
}

// NewEngine returns an engine for the server at an address. It connects when it has to.
func NewEngine(address string) *Engine { return &Engine{address: address} }

// Run runs a command, and returns its reply. A connection that breaks is not used again.
func (e *Engine) Run(body bson.Raw, sequences map[string][]bson.Raw) (bson.Raw, error) {
	nc, id, err := e.take()
	if err != nil {
		return nil, err
	}
	reply, err := wire.RoundTrip(nc, wire.Msg(wire.Header{ID: id}, 0, body, sequences))
	if err != nil {
		_ = nc.Close() // it is broken
		return nil, err
	}
	e.mu.Lock()
	e.idle = append(e.idle, nc)
	e.mu.Unlock()
	return reply.Document()
}

func (e *Engine) take() (nc net.Conn, id int32, err error) {
	e.mu.Lock()
	e.last++
	id = e.last
	if n := len(e.idle); n > 0 {
		nc = e.idle[n-1]
		e.idle = e.idle[:n-1]
	}
	e.mu.Unlock()
	if nc == nil {
		nc, err = net.Dial("tcp", e.address)
	}
	return nc, id, err
}

// Close closes the idle connections.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, nc := range e.idle {
		_ = nc.Close() // nothing is under way on it
	}
	e.idle = nil
}
