package paging_test

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/service/paging"
)

// server holds cursors: documents {i: n} of a given size, in batches.
type server struct {
	mu      sync.Mutex
	open    map[int64]*state
	opened  int64
	killed  int
	fetched int
	fragile int                             // fetches that would end with their caller
	next    func(ctx context.Context) error // runs before each getMore
	sizes   []int32

	after func() error // runs after each, whose reply an error loses

	bad map[int]bool // documents with a text that is not UTF-8

	buffer   int           // of each batch
	slowKill time.Duration // that killing takes

	killedPinned chan struct{} // closed when a pinned cursor is killed; may be nil
}

type state struct{ at, total, batch, size int }

func newServer() *server { return &server{open: map[int64]*state{}} }

func (s *server) find(total, batch, size int) *fakeCursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	id := s.opened
	st := &state{total: total, batch: batch, size: size}
	first := s.take(id, st)
	if st.at < total {
		s.open[id] = st
	}
	c := &fakeCursor{s: s, first: &first}
	c.state = cursor.State{Server: "db:27017", ID: id, Database: "shop", Collection: "orders"}
	if st.at >= total {
		c.state.ID = 0
	}
	return c
}

// findPinned opens a cursor that holds a connection.
func (s *server) findPinned(total, batch int) *fakeCursor {
	c := s.find(total, batch, 0)
	c.pinned = c.state.ID != 0
	return c
}

func (s *server) take(id int64, st *state) cursor.Batch {
	b := cursor.Batch{Buffer: s.buffer}
	for ; st.at < st.total && len(b.Documents) < st.batch; st.at++ {
		doc := bson.NewBuilder(nil).Int32("i", int32(st.at)).
			Binary("pad", 0, make([]byte, st.size)).Finish()
		if s.bad[st.at] {
			doc = bson.NewBuilder(nil).Int32("i", int32(st.at)).String("text", "caf\xe9").Finish()
		}
		b.Documents = append(b.Documents, doc)
		b.Bytes += len(doc)
	}
	if st.at == st.total {
		delete(s.open, id)
	}
	return b
}

// lend puts a batch into lent memory, if it has the size for it.
func lend(b cursor.Batch) cursor.Batch {
	b.Lent = buffer.Get(b.Bytes)
	if b.Lent == nil {
		return b
	}
	docs, room := b.Lent.Documents(len(b.Documents)), b.Lent.Bytes()
	for i, doc := range b.Documents {
		n := copy(room, doc)
		docs[i], room = room[:n:n], room[n:]
	}
	b.Documents = docs
	return b
}

func (s *server) count() (open, killed, fetched int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), s.killed, s.fetched
}

func (s *server) resume(st cursor.State) paging.Cursor { return s.resumed(st) }

func (s *server) resumed(st cursor.State) *fakeCursor { return &fakeCursor{s: s, state: st} }

type fakeCursor struct {
	s     *server
	state cursor.State
	first *cursor.Batch
	runOn bool

	pinned bool
	gone   func() bool // its process has ended: nothing that it does has an effect; nil: it has not
}

func (c *fakeCursor) NextLent(ctx context.Context) (cursor.Batch, error) {
	if c.first != nil {
		b := *c.first
		c.first = nil
		return lend(b), nil
	}
	if c.state.ID == 0 {
		return cursor.Batch{}, io.EOF
	}
	if c.s.next != nil {
		if err := c.s.next(ctx); err != nil {
			return cursor.Batch{}, err
		}
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.fetched++
	if !c.runOn {
		c.s.fragile++
	}
	st := c.s.open[c.state.ID]
	if st == nil {
		c.state.ID = 0
		return cursor.Batch{}, &mongoerr.CommandError{Code: 43, Name: "CursorNotFound"}
	}
	c.s.sizes = append(c.s.sizes, c.state.BatchSize)
	if c.state.BatchSize > 0 {
		st.batch = int(c.state.BatchSize)
	}
	b := c.s.take(c.state.ID, st)
	if st.at == st.total {
		c.state.ID = 0
	}
	if c.s.after != nil {
		if err := c.s.after(); err != nil {
			return cursor.Batch{}, err
		}
	}
	return lend(b), nil
}

func (c *fakeCursor) Done() bool                  { return c.first == nil && c.state.ID == 0 }
func (c *fakeCursor) State() cursor.State         { return c.state }
func (c *fakeCursor) Server() address.Address     { return c.state.Server }
func (c *fakeCursor) Kept() int                   { return len(c.state.Comment.Data) }
func (c *fakeCursor) SetBatchSize(n int32)        { c.state.BatchSize = n }
func (c *fakeCursor) SetMaxAwaitTimeMS(ms *int64) { c.state.MaxAwaitTimeMS = ms }
func (c *fakeCursor) Pinned() bool                { return c.pinned && c.state.ID != 0 }
func (c *fakeCursor) SetRunOn(on bool)            { c.runOn = on }
func (c *fakeCursor) Close(context.Context) error {
	time.Sleep(c.s.slowKill) //nolint:forbidigo // fake time
	if c.gone != nil && c.gone() {
		return nil
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.state.ID != 0 {
		delete(c.s.open, c.state.ID)
		c.state.ID = 0
		c.s.killed++
		if c.pinned && c.s.killedPinned != nil {
			close(c.s.killedPinned)
			c.s.killedPinned = nil
		}
	}
	return nil
}
