package rest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/gen/openapi"
	"github.com/mooringdb/mooring/service/admission"
	servicecall "github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Config configures a Handler. Only Conn is required.
type Config struct {
	// Conn makes the calls. The services are registered on it.
	Conn *inproc.Conn
	// Live returns why the process should be restarted, or nil if it should not. /healthz calls
	// it. If Live is unset, /healthz always succeeds.
	Live func(context.Context) error
	// Ready returns why the process should get no requests, or nil if it may. /readyz calls it. If
	// Ready is unset, /readyz always succeeds.
	Ready func(context.Context) error
	// Callers finds out who makes a call, before its body is read. If it is nil, clients are not
	// authenticated. The interceptors of Conn must have the same.
	Callers *caller.Authenticator
	// Tickets opens the tickets of change streams. If it is nil, no ticket counts.
	Tickets Tickets
	// Admission limits what calls use. If it is nil, nothing is limited. The interceptors of Conn
	// must have the same.
	Admission *admission.Admission
	// Hosts lists the names in Host for which the API answers, in lower case and without a port,
	// beside localhost and IP addresses. *.name stands for all names that end with .name. Nil
	// means any name. A page of another site can reach a gateway by a name of its own that it
	// points at the gateway's address (DNS rebinding).
	Hosts []string
	// MaxBodyBytes limits the request body. 0 means 64 MiB.
	MaxBodyBytes int64
	// Terse is call.Call.Terse for requests that reach no interceptor, and for /readyz.
	Terse bool
	// MaxItems limits the items of all lists of a request. 0 means DefaultMaxItems.
	MaxItems int
	// BodyTimeout is how long a client may take for each 64 KiB of a body, and before it must have
	// sent 16 KiB a second on average. 0 means 30 s.
	BodyTimeout time.Duration
	// StallTimeout is how long a client may read nothing of a stream before its connection is
	// closed. 0 means the interceptors' default.
	StallTimeout time.Duration
	// Refusals records the requests that are refused and reach no interceptor, which records the
	// others.
	Refusals interceptor.Refusals
	// CORS says which pages of other origins may call.
	CORS CORS
	// Protocols lists what else is served on the port. A request belongs to the first one that
	// takes it, and to REST if none does.
	Protocols []Protocol
}

// DefaultMaxItems is the default of Config.MaxItems: as many writes as a server takes in a command.
const DefaultMaxItems = 100_000

const (
	defaultMaxBodyBytes = 64 << 20
	maxURLBytes         = 8 << 10
)

// Handler serves the REST API, and /openapi.json, /healthz and /readyz. It is safe for concurrent
// use. New returns one.
type Handler struct {
	config  Config
	routes  *node
	errors  *plan // of ErrorResponse
	buffers buffers
	pages   map[string]page // by path
	access  atomic.Pointer[access]
	unread  unread
}

var _ http.Handler = (*Handler)(nil)

// New returns the handler of the whole REST port.
func New(config Config) (*Handler, error) {
	if config.Conn == nil {
		return nil, errors.New("rest: no connection to the services")
	}
	if config.MaxBodyBytes == 0 {
		config.MaxBodyBytes = defaultMaxBodyBytes
	}
	if config.MaxItems == 0 {
		config.MaxItems = DefaultMaxItems
	}
	if config.BodyTimeout == 0 {
		config.BodyTimeout = defaultBodyTimeout
	}
	if config.StallTimeout == 0 {
		config.StallTimeout = interceptor.DefaultStallTimeout
	}
	plans := planner{}
	errorResponse := (*mooringv1.ErrorResponse)(nil).ProtoReflect().Descriptor()
	h := &Handler{
		config: config, errors: plans.plan(errorResponse), routes: newRoutes(plans),
	}
	h.SetAccess(config.Hosts, config.CORS)
	config.Admission.AddReclaim(h.unread.cut)
	h.pages = map[string]page{
		"/": func(c *call) { writeJSON(c.w, http.StatusOK, []byte(about)) },
		"/openapi.json": func(c *call) {
			c.w.Header()["Content-Type"] = contentTypes[mediaJSON]
			in := c.codingFor(len(openapi.JSON))
			if in == coding.Identity {
				c.w.Header().Set("Content-Length", strconv.Itoa(len(openapi.JSON)))
			}
			c.compress(in)
			c.w.WriteHeader(http.StatusOK)
			if c.r.Method != http.MethodHead {
				c.write(openapi.JSON)
				c.endBody()
			}
		},
		"/healthz": h.health(config.Live),
		"/readyz":  h.health(config.Ready),
	}
	return h, nil
}

// about says at the root of the port what it is.
const about = `{"name":"Mooring",` +
	`"about":"A gateway for MongoDB, with REST under /v1 and with gRPC.",` +
	`"openapi":"/openapi.json","health":["/healthz","/readyz"],` +
	`"docs":"https://github.com/mooringdb/mooring/blob/main/docs/api.md"}`

