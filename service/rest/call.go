package rest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/etag"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/lostpage"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/urlquery"
)

// call holds the state of one request. The goroutine of its Exchange owns it.
type call struct {
	api       *API
	x         *front.Exchange
	r         *http.Request // of x
	route     *route        // nil until it is found
	format    media.Format
	path      []variable // in variables
	variables [maxVariables]variable
	query     url.Values
	find      urlquery.Find // what the query says of fields
	timeout   time.Duration // 0: none
	ticket    string        // in the path
	ticketed  proto.Message // the request of the ticket; nil: there is none
	metadata  metadata.MD   // the handler's header
	total     string        // how many documents there are, if the query asks
	length    [1]string     // the length of the response's body, as a header has it
	begun     bool          // the status line is written
	stream    *stream       // nil: the route is none
	document  precondition  // of a document's route
	make      payload.Maker // of the request's BSON
	code      int           // the status of the response; 0: as for all calls
	texts     texts         // of the documents of the response
}

// open finds the route and checks everything in the request except the body.
func (c *call) open() error {
	at, verb, path, err := c.api.routes.find(c.r.URL.EscapedPath(), c.variables[:0])
	if err != nil {
		return err
	}
	r, ok := at.ends[verb].route(c.r.Method)
	if !ok {
		var others []string
		if verb == "" {
			others = at.takers(c.r.Method)
		}
		return notAllowed(c.x, at.ends[verb].allow(), others)
	}
	if _, isLive := c.ticketed.(*mooringv1.LiveRequest); isLive {
		r = c.api.liveTicket
	}
	c.r.Pattern = r.path // for those in front of the handler
	c.x.Calls(r.rpc)
	chosen, ok := media.Accept(c.r.Header["Accept"], r.offers)
	if !ok {
		return refuse(rpcerr.NotAcceptable,
			"this call returns "+offered(r.offers)+", which Accept does not allow")
	}
	if chosen.Bare && r.items.live {
		return refuse(rpcerr.NotAcceptable,
			"bare=true cannot be used for live documents: it leaves out their kinds")
	}
	c.format = chosen
	if r.bodies != nil {
		if err := checkContentType(c.r.Header, r.bodies, r.inflates); err != nil {
			if r.method == http.MethodPatch {
				c.x.Response.Header().Set("Accept-Patch", strings.Join(r.bodies, ", "))
			}
			return err
		}
	}
	if r.method == http.MethodPut && c.r.Header["Content-Range"] != nil {
		return refuseField("Content-Range", "a PUT always replaces the whole document")
	}
	if !r.resource {
		if err := etag.Refuse(r.method, c.r.Header); err != nil {
			return err
		}
	}
	if c.query, err = parseQuery(r, c.r.URL.RawQuery); err != nil {
		return err
	}
	if err := c.readConditions(r); err != nil {
		return err
	}
	if c.timeout, err = c.x.Timeout(c.query); err != nil {
		return err
	}
	if r.bodies == nil {
		if err := c.x.Body.ExpectNone(); err != nil {
			return err
		}
	}
	c.route, c.path = r, path
	if r.stream {
		c.stream = &stream{c: c}
	}
	return nil
}

// notAllowed returns the error of a method that the path does not take. others lists how the path
// can go on to one that does.
func notAllowed(x *front.Exchange, allow string, others []string) error {
	x.Response.Header().Set("Allow", allow)
	message := "this path takes " + allow + ", not " + x.Request().Method
	if len(others) > 0 {
		message += ". For " + x.Request().Method + ", continue the path with " +
			strings.Join(others, ", ")
	}
	return refuse(rpcerr.MethodNotAllowed, message)
}

// isOver reports whether the client reconnects to a stream of events that it has already received.
func (c *call) isOver() bool {
	last := c.r.Header.Get(lastEventID)
	return c.format.Type == media.SSE &&
		(last == endEventID || last == queryEventID && !c.route.items.changes)
}

// serve runs the call. When it returns, the answer is written and the handler has ended, even if
// the call has failed.
func (c *call) serve() {
	ctx, cancel := c.x.Context(c.timeout)
	defer cancel()
	defer c.texts.free()
	switch err := c.run(ctx); {
	case err != nil:
		c.writeFailure(ctx, err)
	case c.stream != nil:
		c.stream.end()
	}
}

// respond writes the response of a unary call.
func (c *call) respond(ctx context.Context, request any, m proto.Message) error {
	write := c.writeResponse
	if c.route.resource {
		write = c.respondDocument
	}
	err := write(m)
	if err != nil || c.r.Method == http.MethodHead {
		lostpage.Close(ctx, c.x, request, m, err)
	}
	return err
}

// Interfaces of the common responses, which avoid the use of descriptors.
type (
	hasDocuments   interface{ GetDocuments() []*mooringv1.Document }
	hasCursor      interface{ GetCursor() string }
	hasSession     interface{ GetSession() string }
	hasWriteErrors interface {
		GetWriteErrors() []*mooringv1.WriteError
	}
)

// largeResponse is the size of a response, in BSON, from which its text is made and sent in pieces.
const largeResponse = 256 << 10

