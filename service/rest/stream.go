package rest

import (
	"errors"
	"io"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// What stands around each document, and at the end, in the two forms of a stream. A batch is one
// write and one flush; the handler's next message is taken after that, so a client that reads
// slowly holds the handler back.

// queryEventID is the id of every event of a query. EventSource sends it back when it reconnects,
// and is told that there is nothing more, because a query's rows are never repeated.
const queryEventID = "q"

// watchEventID is the id of every event of a watch. EventSource sends it back, too, and is served
// again: the newest state is always worth having.
const watchEventID = "w"

// endEventID is the id of a stream's end.
const endEventID = "end"

// keepAliveAfter is the silence after which a stream of events gets a comment.
const keepAliveAfter = 15 * time.Second

// retryEvents is when EventSource comes back after a transient failure, in milliseconds.
const retryEvents = "retry: 1000\n"

// items are what a stream is made of.
type items struct {
	field   *field // that each message has one of; nil: messages have documents
	eventID string
	line    string // what stands before one, on a line
}

// itemsOf tells queries, whose messages have documents, from watches, whose messages have one
// field: the newest state.
func itemsOf(reply *plan) items {
	switch {
	case reply.byName["documents"] != nil:
		return items{nil, queryEventID, `{"document":`}
	case len(reply.fields) == 1:
		return items{reply.fields[0], watchEventID, "{" + reply.fields[0].quoted}
	}
	panic("bug: rest: a stream with neither documents nor one field")
}

// append writes the items of one message, and calls flush whenever there is enough to send. With
// an error it has written the items before the one that cannot be written.
func (i *items) append(e *encoder, m proto.Message, around frame, flush func() error) error {
	if i.field != nil {
		return e.framed(around, func() error { return e.field(i.field, m.ProtoReflect()) })
	}
	batch, _ := m.(hasDocuments)
	for _, d := range batch.GetDocuments() {
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

// framed writes a value with a text before and after it, or nothing at all.
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

// frame is the text around one JSON value.
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

// receive waits for the next message of a stream. A stream of events is kept alive meanwhile.
func (c *call) receive(stream grpc.ClientStream, m any) error {
	err := c.await(stream, m)
	if c.metadata == nil {
		c.metadata, _ = stream.Header() // it is there: a message is, or the end
	}
	if err != nil {
		c.streaming = nil
		if !errors.Is(err, io.EOF) {
			c.fail(err)
		}
	}
	return err
}

// await is RecvMsg. It may panic, as the handler has: then the response ends, and nothing may
// write to it any more.
func (c *call) await(stream grpc.ClientStream, m any) error {
	if c.format.media == mediaSSE {
		defer c.keepAlive()()
	}
	return stream.RecvMsg(m)
}

// keepAlive writes a comment after each silence, until stop is called. While nothing is written
// yet, only a GET is kept alive: a POST's failure must still be able to become its status.
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
			_ = c.send([]byte(":\n\n")) // a client that has gone away is noticed by its context
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

// begin writes the status line of a stream that goes well, once.
func (c *call) begin() {
	if c.begun {
		return
	}
	c.begun = true
	c.applyMetadata()
	h := c.w.Header()
	h["Content-Type"] = contentTypes[c.format.media]
	h.Set("X-Accel-Buffering", "no") // proxies that buffer would hold a batch back until the next one
	if c.session != "" {
		h.Set(sessionHeader, c.session)
	}
	c.w.WriteHeader(http.StatusOK)
}

// send writes to a stream's client and flushes. A client that does not read holds no goroutine
// and no memory for longer than it may stall. The deadline is taken away again: over HTTP/2 it
// would end the stream although nothing is written.
func (c *call) send(b []byte) error {
	connection := http.NewResponseController(c.w)
	_ = connection.SetWriteDeadline(time.Now().Add(c.handler.config.StallTimeout)) // fails where there is no connection
	defer func() { _ = connection.SetWriteDeadline(time.Time{}) }()
	if len(b) > 0 {
		if _, err := c.w.Write(b); err != nil {
			return err
		}
	}
	return connection.Flush()
}

// writeBatch writes one message of a stream. A message's JSON can be many times larger than its
// BSON, which is what the stream's budget counts, so it is sent in pieces: a client that does not
// read holds writeChunk bytes of JSON, or one document.
func (c *call) writeBatch(m proto.Message) error {
	if s, ok := m.(hasSession); ok && s.GetSession() != "" {
		c.session = s.GetSession()
	}
	out := c.handler.buffers.get(0)
	defer c.handler.buffers.put(out)
	e := encoder{buf: out.b, mode: c.format.mode}
	flush := func() error {
		c.begin()
		c.rows = c.rows || len(e.buf) > 0
		err := c.send(e.buf)
		if err != nil {
			c.fail(refuse(rpcerr.Canceled, "the client has gone away: "+err.Error()))
		}
		e.buf = e.buf[:0]
		return err
	}
	err := c.route.items.append(&e, m, c.itemFrame(), flush)
	if len(e.buf) > 0 || err == nil && !c.begun {
		if failed := flush(); failed != nil {
			return failed
		}
	}
	out.b = e.buf
	if err != nil {
		c.fail(err) // unless flush has said why
	}
	return err
}

// writeEnd ends a stream that went well.
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
	_ = c.send(e.buf) // the last line: there is nobody to tell
}

// writeStreamFailure ends a stream that has begun and fails.
func (c *call) writeStreamFailure(body *mooringv1.ErrorResponse) {
	if c.format.bare {
		// Without frames, only a broken body can say that documents are missing.
		panic(http.ErrAbortHandler)
	}
	before, after := "", "\n"
	if c.format.media == mediaSSE {
		before, after = "event: failure\nid: "+c.route.items.eventID+"\ndata: ", "\n\n"
	}
	text := c.handler.errorText(body, c.format.mode)
	_ = c.send(append(append([]byte(before), text...), after...))
}

// writeTransientFailure answers an EventSource before any row was sent: a status would make it
// give up, so it is told to come back.
func (c *call) writeTransientFailure(body *mooringv1.ErrorResponse) {
	c.begin()
	text := c.handler.errorText(body, c.format.mode)
	_ = c.send(append(append([]byte(retryEvents+"event: failure\ndata: "), text...), "\n\n"...))
}
