package rest

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Headers that the gateway defines.
const (
	requestIDHeader   = "Mooring-Request-Id"
	sessionHeader     = "Mooring-Session"
	transactionHeader = "Mooring-Transaction"
	cursorHeader      = "Mooring-Cursor"
)

// call holds the state of one request. The goroutine that net/http starts for the request owns it.
// Only the keep-alive of events writes from another goroutine, under mu.
type call struct {
	handler   *Handler
	w         http.ResponseWriter
	r         *http.Request // unchanged
	route     *route
	format    format
	ids       [1]string  // the request's id, as a header has it
	length    [1]string  // the length of the response's body, as a header has it
	path      []variable // in variables
	variables [maxVariables]variable
	query     url.Values
	timeout   time.Duration           // 0: none
	deadline  time.Time               // from timeout; zero: none
	present   func(*caller.Presented) // adds credentials; nil: there are no others
	identity  *caller.Identity
	ticket    string                  // in the path
	watch     *mooringv1.WatchRequest // of the ticket; nil: there is none
	account   admission.Account       // open once it is known who calls
	textRoom  int64                   // charged for the text of large documents
	turn      admission.Turn          // of heavy work
	metadata  metadata.MD             // the handler's header

	called  bool   // the request has reached the interceptors
	begun   bool   // the status line is written
	rows    bool   // of streams: documents are written
	session string // the newest one of a stream

	// Of a document's routes:
	match, noneMatch []entityTag // the preconditions of a GET
	etag             string      // the digest of the document; empty: it has none
	code             int         // the status of the response; 0: as for all calls

	compressor *coding.Writer // of the response's body; nil: it is not compressed
	compressed *bufio.Writer  // what the compressor writes to

	paced pacedBody // reads the request's body

	// mu guards writing while a stream of events may be kept alive.
	mu   sync.Mutex
	idle bool // the owner waits for a message
}

// id returns the request's id.
func (c *call) id() string { return c.ids[0] }

// open finds the route and checks everything in the request except the body.
func (c *call) open() error {
	if len(c.r.RequestURI) > maxURLBytes {
		return refuse(rpcerr.URITooLong, "the URL is longer than "+
			strconv.Itoa(maxURLBytes)+" bytes: send the request as a POST")
	}
	at, verb, path, err := c.handler.routes.find(c.r.URL.EscapedPath(), c.variables[:0])
	if err != nil {
		return err
	}
	r, ok := at.ends[verb].route(c.r.Method)
	if !ok {
		var others []string
		if verb == "" {
			others = at.takers(c.r.Method)
		}
		return c.notAllowed(at.ends[verb].allow(), others)
	}
	c.r.Pattern = r.path // for those in front of the handler
	chosen, ok := accept(c.r.Header["Accept"], r.offers)
	if !ok {
		return refuse(rpcerr.NotAcceptable,
			"this call answers with "+offered(r.offers)+", which Accept does not take")
	}
	c.format = chosen
	if r.bodies != nil {
		if err := checkContentType(c.r.Header, r.bodies); err != nil {
			if r.method == http.MethodPatch {
				c.w.Header().Set("Accept-Patch", strings.Join(r.bodies, ", "))
			}
			return err
		}
	}
	if !r.resource {
		if err := refusePreconditions(r.method, c.r.Header); err != nil {
			return err
		}
	}
	if c.query, err = parseQuery(r, c.r.URL.RawQuery); err != nil {
		return err
	}
	if c.timeout, err = timeout(c.r.Header.Get, c.query); err != nil {
		return err
	}
	if r.bodies == nil {
		if err := c.expectNoBody(); err != nil {
			return err
		}
	}
	c.route, c.path = r, path
	return nil
}

// notAllowed returns the error of a method that the path does not take. others lists how the path
// can go on to one that does.
func (c *call) notAllowed(allow string, others []string) error {
	c.w.Header().Set("Allow", allow)
	message := "this path takes " + allow + ", not " + c.r.Method
	if len(others) > 0 {
		message += ". For this method the path goes on with " + strings.Join(others, ", ")
	}
	return refuse(rpcerr.MethodNotAllowed, message)
}

