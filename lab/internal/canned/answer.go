package canned

import (
	"encoding/binary"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

// defaultBatchSize is what a server sends first when the client asks for no batch size.
const defaultBatchSize = 101

const (
	// maxReply is how many bytes of documents one reply holds at most, beside one.
	maxReply = 16 << 20
	// largeBatch is the size of the smallest first batch that is kept.
	largeBatch = 64 << 10
)

// request holds one command: its body, and how many documents its sequences hold.
type request struct {
	body      bsoncore.Document
	sequences int
	large     *fakemongo.Inserted // into the reply
}

// parse reads a command. The documents of its sequences are counted only.
func parse(m wire.Message, large *fakemongo.Inserted) (request, error) {
	req := request{large: large}
	if m.Header().OpCode == wire.OpQuery { // only the first hello may come so
		_, body, err := m.Query()
		req.body = bsoncore.Document(body)
		return req, err
	}
	for section, err := range m.Sections() {
		switch {
		case err != nil:
			return req, err
		case section.Body:
			req.body = section.Documents
			continue
		}
		for _, err := range wire.Documents(section.Documents) {
			if err != nil {
				return req, err
			}
			req.sequences++
		}
	}
	return req, nil
}

// answer appends the reply to one message.
func (s *Server) answer(
	dst []byte, m wire.Message, large *fakemongo.Inserted,
) ([]byte, error) {
	req, err := parse(m, large)
	if err != nil {
		return nil, err
	}
	return s.run(dst, req), nil
}

// run appends the reply to one command.
func (s *Server) run(dst []byte, req request) []byte {
	first, err := req.body.IndexErr(0)
	if err != nil {
		return appendError(dst, 59, "CommandNotFound", "empty command")
	}
	name := first.Key()
	if name == "hello" || name == "isMaster" || name == "ismaster" {
		return append(dst, s.hello()...)
	}
	s.commands.Add(1)
	if name == "getMore" {
		return s.getMore(dst, req)
	}

	var src source
	if collection, ok := first.Value().StringValueOK(); ok && name != "killCursors" {
		if src, err = s.source(collection); err != nil {
			return appendError(dst, 26, "NamespaceNotFound", err.Error())
		}
		if src.delay > 0 {
			s.delayed.Add(1)
			s.wait(src.delay)
		}
	}
	switch name {
	case "find":
		return s.find(dst, req, src, req.body)
	case "aggregate":
		cursor, _ := req.body.Lookup("cursor").DocumentOK()
		return s.find(dst, req, src, cursor)
	case "killCursors":
		return s.killCursors(dst, req)
	case "insert", "delete":
		return appendOK(dst, "n", int32(req.statements(name)))
	case "update":
		n := int32(req.statements(name))
		return append(dst, bsoncore.NewDocumentBuilder().
			AppendInt32("n", n).AppendInt32("nModified", n).AppendDouble("ok", 1).Build()...)
	case "count":
		return appendOK(dst, "n", int32(src.count))
	case "ping", "endSessions", "buildInfo", "buildinfo", "commitTransaction", "abortTransaction":
		return appendOK(dst, "n", 0)
	}
	return appendError(dst, 59, "CommandNotFound", "no such command: '"+name+"'")
}

// source returns the documents of a collection. It makes those of each name once, also for commands
// that come at the same time: a new template costs more than the rest of the answer.
func (s *Server) source(collection string) (source, error) {
	known, ok := s.sources.Load(collection)
	if !ok {
		known, _ = s.sources.LoadOrStore(collection, sync.OnceValues(func() (source, error) {
			return parseCollection(collection)
		}))
	}
	return known.(func() (source, error))()
}

// statements counts what a write command has, in its sequences or in its body.
func (r request) statements(command string) int {
	field := map[string]string{
		"insert": "documents", "update": "updates",
		"delete": "deletes",
	}[command]
	array, ok := r.body.Lookup(field).ArrayOK()
	if !ok {
		return r.sequences
	}
	values, _ := array.Values()
	return len(values)
}

func (s *Server) find(dst []byte, req request, src source, options bsoncore.Document) []byte {
	end := src.count
	if n, ok := req.body.Lookup("limit").AsInt64OK(); ok && n > 0 {
		end = min(end, int(n))
	}
	size := defaultBatchSize
	if n, ok := options.Lookup("batchSize").AsInt64OK(); ok && n >= 0 {
		size = int(n)
	}
	single, _ := req.body.Lookup("singleBatch").BooleanOK()
	c := &cursorState{source: src, end: end, nsField: namespaceField(req)}

	return s.batch(dst, req, "firstBatch", c, size, func() int64 {
		if single || c.next == c.end {
			return 0
		}
		return s.open(c)
	})
}

func (s *Server) getMore(dst []byte, req request) []byte {
	s.getMores.Add(1)
	id := req.body.Index(0).Value().Int64()
	c, ok := s.use(id)
	if !ok {
		return appendError(dst, 43, "CursorNotFound", "no such cursor")
	}
	size := c.end
	if n, ok := req.body.Lookup("batchSize").AsInt64OK(); ok && n > 0 {
		size = int(n)
	}
	if c.source.delay > 0 {
		s.wait(c.source.delay)
	}
	return s.batch(dst, req, "nextBatch", c, size, func() int64 { return s.release(id, c) })
}

// batch appends a reply with the next documents of a cursor. keep is called when they are taken,
// and gives the cursor's id for the reply.
func (s *Server) batch(
	dst []byte, req request, field string, c *cursorState, size int, keep func() int64,
) []byte {
	reply, dst := bsoncore.AppendDocumentStart(dst)
	cursor, dst := bsoncore.AppendDocumentElementStart(dst, "cursor")
	array, dst := bsoncore.AppendArrayElementStart(dst, field)
	n, bytes := c.source.fit(c.next, min(size, c.end-c.next))
	if c.next == 0 && bytes >= largeBatch {
		req.large.Insert(len(dst), s.firstBatch(c.source, n))
	} else {
		dst = c.source.appendBatch(dst, c.next, n)
	}
	c.next += n
	dst, _ = bsoncore.AppendArrayEnd(dst, array)
	dst = bsoncore.AppendInt64Element(dst, "id", keep())
	dst = append(dst, c.nsField...)
	dst, _ = bsoncore.AppendDocumentEnd(dst, cursor)
	dst = bsoncore.AppendDoubleElement(dst, "ok", 1)
	dst, _ = bsoncore.AppendDocumentEnd(dst, reply)
	for _, start := range []int32{reply, cursor, array} {
		length := binary.LittleEndian.Uint32(dst[start:])
		binary.LittleEndian.PutUint32(dst[start:], length+uint32(req.large.Size()))
	}
	return dst
}

// firstBatch returns the elements of an array with the first documents of a collection. It makes
// each batch once: many at a time would take more memory and time than all the rest.
func (s *Server) firstBatch(src source, n int) []byte {
	type key struct {
		template *byte
		n        int
	}
	batch, _ := s.batches.LoadOrStore(key{&src.templates[0][0], n},
		sync.OnceValue(func() []byte { return src.appendBatch(nil, 0, n) }))
	return batch.(func() []byte)()
}

// appendIndex appends the decimal text of i, as strconv.AppendInt would with more ado.
func appendIndex(dst []byte, i int) []byte {
	if i >= 10 {
		dst = appendIndex(dst, i/10)
	}
	return append(dst, byte('0'+i%10))
}

func namespaceField(req request) []byte {
	db, _ := req.body.Lookup("$db").StringValueOK()
	collection, _ := req.body.Index(0).Value().StringValueOK()
	return bsoncore.AppendStringElement(nil, "ns", db+"."+collection)
}

func (s *Server) killCursors(dst []byte, req request) []byte {
	killed, missing := bsoncore.NewArrayBuilder(), bsoncore.NewArrayBuilder()
	ids, _ := req.body.Lookup("cursors").ArrayOK()
	values, _ := ids.Values()
	for _, v := range values {
		if !s.kill(v.Int64()) {
			missing.AppendInt64(v.Int64())
			continue
		}
		s.killed.Add(1)
		killed.AppendInt64(v.Int64())
	}
	none := bsoncore.NewArrayBuilder().Build()
	return append(dst, bsoncore.NewDocumentBuilder().
		AppendArray("cursorsKilled", killed.Build()).AppendArray("cursorsNotFound",
		missing.Build()).
		AppendArray("cursorsAlive", none).AppendArray("cursorsUnknown", none).AppendDouble("ok",
		1).Build()...)
}

func (s *Server) hello() []byte {
	b := bsoncore.NewDocumentBuilder()
	if s.sharded.Load() {
		b.AppendString("msg", "isdbgrid")
	}
	return b.AppendBoolean("helloOk", true).
		AppendBoolean("isWritablePrimary", true).
		AppendBoolean("ismaster", true).
		AppendInt32("maxBsonObjectSize", 16<<20).
		AppendInt32("maxMessageSizeBytes", wire.MaxMessage).
		AppendInt32("maxWriteBatchSize", 100_000).
		AppendDateTime("localTime", time.Now().UnixMilli()).
		AppendInt32("logicalSessionTimeoutMinutes", 30).
		AppendInt32("connectionId", 1).
		AppendInt32("minWireVersion", 0).
		AppendInt32("maxWireVersion", 21).
		AppendBoolean("readOnly", false).
		AppendDouble("ok", 1).
		Build()
}

func appendOK(dst []byte, field string, n int32) []byte {
	return append(dst,
		bsoncore.NewDocumentBuilder().AppendInt32(field, n).AppendDouble("ok", 1).Build()...)
}

func appendError(dst []byte, code int32, codeName, message string) []byte {
	return append(dst, bsoncore.NewDocumentBuilder().
		AppendDouble("ok", 0).AppendString("errmsg", message).
		AppendInt32("code", code).AppendString("codeName", codeName).Build()...)
}
