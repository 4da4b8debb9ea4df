package front

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/cors"

	"github.com/mooringdb/mooring/service/rpcerr"
)

// CORS says which pages of other origins a browser lets call. The zero value allows none.
type CORS struct {
	// Origins lists their origins. One * in an origin stands for any text, * alone is every page.
	Origins []string
	// Headers lists what else they may send, beside the headers of the API.
	Headers []string
	// Credentials says whether the browser may send its own: client certificates and cookies.
	Credentials bool
}

// corsAge is how many seconds a browser may keep the answer to a preflight.
const corsAge = 600

var sentMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete,
}

// sentHeaders lists the headers of requests that are not safe by themselves.
var sentHeaders = []string{
	"Accept", "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match",
	"Last-Event-Id", "Prefer", "Request-Timeout", "Traceparent", "Tracestate",
	RequestIDHeader, SessionHeader, TransactionHeader, "Mooring-Timeout",
	"Mooring-Document-Encoding", "Apikey", "Api-Key", "Jwttokenstring",
	"Grpc-Timeout", "X-Grpc-Web", "X-User-Agent", "Connect-Protocol-Version",
	"Connect-Timeout-Ms", "Content-Encoding", "Grpc-Encoding", "Grpc-Accept-Encoding",
	"Connect-Content-Encoding", "Connect-Accept-Encoding",
}

// exposedHeaders lists the headers of responses that pages may read.
var exposedHeaders = []string{
	"ETag", "Location", "Retry-After", "Preference-Applied", "Allow", "WWW-Authenticate",
	"Accept-Patch", WriteConcernErrorHeader,
	RequestIDHeader, SessionHeader, CursorHeader, TransactionHeader, TotalCountHeader,
	"Grpc-Encoding", "Connect-Content-Encoding",
}

// newCORS returns what answers the questions of browsers, nil if no page may call.
func newCORS(c CORS) *cors.Cors {
	if len(c.Origins) == 0 {
		return nil
	}
	return cors.New(cors.Options{
		AllowedOrigins:   c.Origins,
		AllowedMethods:   sentMethods,
		AllowedHeaders:   slices.Concat(sentHeaders, c.Headers),
		ExposedHeaders:   exposedHeaders,
		AllowCredentials: c.Credentials, MaxAge: corsAge,
	})
}

// access says by which names, and from which pages, the API may be called.
type access struct {
	hosts   []string   // Config.Hosts
	cors    *cors.Cors // nil: no page may call
	headers []string   // CORS.Headers
}

// SetAccess changes Config.Hosts and Config.CORS for the requests that begin from now on.
func (h *Handler) SetAccess(hosts []string, c CORS) {
	h.access.Store(&access{hosts, newCORS(c), c.Headers})
}

// serveCORS sets the headers for a page of an allowed origin. It answers a preflight, which
// carries no credential, and reports whether the request is one.
func (a *access) serveCORS(w http.ResponseWriter, r *http.Request) bool {
	if a.cors == nil || r.Header["Origin"] == nil {
		return false
	}
	a.cors.HandlerFunc(w, r)
	if !isPreflight(r) {
		return false
	}
	const allowed = "Access-Control-Allow-Origin"
	if header := w.Header(); header.Get(allowed) == "" && a.cors.OriginAllowed(r) {
		// The page asks for a header or a method that is not listed. Told what is, the browser
		// blames that, and not the page's origin.
		header.Set(allowed, r.Header.Get("Origin"))
		header.Set("Access-Control-Allow-Methods", strings.Join(sentMethods, ", "))
		header.Set("Access-Control-Allow-Headers",
			strings.Join(slices.Concat(sentHeaders, a.headers), ", "))
	}
	return true
}

// isPreflight reports whether a browser asks what a page may send.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header["Access-Control-Request-Method"] != nil
}

// sameOrigin refuses requests that can change something and that a browser sends for a page of
// another origin.
var sameOrigin http.CrossOriginProtection

// isForeign reports whether a browser sends the request for a page that may not send it.
func (a *access) isForeign(r *http.Request) bool {
	if a.cors != nil && r.Header["Origin"] != nil && a.cors.OriginAllowed(r) {
		return false
	}
	return sameOrigin.Check(r) != nil
}

// maxOrigin is the length of the longest origin that an error repeats.
const maxOrigin = 256

// foreign says why the request of a page of another origin is refused, and who can allow it.
func foreign(origin string) string {
	const refused = "a browser sends this request for a page of another origin"
	if origin == "" || len(origin) > maxOrigin {
		return refused
	}
	return refused + ", " + strconv.Quote(origin) + ", which is not in rest.cors.origins"
}

// checkHost refuses names that are not the gateway's.
func (a *access) checkHost(host string) error {
	if a.hosts == nil || isOwnHost(host, a.hosts) {
		return nil
	}
	return refuse(rpcerr.UnknownHost, "the gateway does not answer for the host "+
		strconv.Quote(host)+": its operator can add the name to rest.hosts")
}

// isOwnHost reports whether a Host names the gateway: an IP address, localhost or one of the
// names. A page cannot point an IP address at another machine.
func isOwnHost(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		slices.ContainsFunc(names, func(name string) bool { return matchesHost(name, host) })
}

// matchesHost reports whether a host is a name of Config.Hosts, or one of the names below it.
func matchesHost(name, host string) bool {
	if parent, ok := strings.CutPrefix(name, "*"); ok {
		return strings.HasSuffix(host, parent) && len(host) > len(parent)
	}
	return host == name
}