// isOver reports whether the client reconnects to a stream of events that it has already received.
func (c *call) isOver() bool {
	last := c.r.Header.Get(lastEventID)
	return c.format.media == mediaSSE &&
		(last == endEventID || last == queryEventID && !c.route.items.changes)
}

// serve runs the call. When it returns, the answer is written and the handler has ended, even if
// the call has failed.
func (c *call) serve(ctx context.Context) {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		c.deadline = time.Now().Add(c.timeout)
		ctx, cancel = context.WithDeadline(ctx, c.deadline)
		defer cancel()
	}
	switch err := c.run(ctx); {
	case err != nil:
		c.writeFailure(ctx, err)
	case c.route.stream:
		c.writeEnd()
	}
}

// respond writes the response of a unary call.
func (c *call) respond(ctx context.Context, m proto.Message) error {
	write := c.writeResponse
	if c.route.resource {
		write = c.respondDocument
	}
	if err := write(m); err != nil {
		if !isRepeatable(m, err) {
			c.closeCursor(ctx, m)
		}
		return err
	}
	if c.r.Method == http.MethodHead {
		c.closeCursor(ctx, m)
	}
	return nil
}

// isRepeatable reports whether a client that gets no page for lack of memory gets it with the token
// that it has.
func isRepeatable(m proto.Message, err error) bool {
	_, isNext := m.(*mooringv1.NextPageResponse)
	_, refused := errors.AsType[*admission.Error](err)
	return isNext && refused
}

