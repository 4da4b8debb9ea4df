// Package front is the HTTP front of the gateway: an http.Handler whose requests pass one set of
// checks, whichever API they belong to. It knows for which hosts the gateway answers, which pages
// may call, who calls, how fast a client must send and read, what memory a request takes, and how a
// response is compressed. A request that reaches no interceptor is recorded here.
//
// The APIs stand above it: rest, web, dataapi. It knows no path, no document and no form of an
// error; it hands each of them an Exchange, which is one request with its response.
package front

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
)

// Config configures a Handler. Only Conn is required.
type Config struct {
	// Conn makes the calls. The services are registered on it.
	Conn *inproc.Conn
	// Callers finds out who makes a call, before its body is read. If it is nil, clients are not
	// authenticated. The interceptors of Conn must have the same.
	Callers *caller.Authenticator
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
	// MinCompressed is the size from which a response is compressed. 0 means coding.DefaultMinSize.
	MinCompressed int
	// APIs lists what is served. A request belongs to the first one that takes it, and is not found
	// if none does.
	APIs []API
}

// API serves one of the ways in to the gateway. Its requests pass the same checks, and have the
// same limits.
type API interface {
	// Takes reports whether the API serves a request.
	Takes(r *http.Request) bool
	// Serve answers the request. When it returns, the request holds no memory any more.
	Serve(x *Exchange)
}

// DefaultMaxItems is the default of Config.MaxItems: as many writes as a server takes in a command.
const DefaultMaxItems = 100_000

const defaultMaxBodyBytes = 64 << 20

// Handler serves a port. It is safe for concurrent use. New returns one.
type Handler struct {
	config  Config
	buffers buffers
	access  atomic.Pointer[access]
	unread  unread
}

var _ http.Handler = (*Handler)(nil)

// New returns the handler of a port.
func New(config Config) (*Handler, error) {
	if config.Conn == nil {
		return nil, errors.New("front: no connection to the services")
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
	if config.MinCompressed == 0 {
		config.MinCompressed = coding.DefaultMinSize
	}
	h := &Handler{config: config}
	h.SetAccess(config.Hosts, config.CORS)
	config.Admission.AddReclaim(h.unread.cut)
	return h, nil
}

// Values of headers that most responses have.
var (
	noSniff      = []string{"nosniff"}
	noStore      = []string{"no-store"}
	privateCache = []string{"private, no-cache"}
	varyGet      = []string{"Accept, Accept-Encoding, Authorization, Api-Key, Apikey, " +
		SessionHeader + ", " + TransactionHeader}
	varyOther = []string{"Accept, Accept-Encoding"}
)

// ServeHTTP answers one request. If w has a method Failed(int, codes.Code), it gets the status of
// HTTP and the gRPC code of a failure: the status that is written may be that of a success, as of a
// stream that had begun.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := h.newExchange(w, r)
	header := w.Header()
	header[RequestIDHeader] = x.ids[:]
	header["X-Content-Type-Options"] = noSniff
	cache, vary := noStore, varyOther
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		cache, vary = privateCache, varyGet
	}
	header["Cache-Control"] = cache
	header["Vary"] = vary
	x.Body.limitSkipping()
	if h.access.Load().serveCORS(w, r) {
		return
	}
	defer x.Memory.account.Close()
	defer x.lent.Close()
	for _, api := range h.config.APIs {
		if api.Takes(r) {
			api.Serve(x)
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
}
