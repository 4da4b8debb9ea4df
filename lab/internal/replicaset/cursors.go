package replicaset

import (
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// firstCursor is beyond the ids of the backend's cursors.
const firstCursor = 1 << 40

// cursorLife is how long a change stream may be idle.
const cursorLife = 10 * time.Minute

// cursor holds a cursor that is not only the backend's: of a change stream, or on a copy.
type cursor struct {
	stream *stream // nil: the backend has the cursor
	place  place   // where that reads
	own    bool    // the copy ends with the cursor
}

// getMore continues a cursor.
func (s *Server) getMore(cmd *fakemongo.Command) (bson.Raw, error) {
	id := integer(cmd.Body, "getMore")
	s.mu.Lock()
	c := s.cursors[id]
	s.mu.Unlock()
	switch {
	case c == nil && id > firstCursor:
		return nil, failure.CursorNotFound.Errorf("cursor id %d not found", id)
	case c == nil:
		return s.read(cmd)
	case c.stream != nil:
		return s.moreEvents(cmd, id, c.stream)
	}
	reply, err := s.pass(c.place.moved(cmd), cmd.Sequences)
	if integer(reply, "cursor", "id") == 0 {
		s.closeCursor(id)
	}
	return c.place.told(reply), err
}

// closeCursor forgets a cursor that is over.
func (s *Server) closeCursor(id int64) {
	s.mu.Lock()
	c := s.cursors[id]
	delete(s.cursors, id)
	s.mu.Unlock()
	if c != nil && c.own {
		s.dropCopy(c.place)
	}
}

// killCursors ends cursors: change streams here, the others at the backend.
func (s *Server) killCursors(cmd *fakemongo.Command) (bson.Raw, error) {
	ids, _ := field(cmd.Body, "cursors").Array()
	killed := bson.NewBuilder(nil).OpenArray("")
	others := bson.NewBuilder(nil).OpenArray("")
	n := 0
	for _, v := range ids.All() {
		id, _ := v.AsInt64()
		s.mu.Lock()
		c := s.cursors[id]
		s.mu.Unlock()
		s.closeCursor(id)
		if c != nil && c.stream != nil {
			killed.Int64("", id)
			continue
		}
		others.Int64("", id)
		n++
	}
	if n > 0 {
		return s.pass(bson.With(cmd.Body, "cursors", field(others.Close().Finish(), "")),
			cmd.Sequences)
	}
	return okay(func(b *bson.Builder) {
		b.Value("cursorsKilled", field(killed.Close().Finish(), ""))
		for _, name := range []string{"cursorsNotFound", "cursorsAlive", "cursorsUnknown"} {
			b.OpenArray(name).Close()
		}
	}), nil
}

// addStream keeps a change stream, and forgets those that are idle for long.
func (s *Server) addStream(st *stream) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.cursors {
		if c.stream != nil && time.Since(c.stream.used) > cursorLife {
			delete(s.cursors, id)
		}
	}
	s.lastCursor++
	st.used = time.Now()
	s.cursors[s.lastCursor] = &cursor{stream: st}
	return s.lastCursor
}

// useStream notes that a change stream is used.
func (s *Server) useStream(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.used = time.Now()
}
