package rest

import (
	"context"
	"io"
	"net/http"
	"time"

	"google.golang.org/grpc/metadata"

	servicecall "github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Protocol serves another API, or the same API in another protocol, on the port of REST. Its
// requests pass the same checks as those of REST, and have the same limits.
type Protocol interface {
	// Takes reports whether the request is one of the protocol.
	Takes(r *http.Request) bool
	// Serve answers the request. When it returns, the request holds no memory any more.
	Serve(q *Request)
}

// Request represents one request of a Protocol. The goroutine that net/http starts for the request
// owns it.
type Request struct{ call *call }

// HTTP returns the request, which must not be changed.
func (q *Request) HTTP() *http.Request { return q.call.r }

// Header returns the header of the response. It has the headers that all responses have.
func (q *Request) Header() http.Header { return q.call.w.Header() }

// ID returns the request's id.
func (q *Request) ID() string { return q.call.id() }

// Admit decides whether the request may be a call: whether the gateway answers for its host,
// whether a browser may send it, and who its client is. add, if it is not nil, adds credentials
// that REST does not know. Nothing of the body is read before that.
func (q *Request) Admit(add func(*caller.Presented)) error {
	q.call.present = add
	return q.call.enter(q.call.r.Context())
}

// Context returns the context of the call, which ends after the timeout; 0 means never. The caller
// must call cancel.
func (q *Request) Context(timeout time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(q.call.r.Context())
	}
	q.call.deadline = time.Now().Add(timeout)
	return context.WithDeadline(q.call.r.Context(), q.call.deadline)
}

// Timeout returns the shortest of the timeouts that the request's headers and query have, as REST
// reads them, or 0.
func (q *Request) Timeout() (time.Duration, error) {
	return timeout(q.call.r.Header.Get, q.call.r.URL.Query())
}

// RefusePreconditions refuses the headers with which a call happens only if a document has not
// changed, such as If-Match: calls of other protocols do not take them.
func (q *Request) RefusePreconditions() error {
	return refusePreconditions(q.call.r.Method, q.call.r.Header)
}

// ReadBody returns the whole body, which is charged. The client must keep pace. The caller must
// call release when nothing points into the body any more, if there is no error.
func (q *Request) ReadBody() (body []byte, release func(), err error) {
	b, err := q.call.readBody()
	if err != nil {
		return nil, nil, err
	}
	return b.b, func() { q.call.handler.buffers.put(b) }, nil
}

// Body returns the body, whose client must keep pace. It is not charged and has no limit.
func (q *Request) Body() io.Reader { return &patientBody{q.call} }

// Unread returns the error of a body that could not be read, from the error of its Reader.
func (q *Request) Unread(err error) error { return q.call.unread(err) }

// MaxBodyBytes returns the limit on a body.
func (q *Request) MaxBodyBytes() int64 { return q.call.handler.config.MaxBodyBytes }

// MaxItems returns the limit on the items of all lists of a request.
func (q *Request) MaxItems() int { return q.call.handler.config.MaxItems }

// Work does the work on a text of that size, such as decoding it. If that is heavy, the call has a
// turn for it, so that heavy work leaves time to small calls. Work must not wait for anything but
// what the methods of q wait for.
func (q *Request) Work(size int, do func() error) error { return q.call.work(size, do) }

// Charge charges the call with memory before it is taken.
func (q *Request) Charge(bytes int64) error { return q.call.charge(bytes) }

// ChargeLast charges the call with memory of its response.
func (q *Request) ChargeLast(bytes int64) error { return q.call.chargeLast(bytes) }

// Release returns memory that Charge has charged.
func (q *Request) Release(bytes int64) { q.call.account.Shrink(bytes) }

// MakeRoom charges the call with the text of a large document before it is written. The texts of a
// response follow each other in one buffer, and ReleaseRoom returns its memory.
func (q *Request) MakeRoom(doc []byte) error {
	if len(doc) < largeDocument {
		return nil
	}
	return q.call.makeRoom(textSize(doc))
}

// ReleaseRoom returns what MakeRoom has charged, when the text is written and its buffer is not
// used any more.
func (q *Request) ReleaseRoom() { q.call.releaseRoom() }

// Conn returns the connection for the calls.
func (q *Request) Conn() *inproc.Conn { return q.call.handler.config.Conn }

// Incoming returns the context of a call on Conn. md is the metadata of the client, which Incoming
// owns. form says what becomes of the documents: only its Text, Built and Whole count.
func (q *Request) Incoming(
	ctx context.Context, md metadata.MD, form servicecall.Local,
) context.Context {
	q.call.called = true
	return inproc.WithIncoming(ctx, servicecall.Local{
		RequestID: q.call.id(), Identity: q.call.identity, Client: address(q.call.r),
		Account: q.call.charged(), Text: form.Text, Built: form.Built, Whole: form.Whole,
	}, q.call.forward(md))
}

// Explain returns a failure as clients see it, and logs it if no interceptor has.
func (q *Request) Explain(ctx context.Context, err error) *rpcerr.Failure {
	of := servicecall.Call{Terse: q.call.handler.config.Terse}
	of.RequestID = q.call.id()
	failed := rpcerr.Explain(err, of)
	q.call.log(ctx, failed.HTTP())
	return failed
}

// WriteHeader writes the status and the header.
func (q *Request) WriteHeader(code int) { q.call.w.WriteHeader(code) }

// Write writes a part of a response that is not a stream, and reports whether it could. The client
// must read.
func (q *Request) Write(b []byte) bool {
	defer q.call.pause()()
	return writeAll(q.call.w, b)
}

// Send writes a part of a stream, and flushes it. It blocks until the client has taken it, or has
// read nothing for too long.
func (q *Request) Send(b []byte) error { return q.call.send(b) }

// AcceptsEJSON chooses between application/json and application/ejson by the values of Accept, and
// reports whether it is the latter. ok is false if neither is acceptable.
func AcceptsEJSON(accepts []string) (ejson, ok bool) {
	chosen, ok := accept(accepts, offerSingle)
	return chosen.media == mediaEJSON, ok
}

// serveProtocol serves a request of another protocol. It reports whether it is one.
func (h *Handler) serveProtocol(c *call) bool {
	for _, p := range h.config.Protocols {
		if p.Takes(c.r) {
			p.Serve(&Request{c})
			return true
		}
	}
	return false
}
