package front

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	servicecall "github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/flood"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Exchange represents one request and its response. The goroutine that net/http starts for the
// request owns it.
type Exchange struct {
	// Body reads the request's body.
	Body Body
	// Response writes to the client.
	Response Response
	// Memory charges what the request takes.
	Memory Memory
	// LogPath is the request's path as logs have it. It has no segment that may be a secret.
	LogPath string

	front    *Handler
	w        http.ResponseWriter
	r        *http.Request
	ids      [1]string // the request's id, as a header has it
	identity *caller.Identity
	admitted bool      // the client may make calls
	rpc      string    // that the request calls; empty: it is not known
	deadline time.Time // of the call; zero: none
	called   bool      // the request has reached the interceptors
	// lent is the memory that responses of Conn have views of, until the exchange ends.
	lent servicecall.Lent
}

func (h *Handler) newExchange(w http.ResponseWriter, r *http.Request) *Exchange {
	x := &Exchange{
		front: h, w: w, r: r, ids: [1]string{requestID(r)},
		LogPath: interceptor.LogPath(r.URL.Path),
	}
	x.Body.x, x.Response.x, x.Memory.x = x, x, x
	x.Memory.work = x.Memory.account.Work(r.Context())
	return x
}

// requestID returns the client's id for the request if it is valid, or a new id.
func requestID(r *http.Request) string {
	if id := r.Header.Get(RequestIDHeader); interceptor.IsRequestID(id) {
		return id
	}
	return interceptor.NewRequestID()
}

// Request returns the request, which must not be changed.
func (x *Exchange) Request() *http.Request { return x.r }

// ID returns the request's id.
func (x *Exchange) ID() string { return x.ids[0] }

// MaxItems returns the limit on the items of all lists of a request.
func (x *Exchange) MaxItems() int { return x.front.config.MaxItems }

// Conn returns the connection for the calls.
func (x *Exchange) Conn() *inproc.Conn { return x.front.config.Conn }

// Buffer returns an empty buffer, which the caller frees.
func (x *Exchange) Buffer() *Buffer { return x.front.buffers.get(&x.Response) }

// Admit decides whether the request may be a call: whether the gateway answers for its host,
// whether a browser may send it, who its client is, and whether its URL is short enough. identify
// finds out who the client is; nil means Identify. Nothing of the query or the body is read before
// that.
func (x *Exchange) Admit(identify func(context.Context) (*caller.Identity, error)) (err error) {
	a := x.front.access.Load()
	if err := a.checkHost(x.r.Host); err != nil {
		return err
	}
	if a.isForeign(x.r) {
		return refuse(rpcerr.CrossOrigin, foreign(x.r.Header.Get("Origin")))
	}
	if identify == nil {
		x.identity, err = x.Identify(x.r.Context(), nil)
	} else {
		x.identity, err = identify(x.r.Context())
	}
	if e, ok := errors.AsType[*caller.Error](err); ok {
		x.w.Header()["Www-Authenticate"] = challenges[e.Problem]
	}
	if err != nil {
		return err
	}
	if x.identity != nil {
		flood.From(x.r.Context()).Trust()
	}
	x.admitted = true
	x.Memory.open()
	return checkURL(x.r)
}

const maxURLBytes = 8 << 10

// checkURL refuses a URL that is too long.
func checkURL(r *http.Request) error {
	if len(r.RequestURI) <= maxURLBytes {
		return nil
	}
	message := "the URL is longer than " + strconv.Itoa(maxURLBytes) + " bytes"
	if r.Method == http.MethodGet {
		message += ": send the request as a POST"
	}
	return refuse(rpcerr.URITooLong, message)
}

// Calls says which RPC the request calls. If the request is refused before it is a call, that is
// recorded as a refusal of the RPC.
func (x *Exchange) Calls(rpc string) { x.rpc = rpc }

// Identify returns who makes the call, nil if clients are not authenticated. add, if it is not nil,
// adds credentials to those of all requests. What browsers ask before a call needs no credential.
func (x *Exchange) Identify(
	ctx context.Context, add func(*caller.Presented),
) (*caller.Identity, error) {
	callers := x.front.config.Callers
	if callers == nil || isPreflight(x.r) {
		return nil, nil
	}
	presented := fromRequest(x.r)
	if add != nil {
		add(presented)
	}
	return callers.Authenticate(ctx, presented)
}

