package rest

import (
	"context"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/csv"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// A stream has two forms, NDJSON and events, which differ in the text around each document and at
// the end. A message is written and flushed on the handler's goroutine, so a client that reads
// slowly blocks the handler.

// queryEventID is the id of every event of a query. EventSource sends it back when it reconnects.
// The answer is that there is nothing more, because a query's rows are never repeated.
const queryEventID = "q"

// watchEventID is the id of every event of a watch. EventSource sends it back, too, and the watch
// starts again with the newest state.
const watchEventID = "w"

// endEventID is the id of a stream's end.
const endEventID = "end"

// keepAliveAfter is the idle time after which a stream of events gets a sign of life.
const keepAliveAfter = 15 * time.Second

// retryEvents tells EventSource to reconnect 1000 milliseconds after a transient failure.
const retryEvents = "retry: 1000\n"

// items describes the items of a stream.
type items struct {
	field   *field // of which each message has one; nil: messages have documents
	eventID string
	line    string // the text before an item of NDJSON
	// changes says that the stream has no end of its own: see changes.go. The documents are events
	// of a change stream, or, if live is set, those of Live, which come in kinds.
	changes, live bool
}

// isQuery reports whether the items are the documents of a query.
func (i *items) isQuery() bool { return i.field == nil && !i.changes }

// itemsOf returns the items of a stream with these replies. The messages of queries have documents.
// The messages of watches have one field, the newest state.
func itemsOf(reply *plan) items {
	switch {
	case reply.byName["resumeToken"] != nil:
		return items{line: `{"document":`, changes: true}
	case reply.byName["kind"] != nil:
		return items{changes: true, live: true}
	case reply.byName["documents"] != nil:
		return items{eventID: queryEventID, line: `{"document":`}
	case len(reply.fields) == 1:
		one := reply.fields[0]
		return items{field: one, eventID: watchEventID, line: "{" + one.quoted}
	}
	panic("bug: rest: a stream with neither documents nor one field")
}

// stream holds the state of a call whose response is a stream. The goroutine of the call owns it.
// Only the keep-alive of events writes from another goroutine, under mu.
type stream struct {
	c       *call
	export  *csv.Encoder // nil: the form is not CSV
	named   bool         // the row of names is written
	rows    bool         // documents are written
	session string       // the newest one
	shares  bool         // its documents may be those of other streams

	// mu is held while something is written, and guards the fields below.
	mu sync.Mutex
	// keepAlive writes quiet between events; nil: nothing is written. wrote is when something was
	// written last, and over says that nothing may follow.
	keepAlive *time.Timer
	wrote     time.Time
	over      bool
}

var _ inproc.Outlet = (*stream)(nil)

// run makes the call, and writes each message. When run returns, the handler has ended.
func (s *stream) run(ctx context.Context, request proto.Message) error {
	if err := s.openExport(request); err != nil {
		return err
	}
	if s.quiet() != nil {
		s.startKeepAlive()
		defer s.stopKeepAlive()
	}
	_, err := s.c.x.Serve(s.c.incoming(ctx), s.c.route.rpc, request, s)
	return err
}

// Header implements inproc.Outlet.
func (s *stream) Header(_ context.Context, md metadata.MD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c.metadata = md
}

// Message implements inproc.Outlet.
func (s *stream) Message(_ context.Context, m any) error {
	message, _ := m.(proto.Message) // always
	return s.write(message)         //nolint:contextcheck // a turn comes soon
}

// append writes the items of one message to e, and calls flush whenever e has Chunk bytes. If
// an item cannot be written, it returns an error; the items before it are written.
func (s *stream) append(e *encoder, m proto.Message, flush func() error) error {
	around := s.itemFrame()
	if one := s.c.route.items.field; one != nil {
		return e.framed(around, func() error { return e.field(one, m.ProtoReflect()) })
	}
	switch m := m.(type) {
	case *mooringv1.WatchResponse:
		s.shares = s.shares || m.GetShared()
		if len(m.GetDocuments()) == 0 {
			return s.appendProgress(e, m)
		}
	case *mooringv1.LiveResponse:
		s.shares = true
		around = s.liveFrame(m.GetKind())
		if m.GetKind() == "ready" {
			e.buf = append(e.buf, around.before+"{}"+around.after...)
			return nil
		}
	}
	_, watched := m.(*mooringv1.WatchResponse)
	batch, _ := m.(hasDocuments)
	for _, d := range batch.GetDocuments() {
		if watched && s.c.format.Type == media.SSE {
			around.before = "id: " + eventIDOf(d) + "\ndata: "
		}
		if s.export != nil {
			around = frame{before: string(s.names(nil))}
		}
		if err := e.framed(around, func() error { return s.appendDocument(e, d) }); err != nil {
			return err
		}
		if len(e.buf) < front.Chunk {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return nil
}

// appendDocument writes a document, of which others may have made the text.
func (s *stream) appendDocument(e *encoder, d *mooringv1.Document) error {
	if s.shares && e.rows == nil {
		return s.c.api.shared.append(e, d)
	}
	return e.document(d)
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

func (s *stream) itemFrame() frame {
	switch {
	case s.c.format.Type == media.SSE:
		return frame{"id: " + s.c.route.items.eventID + "\ndata: ", "\n\n"}
	case s.c.format.Bare:
		return frame{"", "\n"}
	}
	return frame{s.c.route.items.line, "}\n"}
}

// quiet returns what is written while there are no events: a comment, or an empty line to clients
// that take lines of what has changed, which may be long in coming; nil: nothing.
func (s *stream) quiet() []byte {
	of := &s.c.route.items
	switch {
	case s.c.format.Type == media.SSE:
		return []byte(":\n\n")
	case s.c.format.Type == media.NDJSON && !s.c.format.Bare && (of.changes || of.field != nil):
		return []byte("\n")
	}
	return nil
}

// startKeepAlive has quiet written whenever keepAliveAfter has passed without an event. While
// nothing is written yet, it keeps only a GET alive, because the failure of a POST must still
// become its status.
func (s *stream) startKeepAlive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote = time.Now()
	s.keepAlive = time.AfterFunc(keepAliveAfter, s.comment)
}

// stopKeepAlive returns when nothing is written between events any more. If the handler has
// panicked, the response ends, and no goroutine may write to it.
func (s *stream) stopKeepAlive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.keepAlive.Stop()
}

func (s *stream) comment() {
	next := keepAliveAfter
	if !s.mu.TryLock() { // an event is being written
		s.keepAlive.Reset(next)
		return
	}
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if quiet := time.Since(s.wrote); quiet < keepAliveAfter {
		next -= quiet
	} else if s.c.begun || s.c.r.Method == http.MethodGet {
		s.begin()
		// If the client has disconnected, its context ends.
		_ = s.c.x.Response.Send(s.quiet())
	}
	s.keepAlive.Reset(next)
}

// begin writes the status line of a stream that has not failed. Later calls do nothing.
func (s *stream) begin() {
	if s.c.begun {
		return
	}
	s.c.begun = true
	s.c.applyMetadata()
	h := s.c.x.Response.Header()
	h["Content-Type"] = contentTypes[s.c.format.Type]
	h.Set("X-Accel-Buffering", "no") // a buffering proxy delays a batch until the next one
	if s.session != "" {
		h.Set(front.SessionHeader, s.session)
	}
	out := &s.c.x.Response
	out.CompressStream(out.StreamCoding())
	out.WriteHeader(http.StatusOK)
}

// write writes one message of a stream. The stream's budget counts BSON, but the JSON of a
// message can be many times larger, so it is sent in pieces. A client that does not read holds
// Chunk bytes of JSON, or one document.
func (s *stream) write(m proto.Message) error {
	s.mu.Lock()
	defer func() {
		s.wrote = time.Now()
		s.mu.Unlock()
	}()
	if renewed, ok := m.(hasSession); ok && renewed.GetSession() != "" {
		s.session = renewed.GetSession()
	}
	out := s.c.x.Buffer()
	defer out.Free()
	e := encoder{buf: out.B, mode: s.c.format.Mode, room: &s.c.x.Memory, rows: s.export}
	defer s.c.x.Memory.ReleaseRoom()
	err := s.c.x.Work(sizeOf(m), func() error { return s.writeItems(&e, m) })
	out.B = e.buf
	return err
}

// sizeOf returns about how many bytes a message has.
func sizeOf(m proto.Message) (n int) {
	batch, ok := m.(hasDocuments)
	if !ok {
		return proto.Size(m)
	}
	for _, d := range batch.GetDocuments() {
		n += len(d.GetBson())
	}
	return n
}

// writeItems writes the items of a message with e.
func (s *stream) writeItems(e *encoder, m proto.Message) error {
	flush := func() error {
		s.begin()
		s.rows = s.rows || len(e.buf) > 0
		err := s.c.x.Response.Send(e.buf)
		e.buf = e.buf[:0]
		if err != nil {
			return refuse(rpcerr.Canceled, "the client has disconnected: "+err.Error())
		}
		return nil
	}
	err := s.append(e, m, flush)
	if len(e.buf) > 0 || err == nil && !s.c.begun {
		if failed := flush(); failed != nil {
			return failed
		}
	}
	return err
}

// end writes the end of a stream that has not failed.
func (s *stream) end() {
	e := encoder{buf: s.names(nil)}
	switch {
	case s.c.format.Type == media.SSE:
		e.buf = append(e.buf, "event: end\nid: "+endEventID+"\ndata: "...)
	case !s.c.format.Bare:
		e.buf = append(e.buf, `{"end":`...)
	}
	if !s.c.format.Bare {
		e.buf = append(e.buf, '{')
		if s.session != "" {
			e.buf = append(e.buf, `"session":`...)
			_ = e.text(s.session)
		}
		e.buf = append(e.buf, '}')
	}
	switch {
	case s.c.format.Type == media.SSE:
		e.buf = append(e.buf, "\n\n"...)
	case !s.c.format.Bare:
		e.buf = append(e.buf, "}\n"...)
	}
	s.begin()
	s.c.x.Response.SendLast(e.buf)
}

// fail writes a failure as a part of the stream, if it is one, and reports whether it is. Otherwise
// the response is a status.
func (s *stream) fail(failed rpcerr.Response) bool {
	events, ofChanges := s.c.format.Type == media.SSE, s.c.route.items.changes
	isGet := s.c.r.Method == http.MethodGet
	transient := failed.Body.GetError().GetRetry() != string(rpcerr.Never)
	switch {
	case events && ofChanges && s.isEvent(failed):
		before := "event: failure\nid: " + endEventID + "\ndata: "
		if isTransient(failed) {
			before = retryEvents + "event: failure\ndata: "
		}
		s.writeFailure(before, failed, "\n\n")
	case events && isGet && transient && !s.rows:
		// An error status would make EventSource give up before any row was sent.
		s.writeFailure(retryEvents+"event: failure\ndata: ", failed, "\n\n")
	case !s.c.begun:
		return false
	case s.c.format.Bare:
		// Without frames, only an incomplete body shows that documents are missing.
		panic(http.ErrAbortHandler)
	case events:
		before := "event: failure\nid: " + s.c.route.items.eventID + "\ndata: "
		s.writeFailure(before, failed, "\n\n")
	default:
		s.writeFailure("", failed, "\n")
	}
	return true
}

// writeFailure writes a failure as the last item.
func (s *stream) writeFailure(before string, failed rpcerr.Response, after string) {
	s.begin()
	text := s.c.api.errorText(failed.Body, s.c.format.Mode)
	s.c.x.Response.SendLast(append(append([]byte(before), text...), after...))
}
