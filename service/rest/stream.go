package rest

import (
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// A stream has two forms, NDJSON and events, which differ in the text around each document and at
// the end. The handler's next message is received after the last one is written and flushed, so a
// client that reads slowly blocks the handler.

// queryEventID is the id of every event of a query. EventSource sends it back when it reconnects.
// The answer is that there is nothing more, because a query's rows are never repeated.
const queryEventID = "q"

// watchEventID is the id of every event of a watch. EventSource sends it back, too, and the watch
// starts again with the newest state.
const watchEventID = "w"

// endEventID is the id of a stream's end.
const endEventID = "end"

// keepAliveAfter is the idle time after which a stream of events gets a comment.
const keepAliveAfter = 15 * time.Second

// retryEvents tells EventSource to reconnect 1000 milliseconds after a transient failure.
const retryEvents = "retry: 1000\n"

// items describes the items of a stream.
type items struct {
	field   *field // of which each message has one; nil: messages have documents
	eventID string
	line    string // the text before an item of NDJSON
	// changes says that the documents are events of a change stream: see changes.go.
	changes bool
}

// itemsOf returns the items of a stream with these replies. The messages of queries have documents.
// The messages of watches have one field, the newest state.
func itemsOf(reply *plan) items {
	switch {
	case reply.byName["resumeToken"] != nil:
		return items{line: `{"document":`, changes: true}
	case reply.byName["documents"] != nil:
		return items{eventID: queryEventID, line: `{"document":`}
	case len(reply.fields) == 1:
		one := reply.fields[0]
		return items{field: one, eventID: watchEventID, line: "{" + one.quoted}
	}
	panic("bug: rest: a stream with neither documents nor one field")
}

// append writes the items of one message to e, and calls flush whenever e has writeChunk bytes. If
// an item cannot be written, it returns an error; the items before it are written.
func (c *call) append(e *encoder, m proto.Message, flush func() error) error {
	around := c.itemFrame()
	if one := c.route.items.field; one != nil {
		return e.framed(around, func() error { return e.field(one, m.ProtoReflect()) })
	}
	if changes, ok := m.(*mooringv1.WatchResponse); ok && len(changes.GetDocuments()) == 0 {
		return c.appendProgress(e, changes.GetResumeToken())
	}
	batch, _ := m.(hasDocuments)
	for _, d := range batch.GetDocuments() {
		if c.route.items.changes && c.format.media == mediaSSE {
			around.before = "id: " + eventIDOf(d) + "\ndata: "
		}
		if err := e.framed(around, func() error { return e.document(d) }); err != nil {
			return err
		}
		if len(e.buf) < writeChunk {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}

// framed writes a value with a text before and after it. If value fails, it writes nothing.
func (e *encoder) framed(around frame, value func() error) error {
	begin := len(e.buf)
	e.buf = append(e.buf, around.before...)
	if err := value(); err != nil {
		e.buf = e.buf[:begin]
		return err
	}
	e.buf = append(e.buf, around.after...)
	return nil
}

// frame holds the text before and after one JSON value.
type frame struct{ before, after string }

func (c *call) itemFrame() frame {
	switch {
	case c.format.media == mediaSSE:
		return frame{"id: " + c.route.items.eventID + "\ndata: ", "\n\n"}
	case c.format.bare:
		return frame{"", "\n"}
	}
	return frame{c.route.items.line, "}\n"}
}

// receive blocks until the next message of a stream or its end. It keeps a stream of events alive
// while it waits.
func (c *call) receive(stream grpc.ClientStream, m any) error {
	err := c.await(stream, m)
	if c.metadata == nil {
		c.metadata, _ = stream.Header() // does not block after a message or the end
	}
	return err
}

// await calls RecvMsg. If the handler has panicked, await panics, too. The response ends then, and
// no goroutine may write to it.
func (c *call) await(stream grpc.ClientStream, m any) error {
	if c.format.media == mediaSSE {
		defer c.keepAlive()()
	}
	return stream.RecvMsg(m)
}

// keepAlive writes a comment whenever keepAliveAfter has passed, until stop is called. While
// nothing is written yet, it keeps only a GET alive, because the failure of a POST must still
// become its status.
func (c *call) keepAlive() (stop func()) {
	c.idle = true
	var timer *time.Timer
	comment := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.idle {
			return
		}
		if c.begun || c.r.Method == http.MethodGet {
			c.begin()
			_ = c.send([]byte(":\n\n")) // if the client has disconnected, its context ends
		}
		timer.Reset(keepAliveAfter)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	timer = time.AfterFunc(keepAliveAfter, comment)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle = false
		timer.Stop()
	}
}

// begin writes the status line of a stream that has not failed. Later calls do nothing.
func (c *call) begin() {
	if c.begun {
		return
	}
	c.begun = true
	c.applyMetadata()
	h := c.w.Header()
	h["Content-Type"] = contentTypes[c.format.media]
	h.Set("X-Accel-Buffering", "no") // a buffering proxy delays a batch until the next one
	if c.session != "" {
		h.Set(sessionHeader, c.session)
	}
	c.compress(c.acceptedCoding())
	c.w.WriteHeader(http.StatusOK)
}

// send writes to a stream's client and flushes. It blocks for at most StallTimeout, so that a
// client that does not read holds no goroutine and no memory for longer. If calls need the memory,
// it fails when the client has taken nothing for writePatience. It removes the deadline afterwards,
// because over HTTP/2 a deadline ends the stream even if nothing is being written.
func (c *call) send(b []byte) error {
	connection := http.NewResponseController(c.w)
	// This fails if there is no connection.
	_ = connection.SetWriteDeadline(time.Now().Add(c.handler.config.StallTimeout))
	defer func() { _ = connection.SetWriteDeadline(time.Time{}) }()
	if err := c.sendBytes(b); err != nil {
		return err
	}
	defer c.awaitClient()()
	return connection.Flush()
}

// awaitClient begins a wait for the client of a stream, in which the stream has no turn and may be
// cut. The caller calls resume afterwards.
func (c *call) awaitClient() (resume func()) {
	again := c.pause()
	c.handler.unread.moved(c)
	return func() {
		c.handler.unread.over(c)
		again()
	}
}

// sendBytes writes a part of a stream. What is compressed is written up to its end, so that the
// client can read all of the part.
func (c *call) sendBytes(b []byte) error {
	if c.compressor == nil {
		if len(b) == 0 {
			return nil
		}
		_, err := c.writePieces(b)
		return err
	}
	if _, err := c.compressor.Write(b); err != nil {
		return err
	}
	if err := c.compressor.Flush(); err != nil {
		return err
	}
	return c.compressed.Flush()
}

// writePieces writes bytes of a stream to its client. Each writeChunk that the client takes is
// progress.
func (c *call) writePieces(b []byte) (n int, err error) {
	defer c.awaitClient()()
	for err == nil && n < len(b) {
		var written int
		written, err = c.w.Write(b[n:min(n+writeChunk, len(b))])
		n += written
		c.handler.unread.moved(c)
	}
	return n, err
}

// sendLast writes the last part of a stream. An error has no consequence.
func (c *call) sendLast(b []byte) {
	if c.send(b) == nil {
		connection := http.NewResponseController(c.w)
		_ = connection.SetWriteDeadline(time.Now().Add(c.handler.config.StallTimeout))
		c.endBody()
		_ = connection.SetWriteDeadline(time.Time{})
	}
}

// writeBatch writes one message of a stream. The stream's budget counts BSON, but the JSON of a
// message can be many times larger, so it is sent in pieces. A client that does not read holds
// writeChunk bytes of JSON, or one document.
func (c *call) writeBatch(m proto.Message) error {
	if s, ok := m.(hasSession); ok && s.GetSession() != "" {
		c.session = s.GetSession()
	}
	out := c.handler.buffers.get(0)
	defer c.handler.buffers.put(out)
	e := encoder{buf: out.b, mode: c.format.mode, room: c}
	defer c.releaseRoom()
	if proto.Size(m) >= largeResponse {
		c.turn.Take()
		defer c.turn.Leave()
	}
	flush := func() error {
		c.begin()
		c.rows = c.rows || len(e.buf) > 0
		err := c.send(e.buf)
		e.buf = e.buf[:0]
		if err != nil {
			return refuse(rpcerr.Canceled, "the client has gone away: "+err.Error())
		}
		return nil
	}
	err := c.append(&e, m, flush)
	if len(e.buf) > 0 || err == nil && !c.begun {
		if failed := flush(); failed != nil {
			return failed
		}
	}
	out.b = e.buf
	return err
}

// writeEnd writes the end of a stream that has not failed.
func (c *call) writeEnd() {
	e := encoder{}
	switch {
	case c.format.media == mediaSSE:
		e.buf = append(e.buf, "event: end\nid: "+endEventID+"\ndata: "...)
	case !c.format.bare:
		e.buf = append(e.buf, `{"end":`...)
	}
	if !c.format.bare {
		e.buf = append(e.buf, '{')
		if c.session != "" {
			e.buf = append(e.buf, `"session":`...)
			_ = e.text(c.session)
		}
		e.buf = append(e.buf, '}')
	}
	switch {
	case c.format.media == mediaSSE:
		e.buf = append(e.buf, "\n\n"...)
	case !c.format.bare:
		e.buf = append(e.buf, "}\n"...)
	}
	c.begin()
	c.sendLast(e.buf)
}

// writeStreamFailure writes the failure of a stream that has begun.
func (c *call) writeStreamFailure(body *mooringv1.ErrorResponse) {
	if c.format.bare {
		// Without frames, only an incomplete body shows that documents are missing.
		panic(http.ErrAbortHandler)
	}
	before, after := "", "\n"
	if c.format.media == mediaSSE {
		before, after = "event: failure\nid: "+c.route.items.eventID+"\ndata: ", "\n\n"
	}
	text := c.handler.errorText(body, c.format.mode)
	c.sendLast(append(append([]byte(before), text...), after...))
}

// writeTransientFailure answers an EventSource before any row was sent. An error status would make
// it give up, so the answer tells it to reconnect.
func (c *call) writeTransientFailure(body *mooringv1.ErrorResponse) {
	c.begin()
	text := c.handler.errorText(body, c.format.mode)
	c.sendLast(append(append([]byte(retryEvents+"event: failure\ndata: "), text...), "\n\n"...))
}