// Timeout returns the shortest of the timeouts that the request's headers and query have, or 0.
func (x *Exchange) Timeout(query url.Values) (time.Duration, error) {
	return timeout(x.r.Header.Get, query)
}

// Context returns the context of the call, which ends after the timeout; 0 means never. Until
// Incoming, waits for memory end with it, too. The caller must call cancel.
func (x *Exchange) Context(timeout time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	if timeout <= 0 {
		return x.r.Context(), func() {}
	}
	x.deadline = time.Now().Add(timeout)
	ctx, cancel = context.WithDeadline(x.r.Context(), x.deadline)
	x.Memory.within(ctx)
	return ctx, cancel
}

// forwarded lists the headers that become metadata.
var forwarded = [...]struct{ header, key string }{
	{"Idempotency-Key", "idempotency-key"},
	{"Traceparent", "traceparent"},
	{"Tracestate", "tracestate"},
}

// Incoming returns the context of a call on Conn. md is the metadata of the client, which Incoming
// owns; no header reaches a handler but those that all APIs forward. local says what the API knows
// of the call; Incoming sets who calls. The memory that comes next is that of the answer, for which
// a wait does not end with the call: it may be the answer of a write.
func (x *Exchange) Incoming(
	ctx context.Context, md metadata.MD, local servicecall.Local,
) context.Context {
	for _, f := range forwarded {
		if v := x.r.Header[f.header]; v != nil {
			if md == nil {
				md = make(metadata.MD, len(forwarded))
			}
			md[f.key] = v
		}
	}
	local.RequestID, local.Identity, local.Client = x.ID(), x.identity, address(x.r)
	if x.front.config.Admission != nil {
		local.Account = &x.Memory.account
	}
	local.Lent = &x.lent
	x.Memory.within(x.r.Context())
	x.called = x.called || ctx.Err() == nil // Conn refuses the call otherwise
	return inproc.WithIncoming(ctx, local, md)
}

// Work does the work on a text of that size, such as decoding it. If that is heavy, the call has a
// turn for it, so that heavy work leaves time to small calls. Work must not wait for anything but
// what the methods of the parts of x wait for. What a client that has gone would get is made, too:
// an error would say that it cannot be.
func (x *Exchange) Work(size int, do func() error) error {
	_ = x.Memory.Do(size)
	defer x.Memory.work.Rest()
	return do()
}

// Describe returns a failure as clients see it.
func (x *Exchange) Describe(err error) *rpcerr.Failure {
	of := servicecall.Call{Terse: x.front.config.Terse}
	of.RequestID = x.ID()
	return rpcerr.Explain(err, of)
}

// Explain returns a failure as clients see it. It records the failure if the request has reached
// no interceptor, and blocks while it holds back that of a client that has had many.
func (x *Exchange) Explain(ctx context.Context, err error) *rpcerr.Failure {
	failed := x.Describe(err)
	if w, ok := x.w.(interface {
		Failed(status int, code codes.Code)
	}); ok {
		w.Failed(failed.HTTPStatus(), failed.Code())
	}
	if !x.called {
		if x.identity == nil {
			flood.From(x.r.Context()).Waste() //nolint:contextcheck // the connection's
		}
		refusal := &interceptor.Refusal{
			RequestID: x.ID(), Client: address(x.r), Admitted: x.admitted,
			Method: knownMethod(x.r.Method), Path: x.LogPath, RPC: x.rpc,
			Status: failed.HTTPStatus(), Code: failed.Code(), Reason: failed.Reason(),
		}
		if x.identity != nil {
			refusal.Principal = x.identity.Principal
		}
		x.front.config.Refusals.Refused(ctx, refusal)
	}
	return failed
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

// address returns where the client of a request is, the zero value if that is not known.
func address(r *http.Request) netip.Addr {
	client, _ := netip.ParseAddrPort(r.RemoteAddr)
	return client.Addr().Unmap()
}

// challenges holds the header that says how to authenticate (RFC 6750, 3).
var challenges = map[caller.Problem][]string{
	caller.Missing: {`Bearer realm="mooring"`},
	caller.Invalid: {`Bearer realm="mooring", error="invalid_token"`},
}

// fromRequest returns what a client presents with a request.
func fromRequest(r *http.Request) *caller.Presented {
	p := &caller.Presented{
		Authorization: r.Header["Authorization"],
		APIKey:        caller.Join(r.Header["Api-Key"], r.Header["Apikey"]),
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		p.Certificate = r.TLS.VerifiedChains[0][0]
	}
	p.Address = address(r)
	return p
}
