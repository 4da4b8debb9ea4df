package rest

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"

	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/gen/openapi"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/flood"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Config configures an API.
type Config struct {
	// Live returns why the process should be restarted, or nil if it should not. /healthz calls
	// it. If Live is unset, /healthz always succeeds.
	Live func(context.Context) error
	// Ready returns why the process should get no requests, or nil if it may. /readyz calls it. If
	// Ready is unset, /readyz always succeeds.
	Ready func(context.Context) error
	// Tickets opens the tickets of change streams. If it is nil, no ticket counts.
	Tickets Tickets
}

// API serves the REST API, and /openapi.json, /healthz and /readyz. What no API before it takes is
// its. It is safe for concurrent use. New returns one.
type API struct {
	tickets Tickets
	// liveTicket is the route of the tickets of Live, whose path is that of the other tickets.
	liveTicket *route
	routes     *node
	errors     *plan           // of ErrorResponse
	pages      map[string]page // by path
	texts      keeper
	shared     sharedTexts
}

// New returns an API.
func New(config Config) *API {
	plans := planner{}
	a := &API{
		tickets: config.Tickets, routes: newRoutes(plans),
		liveTicket: ticketRoute(plans, mooringv1.ChangeStreamService_Live_FullMethodName),
		errors:     plans.plan((*mooringv1.ErrorResponse)(nil).ProtoReflect().Descriptor()),
	}
	a.pages = map[string]page{
		"/":             func(x *front.Exchange) { writeJSON(x, http.StatusOK, []byte(about)) },
		"/openapi.json": newDescription().serve,
		"/healthz":      a.health(config.Live),
		"/readyz":       a.health(config.Ready),
	}
	return a
}

// about says at the root of the port what it is.
const about = `{"name":"Mooring",` +
	`"about":"A gateway for MongoDB, with REST under /v1 and with gRPC.",` +
	`"openapi":"/openapi.json","health":["/healthz","/readyz"],` +
	`"docs":"https://github.com/mooringdb/mooring/blob/main/docs/api.md"}`

// contentTypes has the header of each media type.
var contentTypes = [...][]string{
	media.JSON:   {"application/json"},
	media.EJSON:  {"application/ejson"},
	media.BSON:   {"application/bson"},
	media.NDJSON: {"application/x-ndjson"},
	media.SSE:    {"text/event-stream"},
	media.CSV:    {"text/csv; charset=utf-8; header=present"},
}

var _ front.API = (*API)(nil)

// Takes reports true.
func (a *API) Takes(*http.Request) bool { return true }

// Serve answers one request.
func (a *API) Serve(x *front.Exchange) {
	r := x.Request()
	if page := a.pages[r.URL.Path]; page != nil {
		flood.From(r.Context()).Waste() // it needs no credential
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			err := notAllowed(x, "GET, HEAD", nil)
			a.writeError(x, responseOf(x, x.Explain(r.Context(), err)), extjson.RelaxedSafe)
			return
		}
		page(x)
		return
	}
	c := &call{api: a, x: x, r: r, format: media.Format{Mode: extjson.RelaxedSafe}}
	x.LogPath = withoutTicket(x.LogPath)
	err := x.Admit(c.identify)
	if err == nil {
		err = c.open()
	}
	switch {
	case err != nil:
		c.writeFailure(r.Context(), err)
	case c.isOver():
		x.Response.WriteHeader(http.StatusNoContent)
	default:
		c.serve()
	}
}

// page answers a GET that is not a call.
type page func(x *front.Exchange)

// description has openapi.json in each coding. It is compressed once, when a client first asks for
// it, since clients without a credential may ask as often as they like.
type description map[coding.Coding]func() []byte

func newDescription() description {
	d := description{coding.Identity: func() []byte { return openapi.JSON }}
	for _, in := range [...]coding.Coding{coding.Gzip, coding.Zstd} {
		d[in] = sync.OnceValue(func() []byte {
			return bytes.Clone(in.Append(nil, openapi.JSON)) // which has room for more
		})
	}
	return d
}

func (d description) serve(x *front.Exchange) {
	in := x.Response.StreamCoding()
	if in != coding.Identity {
		x.Response.Header()["Content-Encoding"] = []string{in.String()}
	}
	writeJSON(x, http.StatusOK, d[in]())
}

// health answers with the state that check reports.
func (a *API) health(check func(context.Context) error) page {
	return func(x *front.Exchange) {
		var err error
		if check != nil {
			err = check(x.Request().Context())
		}
		if err == nil {
			writeJSON(x, http.StatusOK, []byte(`{"status":"ok"}`))
			return
		}
		failed := responseOf(x, x.Describe(err))
		if failed.Code != http.StatusServiceUnavailable {
			unhealthy := &rpcerr.Error{Reason: rpcerr.NoSuitableServer, Message: err.Error()}
			failed = responseOf(x, x.Describe(unhealthy))
		}
		a.writeError(x, failed, extjson.RelaxedSafe)
	}
}

// responseOf returns the response to a request that has failed.
func responseOf(x *front.Exchange, f *rpcerr.Failure) rpcerr.Response {
	failed := f.HTTP()
	failed.Body.GetError().RequestId = x.ID() // a failure of the interceptors has one
	return failed
}

// writeError writes a failure as a whole response.
func (a *API) writeError(x *front.Exchange, failed rpcerr.Response, mode extjson.Mode) {
	x.Response.SetRetryAfter(failed)
	writeJSON(x, failed.Code, a.errorText(failed.Body, mode))
}

// errorText returns the JSON of an error's body.
func (a *API) errorText(body *mooringv1.ErrorResponse, mode extjson.Mode) []byte {
	e := encoder{mode: mode, sparse: true}
	if err := e.object(a.errors, body.ProtoReflect(), false); err != nil {
		// The server's documents cannot be written. The rest of the error can.
		whole := body.GetError()
		body = &mooringv1.ErrorResponse{Error: &mooringv1.Error{
			Status: whole.GetStatus(), Reason: whole.GetReason(),
			Code: whole.GetCode(), Message: whole.GetMessage(),
			RequestId: whole.GetRequestId(), Retry: whole.GetRetry(),
			Truncated: true,
		}}
		e.buf = e.buf[:0]
		_ = e.object(a.errors, body.ProtoReflect(), false) // strings only
	}
	return e.buf
}

func writeJSON(x *front.Exchange, code int, body []byte) {
	out := &x.Response
	out.Header()["Content-Type"] = contentTypes[media.JSON]
	out.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	out.WriteHeader(code)
	out.Write(body)
}