// closeCursor closes the cursor of a page of which the client gets no token.
func (c *call) closeCursor(ctx context.Context, m proto.Message) {
	page, ok := m.(interface {
		hasDocuments
		hasCursor
	})
	if !ok || page.GetCursor() == "" {
		return
	}
	ctx = c.incoming(context.WithoutCancel(ctx))
	closing := mooringv1.NewCursorServiceClient(c.handler.config.Conn)
	request := &mooringv1.CloseCursorRequest{Cursor: page.GetCursor()}
	_, _ = closing.CloseCursor(ctx, request) // if this fails, the cursor expires
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

// largeResponse is the size of a response, in BSON, from which its text is not kept as a whole.
// Such a response is encoded twice: its length is found first, and then it is written in pieces.
const largeResponse = 256 << 10

func (c *call) writeResponse(m proto.Message) error {
	out := c.handler.buffers.get(0)
	defer c.handler.buffers.put(out)
	if proto.Size(m) >= largeResponse {
		return c.writeLarge(out, m)
	}
	e := encoder{buf: out.b, mode: c.format.mode, room: c}
	err := c.encode(&e, m)
	if out.b = e.buf; err != nil {
		return err
	}
	if hasBody, err := c.writeHeader(m, len(e.buf)); err != nil || !hasBody {
		return err
	}
	c.write(e.buf)
	c.endBody()
	return nil
}

// writeLarge encodes a large response twice, with the buffer.
func (c *call) writeLarge(out *buffer, m proto.Message) error {
	e := encoder{buf: out.b, mode: c.format.mode, room: c}
	defer func() { out.b = e.buf }()
	c.turn.Take()
	defer c.turn.Leave()
	length := 0
	e.flush = func() {
		length, e.buf = length+len(e.buf), e.buf[:0]
		c.turn.Yield()
	}
	if err := c.encode(&e, m); err != nil {
		return err
	}
	hasBody, err := c.writeHeader(m, length+len(e.buf))
	if err != nil || !hasBody {
		return err
	}
	e.buf = e.buf[:0]
	reads := true
	e.flush = func() {
		reads = reads && c.write(e.buf)
		e.buf = e.buf[:0]
		c.turn.Yield()
	}
	_ = c.encode(&e, m) // it has been encoded before
	c.write(e.buf)
	c.endBody()
	return nil
}

// makeRoom charges the call with the text of a large document. The texts of one response or message
// follow each other in one buffer.
func (c *call) makeRoom(bytes int) error {
	more := int64(bytes) - c.textRoom
	if more <= 0 {
		return nil
	}
	if err := c.chargeLast(more); err != nil {
		return err
	}
	c.textRoom += more
	return nil
}

// releaseRoom returns what makeRoom has charged.
func (c *call) releaseRoom() {
	c.account.Shrink(c.textRoom)
	c.textRoom = 0
}

func (c *call) encode(e *encoder, m proto.Message) error {
	if d, ok := m.(hasDocument); ok && c.route.resource {
		if c.format.media == mediaBSON {
			e.buf = append(e.buf, d.GetDocument().GetBson()...)
			return nil
		}
		return e.document(d.GetDocument())
	}
	if c.format.media != mediaBSON {
		return e.response(c.route.reply, m.ProtoReflect())
	}
	page, _ := m.(hasDocuments)
	for _, d := range page.GetDocuments() {
		e.buf = append(e.buf, d.GetBson()...)
		if e.flush != nil && len(e.buf) >= writeChunk {
			e.flush()
		}
	}
	return nil
}

// writeTokens sets the headers of a response's tokens.
func (c *call) writeTokens(m proto.Message) {
	h := c.w.Header()
	if s, ok := m.(hasSession); ok && s.GetSession() != "" {
		h.Set(sessionHeader, s.GetSession())
	}
	if cursor, ok := m.(hasCursor); ok && c.format.media == mediaBSON && cursor.GetCursor() != "" {
		h.Set(cursorHeader, cursor.GetCursor())
	}
}

// writeHeader writes the status and the header of a response whose text has that length. It
// reports whether the body follows.
func (c *call) writeHeader(m proto.Message, length int) (hasBody bool, err error) {
	h, in := c.w.Header(), c.codingFor(length)
	code := max(c.code, http.StatusOK)
	current := entityTag{}
	if c.etag != "" {
		current = c.tag(in)
		h.Set("Etag", current.String())
	}
	status, err := c.decide(current)
	if err != nil {
		h.Del("Etag")
		return false, err
	}
	c.writeTokens(m)
	c.applyMetadata()
	c.begun = true
	if status != 0 {
		c.w.WriteHeader(status)
		return false, nil
	}
	h["Content-Type"] = contentTypes[c.format.media]
	if e, ok := m.(hasWriteErrors); ok && len(e.GetWriteErrors()) > 0 {
		code = http.StatusMultiStatus
	}
	if in == coding.Identity {
		c.length[0] = strconv.Itoa(length)
		h["Content-Length"] = c.length[:]
	}
	c.compress(in)
	c.w.WriteHeader(code)
	return c.r.Method != http.MethodHead, nil
}

// applyMetadata sets a header for each metadata key that is meant for clients.
func (c *call) applyMetadata() {
	for key, values := range c.metadata {
		if strings.HasPrefix(key, "mooring-") && !strings.EqualFold(key, requestIDHeader) {
			c.w.Header()[http.CanonicalHeaderKey(key)] = values
		}
	}
}

// writeFailure answers a call that has failed.
func (c *call) writeFailure(ctx context.Context, err error) {
	failed := c.handler.describe(err, c.id())
	c.log(ctx, failed)
	events := c.route != nil && c.format.media == mediaSSE
	transient := failed.Body.GetError().GetRetry() != string(rpcerr.Never)
	switch {
	case events && c.route.items.changes && c.isEvent(failed):
		c.writeChangesFailure(failed)
	case events && c.r.Method == http.MethodGet && transient && !c.rows:
		c.writeTransientFailure(failed.Body)
	case c.begun:
		c.writeStreamFailure(failed.Body)
	default:
		c.begun = true
		c.applyMetadata()
		c.handler.writeError(c.w, failed, c.format.mode)
	}
}

// knownMethod returns a method as the log has it. The log limits lines of the same method and
// reason, and clients may not choose how many there are.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions:
		return method
	default:
		return "other"
	}
}

// log logs a request that has reached no interceptor.
func (c *call) log(ctx context.Context, failed rpcerr.Response) {
	if c.called {
		return
	}
	e := failed.Body.GetError()
	c.handler.config.Refusals.Refused(ctx, &interceptor.Refusal{
		RequestID: c.id(), Client: address(c.r),
		Method: knownMethod(c.r.Method), Path: withoutTicket(c.r.URL.Path),
		Status: failed.Code, Code: codes.Code(e.GetCode()), Reason: e.GetReason(),
	})
}
