package fakemongo

import (
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

const defaultBatch = 101

// cursor holds the rest of a result.
type cursor struct {
	namespace string
	rest      []bson.Raw
}

// SetDocuments makes docs the contents of a collection, "database.collection".
func (s *Server) SetDocuments(namespace string, docs ...bson.Raw) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collections[namespace] = docs
}

// Documents returns the contents of a collection.
func (s *Server) Documents(namespace string) []bson.Raw {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]bson.Raw(nil), s.collections[namespace]...)
}

// OpenCursors counts the cursors that are neither exhausted nor killed.
func (s *Server) OpenCursors() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.cursors)
}

// KilledCursors counts the open cursors that killCursors ended.
func (s *Server) KilledCursors() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killed
}

// Default returns the answer to a command for which there is no handler. Handlers may call it.
func (s *Server) Default(cmd *Command) Reply {
	h, ok := map[string]func(*Server, *Command) Reply{
		"hello": (*Server).hello, "isMaster": (*Server).hello, "ismaster": (*Server).hello,
		"ping": (*Server).ok, "endSessions": (*Server).ok,
		"find": (*Server).find, "aggregate": (*Server).find, "getMore": (*Server).getMore,
		"killCursors": (*Server).killCursors, "insert": (*Server).insert,
	}[cmd.Name]
	if !ok {
		return Error(59, "CommandNotFound", "no such command: '"+cmd.Name+"'")
	}
	return h(s, cmd)
}

// Hello returns the reply of a standalone server; add may append more elements before ok.
func Hello(cmd *Command, add func(*bson.Builder)) Reply {
	primary := "isWritablePrimary"
	if cmd.Name != "hello" {
		primary = "ismaster"
	}
	return OK(func(b *bson.Builder) {
		b.Bool("helloOk", true).Bool(primary, true)
		b.Int32("maxBsonObjectSize", 16<<20).Int32("maxMessageSizeBytes",
			wire.MaxMessage).Int32("maxWriteBatchSize", 100_000)
		b.Int32("logicalSessionTimeoutMinutes", 30).Int32("connectionId", int32(cmd.Connection))
		b.Int32("minWireVersion", 0).Int32("maxWireVersion", 21).Bool("readOnly", false)
		if add != nil {
			add(b)
		}
	})
}

func (s *Server) hello(cmd *Command) Reply { return Hello(cmd, nil) }

func (s *Server) ok(*Command) Reply { return OK(nil) }

func (s *Server) find(cmd *Command) Reply {
	name, _ := field(cmd.Body, cmd.Name).Str()
	namespace := cmd.Database + "." + name
	batch := field(cmd.Body, "batchSize")
	if options, ok := field(cmd.Body, "cursor").Document(); ok { // aggregate
		batch = field(options, "batchSize")
	}
	size, given := batch.AsInt64()
	if !given {
		size = defaultBatch
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	docs := s.collections[namespace]
	if limit, ok := field(cmd.Body, "limit").AsInt64(); ok && limit > 0 &&
		limit < int64(len(docs)) {
		docs = docs[:limit]
	}
	c := &cursor{namespace, docs}
	first := c.take(size)
	single, _ := field(cmd.Body, "singleBatch").Bool()
	var id int64
	if !single && len(c.rest) > 0 {
		s.lastCursor++
		id = s.lastCursor
		s.cursors[id] = c
	}
	return cursorReply(id, namespace, "firstBatch", first)
}

func (s *Server) getMore(cmd *Command) Reply {
	id, _ := field(cmd.Body, "getMore").AsInt64()
	size, given := field(cmd.Body, "batchSize").AsInt64()
	if !given || size == 0 {
		size = 1 << 40
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.cursors[id]
	if !ok {
		return Error(43, "CursorNotFound", "cursor id not found")
	}
	batch := c.take(size)
	if len(c.rest) == 0 {
		delete(s.cursors, id)
		id = 0
	}
	return cursorReply(id, c.namespace, "nextBatch", batch)
}

func (s *Server) killCursors(cmd *Command) Reply {
	ids, _ := field(cmd.Body, "cursors").Array()
	var killed, unknown []int64
	s.mu.Lock()
	for _, v := range ids.All() {
		id, _ := v.AsInt64()
		if _, ok := s.cursors[id]; ok {
			delete(s.cursors, id)
			killed = append(killed, id)
		} else {
			unknown = append(unknown, id)
		}
	}
	s.killed += len(killed)
	s.mu.Unlock()
	return OK(func(b *bson.Builder) {
		for name, ids := range map[string][]int64{
			"cursorsKilled":   killed,
			"cursorsNotFound": unknown,
		} {
			b.OpenArray(name)
			for _, id := range ids {
				b.Int64("", id)
			}
			b.Close()
		}
	})
}

func (s *Server) insert(cmd *Command) Reply {
	name, _ := field(cmd.Body, "insert").Str()
	docs := cmd.Documents("documents")
	if !s.discard {
		s.mu.Lock()
		s.collections[cmd.Database+"."+name] = append(s.collections[cmd.Database+"."+name], docs...)
		s.mu.Unlock()
	}
	return OK(func(b *bson.Builder) { b.Int32("n", int32(len(docs))) })
}

// CursorReply answers with a cursor document; batch is "firstBatch" or "nextBatch".
func CursorReply(id int64, namespace, batch string, docs ...bson.Raw) Reply {
	return cursorReply(id, namespace, batch, docs)
}

func cursorReply(id int64, namespace, batch string, docs []bson.Raw) Reply {
	return OK(func(b *bson.Builder) {
		b.OpenDocument("cursor").OpenArray(batch)
		for _, doc := range docs {
			b.Document("", doc)
		}
		b.Close().Int64("id", id).String("ns", namespace).Close()
	})
}

// take takes up to n documents, and no more than fit into a reply.
func (c *cursor) take(n int64) []bson.Raw {
	size, i := 0, 0
	for ; i < len(c.rest) && int64(i) < n; i++ {
		size += len(c.rest[i]) + 16
		if size > 16<<20 && i > 0 {
			break
		}
	}
	batch := c.rest[:i:i]
	c.rest = c.rest[i:]
	return batch
}

func field(d bson.Raw, path ...string) bson.Value {
	v, _ := d.Lookup(path...)
	return v
}