func (c *call) writeResponse(m proto.Message) error {
	made, size := c.texts.of(m), proto.Size(m)
	if made == nil && size >= largeResponse || made != nil && made.large != nil {
		return c.x.Work(largeResponse, func() error { return c.writeLarge(m, size, made) })
	}
	out := c.x.Buffer()
	defer out.Free()
	e := encoder{buf: out.B, mode: c.format.Mode, room: &c.x.Memory, texts: made}
	err := c.encode(&e, m)
	if made == nil {
		out.B = e.buf
	}
	if err != nil {
		return err
	}
	if hasBody, err := c.writeHeader(m, len(e.buf)); err != nil || !hasBody {
		return err
	}
	c.x.Response.Write(e.buf)
	c.x.Response.End()
	return nil
}

// writeLarge writes a large response in pieces. If its text was not kept, it encodes the response
// twice: the length of the text is in the header. BSON is a copy, which is cheaper than to keep it.
func (c *call) writeLarge(m proto.Message, size int, made *texts) error {
	text := c.texts.large
	if made == nil {
		text = c.newPieces()
		if c.format.Type != media.BSON && c.r.Method != http.MethodHead {
			text.reserve(size)
		}
	}
	e := encoder{buf: c.api.texts.empty(), mode: c.format.Mode, room: text, texts: made}
	defer func() {
		text.free()
		c.recycle(e.buf)
	}()
	e.flush = func() {
		_ = c.x.Memory.Do(len(e.buf)) // as Work
		e.buf = text.next(e.buf)
	}
	if err := c.encode(&e, m); err != nil {
		return err
	}
	hasBody, err := c.writeHeader(m, text.length+len(e.buf))
	if err != nil || !hasBody {
		return err
	}
	reads := true
	send := func(b []byte) { reads = reads && c.x.Response.Write(b) }
	if !text.isKept() && text.length > 0 { // otherwise buf has all of it, such as one document
		e.buf = e.buf[:0]
		e.flush = func() {
			_ = c.x.Memory.Do(len(e.buf))
			send(e.buf)
			e.buf = e.buf[:0]
		}
		_ = c.encode(&e, m) // it has been encoded before
	}
	for b, ok := text.first(); ok; b, ok = text.first() {
		send(b)
		c.recycle(b)
	}
	c.x.Response.Write(e.buf)
	c.x.Response.End()
	return nil
}

// recycle recycles a buffer that may have been written.
func (c *call) recycle(text []byte) {
	if !c.x.Response.IsTorn() {
		c.api.texts.recycle(text)
	}
}

func (c *call) newPieces() *pieces { return &pieces{keeper: &c.api.texts, memory: &c.x.Memory} }

func (c *call) encode(e *encoder, m proto.Message) error {
	if d, ok := m.(hasDocument); ok && c.route.resource {
		if c.format.Type == media.BSON {
			e.raw(d.GetDocument().GetBson())
			return nil
		}
		return e.document(d.GetDocument())
	}
	if c.format.Type != media.BSON {
		return e.response(c.route.reply, m.ProtoReflect())
	}
	page, _ := m.(hasDocuments)
	for _, d := range page.GetDocuments() {
		e.raw(d.GetBson())
	}
	return nil
}

// writeTokens sets the headers of a response's tokens.
func (c *call) writeTokens(m proto.Message) {
	h := c.x.Response.Header()
	if s, ok := m.(hasSession); ok && s.GetSession() != "" {
		h.Set(front.SessionHeader, s.GetSession())
	}
	if c.total != "" {
		h.Set(front.TotalCountHeader, c.total)
	}
	if cursor, ok := m.(hasCursor); ok && c.format.Type == media.BSON && cursor.GetCursor() != "" {
		h.Set(front.CursorHeader, cursor.GetCursor())
	}
}

// writeHeader writes the status and the header of a response whose text has that length. It
// reports whether the body follows.
func (c *call) writeHeader(m proto.Message, length int) (hasBody bool, err error) {
	h, in := c.x.Response.Header(), c.x.Response.CodingFor(length)
	code := max(c.code, http.StatusOK)
	current := etag.Tag{}
	if c.document.etag != "" {
		current = c.document.tag(c.format, in)
		h.Set("Etag", current.String())
	}
	status, err := c.document.decide(current)
	if err != nil {
		h.Del("Etag")
		return false, err
	}
	c.writeTokens(m)
	c.applyMetadata()
	c.begun = true
	if status != 0 {
		c.x.Response.WriteHeader(status)
		return false, nil
	}
	h["Content-Type"] = contentTypes[c.format.Type]
	if e, ok := m.(hasWriteErrors); ok && len(e.GetWriteErrors()) > 0 {
		code = http.StatusMultiStatus
	}
	if in == coding.Identity {
		c.length[0] = strconv.Itoa(length)
		h["Content-Length"] = c.length[:]
	}
	c.x.Response.Compress(in, length)
	c.x.Response.WriteHeader(code)
	return c.r.Method != http.MethodHead, nil
}

// applyMetadata sets a header for each metadata key that is meant for clients.
func (c *call) applyMetadata() {
	for key, values := range c.metadata {
		if strings.HasPrefix(key, "mooring-") && !strings.EqualFold(key, front.RequestIDHeader) {
			c.x.Response.Header()[http.CanonicalHeaderKey(key)] = values
		}
	}
}

// writeFailure answers a call that has failed.
func (c *call) writeFailure(ctx context.Context, err error) {
	failed := responseOf(c.x, c.x.Explain(ctx, err))
	if c.stream != nil && c.stream.fail(failed) {
		return
	}
	c.begun = true
	c.applyMetadata()
	c.api.writeError(c.x, failed, c.format.Mode)
}
