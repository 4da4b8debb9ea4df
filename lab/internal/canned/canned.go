// Package canned is a MongoDB server that answers from what it has prepared: fast enough to
// measure a gateway with, and exact about what it counts (connections, cursors opened, killed and
// still open). It stores nothing, reads no filter and knows no authentication.
//
// The name of a collection says what is in it:
//
//	orders_N         N documents of about 500 bytes with the types that a shop has
//	mixed_N          N documents of about 1 KB, 60 fields of all common types
//	docs_N_SIZE      N documents of exactly SIZE bytes
//	mix_N_SIZE_SIZE… N documents of these sizes, in turn
//	control_N_SIZE   as docs_N_SIZE, with texts of control characters
//	slow_MS          empty, and answers every command only after MS milliseconds
//	late_N_MS        N small documents; every answer, getMore's too, comes after MS milliseconds
//
// The _id of document i is the int32 i, from 0; filter, sort and projection are ignored, limit,
// batchSize and singleBatch are not. insert, update, delete and the like answer that they did
// what they were asked.
package canned

import (
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
)

// Stats holds the counts of a Server.
type Stats struct {
	Connections   int64 // open now
	Connected     int64 // accepted since the start
	Commands      int64 // without hello
	CursorsOpen   int64 // open now
	CursorsOpened int64
	CursorsKilled int64 // by killCursors
	GetMores      int64
	Delayed       int64 // commands that have come to a slow collection, without getMores
}

// Server listens on one address. Create it with Listen.
type Server struct {
	*fakemongo.Server
	done chan struct{} // closed by Close

	sharded atomic.Bool

	commands, opened, killed, getMores, delayed atomic.Int64

	sources sync.Map // of string to func() (source, error): the collections that were read
	batches sync.Map // of the large first batches: see firstBatch

	// mu guards the fields below. Nothing blocks while it is held.
	mu         sync.Mutex
	cursors    map[int64]*cursorState
	lastCursor int64
}

// cursorState holds an open cursor: the part of its collection that was not sent yet.
type cursorState struct {
	source  source
	next    int
	end     int
	nsField []byte // the element ns
	inUse   bool   // by a getMore; under Server.mu
}

// Listen begins to serve on addr: host:port ("127.0.0.1:0" lets the kernel choose the port), or the
// path of a Unix domain socket.
func Listen(addr string) (*Server, error) {
	s := &Server{
		done: make(chan struct{}), cursors: map[int64]*cursorState{}, lastCursor: 1000,
	}
	var err error
	s.Server, err = fakemongo.ListenPrepared(addr, s.answer)
	return s, err
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return string(s.Address()) }

// URI returns the connection string of the server.
func (s *Server) URI() string { return "mongodb://" + url.QueryEscape(s.Addr()) + "/" }

// Stats gives the counts of this moment.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Connections:   int64(s.OpenConnections()),
		Connected:     int64(s.AcceptedConnections()),
		Commands:      s.commands.Load(),
		CursorsOpen:   int64(len(s.cursors)),
		CursorsOpened: s.opened.Load(),
		CursorsKilled: s.killed.Load(),
		GetMores:      s.getMores.Load(),
		Delayed:       s.delayed.Load(),
	}
}

// Close stops to listen, cuts every connection and waits until nothing of the server runs. It is
// called once.
func (s *Server) Close() error {
	close(s.done)
	s.Server.Close()
	return nil
}

// SetSharded makes the server a mongos, which has transactions, or a standalone server again, for
// connections that are opened from now on.
func (s *Server) SetSharded(on bool) { s.sharded.Store(on) }

// wait blocks as long as a slow collection takes.
func (s *Server) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.done:
	}
}

// open keeps a cursor and gives its id.
func (s *Server) open(c *cursorState) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastCursor++
	s.cursors[s.lastCursor] = c
	s.opened.Add(1)
	return s.lastCursor
}

// use gives an open cursor for a getMore. One cursor has one getMore at a time; killCursors may
// come in between, and then the cursor is gone when the getMore ends, as on a real server.
func (s *Server) use(id int64) (*cursorState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.cursors[id]
	if !ok || c.inUse {
		return nil, false
	}
	c.inUse = true
	return c, true
}

// release ends a getMore and gives the cursor's id for its reply: 0 if it is exhausted or was
// killed.
func (s *Server) release(id int64, c *cursorState) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.inUse = false
	if c.next == c.end {
		delete(s.cursors, id)
	}
	if _, ok := s.cursors[id]; !ok {
		return 0
	}
	return id
}

// kill closes an open cursor.
func (s *Server) kill(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.cursors[id]
	delete(s.cursors, id)
	return ok
}