// Values of headers that most responses have.
var (
	contentTypes = [...][]string{
		mediaJSON:   {"application/json"},
		mediaEJSON:  {"application/ejson"},
		mediaBSON:   {"application/bson"},
		mediaNDJSON: {"application/x-ndjson"},
		mediaSSE:    {"text/event-stream"},
	}
	noSniff      = []string{"nosniff"}
	noStore      = []string{"no-store"}
	privateCache = []string{"private, no-cache"}
	varyGet      = []string{"Accept, Accept-Encoding, Authorization, Api-Key, Apikey, " +
		sessionHeader + ", " + transactionHeader}
	varyOther = []string{"Accept, Accept-Encoding"}
)

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{
		handler: h, w: w, r: r,
		ids: [1]string{requestID(r)}, format: format{mode: extjson.RelaxedSafe},
		turn: h.config.Admission.Turn(),
	}
	header := w.Header()
	header[requestIDHeader] = c.ids[:]
	header["X-Content-Type-Options"] = noSniff
	cache, vary := noStore, varyOther
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		cache, vary = privateCache, varyGet
	}
	header["Cache-Control"] = cache
	header["Vary"] = vary
	c.limitSkipping()
	if h.serveCORS(w, r) {
		return
	}
	if page := h.pages[r.URL.Path]; page != nil {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			c.writeFailure(r.Context(), c.notAllowed("GET, HEAD", nil))
			return
		}
		page(c)
		return
	}
	defer c.account.Close()
	if h.serveProtocol(c) {
		return
	}
	switch err := c.admit(r.Context()); {
	case err != nil:
		c.writeFailure(r.Context(), err)
	case c.isOver():
		w.WriteHeader(http.StatusNoContent)
	default:
		c.serve(r.Context())
	}
}

// page answers a GET that is no call.
type page func(c *call)

// health answers with the state that check reports.
func (h *Handler) health(check func(context.Context) error) page {
	return func(c *call) {
		var err error
		if check != nil {
			err = check(c.r.Context())
		}
		if err == nil {
			writeJSON(c.w, http.StatusOK, []byte(`{"status":"ok"}`))
			return
		}
		failed := h.describe(err, c.id())
		if failed.Code != http.StatusServiceUnavailable {
			unhealthy := &rpcerr.Error{Reason: rpcerr.NoSuitableServer, Message: err.Error()}
			failed = h.describe(unhealthy, c.id())
		}
		h.writeError(c.w, failed, extjson.RelaxedSafe)
	}
}

// describe returns a failure as clients see it.
func (h *Handler) describe(err error, id string) rpcerr.Response {
	of := servicecall.Call{Terse: h.config.Terse}
	of.RequestID = id
	failed := rpcerr.Explain(err, of).HTTP()
	failed.Body.GetError().RequestId = id // a failure of the interceptors has one
	return failed
}

func (h *Handler) writeError(w http.ResponseWriter, failed rpcerr.Response, mode extjson.Mode) {
	if failed.Code == http.StatusServiceUnavailable || failed.Code == http.StatusTooManyRequests {
		wait := max(failed.RetryAfter, time.Second)
		seconds := int64((wait + time.Second - 1) / time.Second)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	writeJSON(w, failed.Code, h.errorText(failed.Body, mode))
}

// errorText returns the JSON of an error's body.
func (h *Handler) errorText(body *mooringv1.ErrorResponse, mode extjson.Mode) []byte {
	e := encoder{mode: mode, sparse: true}
	if err := e.object(h.errors, body.ProtoReflect(), false); err != nil {
		// The server's documents cannot be written. The rest of the error can.
		whole := body.GetError()
		body = &mooringv1.ErrorResponse{Error: &mooringv1.Error{
			Status: whole.GetStatus(), Reason: whole.GetReason(),
			Code: whole.GetCode(), Message: whole.GetMessage(),
			RequestId: whole.GetRequestId(), Retry: whole.GetRetry(),
			Truncated: true,
		}}
		e.buf = e.buf[:0]
		_ = e.object(h.errors, body.ProtoReflect(), false) // strings only
	}
	return e.buf
}

func writeJSON(w http.ResponseWriter, code int, body []byte) {
	w.Header()["Content-Type"] = contentTypes[mediaJSON]
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(code)
	writeAll(w, body)
}

// A client has writePatience for each writeChunk of a response that is not a stream. A client that
// reads slowly gets all of the response. A client that has stopped reading holds a goroutine and
// memory for at most writePatience.
const (
	writePatience = 30 * time.Second
	writeChunk    = 64 << 10
)

// writeAll writes a body, and reports whether it could. If a write fails, the client has
// disconnected or does not read, so there is no error. net/http writes the rest of its buffer under
// the last deadline, and removes the deadline afterwards.
func writeAll(w http.ResponseWriter, body []byte) bool {
	connection := http.NewResponseController(w)
	for {
		// This fails if there is no connection.
		_ = connection.SetWriteDeadline(time.Now().Add(writePatience))
		n, err := w.Write(body[:min(len(body), writeChunk)])
		if body = body[n:]; err != nil || len(body) == 0 {
			return err == nil
		}
	}
}

// requestID returns the client's id for the request if it is valid, or a new id.
func requestID(r *http.Request) string {
	if id := r.Header.Get(requestIDHeader); interceptor.IsRequestID(id) {
		return id
	}
	return interceptor.NewRequestID()
}
