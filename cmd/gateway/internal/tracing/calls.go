package tracing

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/spans"
)

// The spans of calls are made here, and not by otelhttp and otelgrpc: those collect the attributes
// of each call, and wrap its reader and writer, also if the span is not recorded, which is most of
// what tracing would cost. Names and attributes are OpenTelemetry's semantic conventions.

// HTTP returns a handler that makes a span of each request, under that of the client if its
// headers name one. Health checks have none.
func (t *Tracing) HTTP(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			next.ServeHTTP(w, r)
			return
		}
		ctx := r.Context()
		if len(r.Header["Traceparent"]) > 0 { // a propagator would allocate to see that it is empty
			ctx = propagator.Extract(ctx, headers(r.Header))
		}
		id, unrecorded := t.decide(ctx, spanMethod(r))
		if unrecorded.IsValid() {
			next.ServeHTTP(w, withIDs(ctx, r, unrecorded))
			return
		}
		ctx, span := t.record(ctx, id, spanMethod(r))
		r = r.WithContext(ctx)
		defer span.End()
		span.SetAttributes(requestAttributes(r)...)
		recorder := &responseWriter{ResponseWriter: w}
		defer recorder.describe(span, r)
		next.ServeHTTP(recorder, r)
	})
}

// withIDs returns the request with the ids of a span that is not recorded. It makes one allocation:
// the request that WithContext returns stays on the stack.
func withIDs(ctx context.Context, r *http.Request, ids trace.SpanContext) *http.Request {
	one := &struct {
		context spans.Unrecorded
		request http.Request
	}{context: spans.Unrecorded{Context: ctx, IDs: ids}}
	one.request = *r.WithContext(&one.context) //nolint:contextcheck // it has ctx
	return &one.request
}

// The lengths of the longest texts of clients in a span. Longer ones are cut off.
const (
	maxMethod = 32
	maxAgent  = 256
	maxName   = 1 << 10 // of a gRPC method
)

// isKnown has the methods that may be the value of http.request.method.
var isKnown = map[string]bool{
	http.MethodConnect: true, http.MethodDelete: true, http.MethodGet: true,
	http.MethodHead: true, http.MethodOptions: true, http.MethodPatch: true,
	http.MethodPost: true, http.MethodPut: true, http.MethodTrace: true, "QUERY": true,
}

// spanMethod returns what the name of a span says of the method: HTTP, if that is not a known one.
func spanMethod(r *http.Request) string {
	if isKnown[r.Method] {
		return r.Method
	}
	return "HTTP"
}

// requestAttributes leaves the URL out: its query may have a filter, with the caller's values, and
// its path a ticket, which is a credential. The route says what was asked for.
func requestAttributes(r *http.Request) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("http.request.method", r.Method),
		attribute.String("url.scheme", "http"),
		attribute.String("network.protocol.version", strconv.Itoa(r.ProtoMajor)),
	}
	if r.TLS != nil {
		all[1] = attribute.String("url.scheme", "https")
	}
	if !isKnown[r.Method] {
		all[0] = attribute.String("http.request.method", "_OTHER")
		all = append(all,
			attribute.String("http.request.method_original", spans.Text(r.Method, maxMethod)))
	}
	if agent := r.UserAgent(); agent != "" {
		all = append(all, attribute.String("user_agent.original", spans.Text(agent, maxAgent)))
	}
	return append(all, clientAddress(r.RemoteAddr)...)
}

func clientAddress(remote string) []attribute.KeyValue {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return []attribute.KeyValue{attribute.String("client.address", host)}
	}
	return nil
}

// responseWriter records the status of a response.
type responseWriter struct {
	http.ResponseWriter
	status int // 0: none was written
	// fault is the code of a call that has failed by a fault of the gateway or the servers.
	fault grpccodes.Code
}

// Failed records how a call has failed: see front.Handler.
func (w *responseWriter) Failed(status int, code grpccodes.Code) {
	if status >= http.StatusInternalServerError {
		w.fault = code
	}
}

// Unwrap lets an http.ResponseController find the methods of the writer.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *responseWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// requestIDHeader has the request's id in responses of REST.
const requestIDHeader = "Mooring-Request-Id"

// describe adds what is known when the request has been answered.
func (w *responseWriter) describe(span trace.Span, r *http.Request) {
	if r.Pattern != "" { // the route, without the caller's names
		span.SetName(spanMethod(r) + " " + r.Pattern)
		span.SetAttributes(attribute.String("http.route", r.Pattern))
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	span.SetAttributes(attribute.Int("http.response.status_code", w.status),
		requestID(w.Header().Get(requestIDHeader)))
	switch {
	case w.status >= http.StatusInternalServerError:
		setFailed(span, strconv.Itoa(w.status))
	case w.status < http.StatusBadRequest && w.fault != grpccodes.OK: // the body says so
		setFailed(span, w.fault.String())
	}
}

// setFailed makes a span one that has failed.
func setFailed(span trace.Span, why string) {
	span.SetAttributes(attribute.String("error.type", why))
	span.SetStatus(codes.Error, "")
}

// requestID returns the attribute that leads from a span to the lines of the log.
func requestID(id string) attribute.KeyValue {
	return attribute.String("mooring.request_id", id)
}

// GRPC returns the function that begins the span of a call, under that of the client if its
// metadata name one, and returns what ends it; nil if there are no spans.
func (t *Tracing) GRPC() func(
	ctx context.Context, method string,
) (context.Context, func(error)) {
	if t == nil {
		return nil
	}
	return t.beginCall
}

func (t *Tracing) beginCall(
	ctx context.Context, method string,
) (context.Context, func(error)) {
	name := spans.Text(method[1:], maxName) // the client's, also if there is no such method
	ctx, span := t.begin(ofCaller(ctx), name)
	if span == nil {
		return ctx, func(error) {}
	}
	span.SetAttributes(attribute.String("rpc.system.name", "grpc"),
		attribute.String("rpc.method", name))
	if p, ok := peer.FromContext(ctx); ok {
		span.SetAttributes(clientAddress(p.Addr.String())...)
	}
	return ctx, func(err error) { endCall(span, err) }
}

// ofCaller returns the context of a call with the span that its metadata name. The metadata are
// copied only if they name one.
func ofCaller(ctx context.Context) context.Context {
	if len(metadata.ValueFromIncomingContext(ctx, "traceparent")) == 0 {
		return ctx
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return propagator.Extract(ctx, carrier(md))
}

func endCall(span trace.Span, err error) {
	defer span.End()
	code := status.Code(err)
	name := code.String()
	span.SetAttributes(attribute.String("rpc.response.status_code", name))
	if isServersFault(code) {
		setFailed(span, name)
	}
}

// isServersFault reports whether a code makes the span of a server one that has failed. Other codes
// are the client's to judge.
func isServersFault(code grpccodes.Code) bool {
	switch code {
	case grpccodes.Unknown, grpccodes.DeadlineExceeded, grpccodes.Unimplemented,
		grpccodes.Internal, grpccodes.Unavailable, grpccodes.DataLoss:
		return true
	default:
		return false
	}
}

// Inject adds the headers that name the span in ctx to the metadata of a call to another replica.
func (t *Tracing) Inject(ctx context.Context, md metadata.MD) {
	inject(ctx, carrier(md))
}

// Comment returns a document that names the span in ctx, for the comment of commands; nil if it is
// not recorded.
func (t *Tracing) Comment(ctx context.Context) *bson.Value {
	if !spans.Of(ctx).IsSampled() {
		return nil
	}
	names := propagation.MapCarrier{}
	inject(ctx, names)
	b := new(bson.Builder)
	for _, key := range slices.Sorted(maps.Keys(names)) {
		b.String(key, names[key])
	}
	comment := bson.DocumentValue(b.Finish())
	return &comment
}

// inject adds the headers that name the span in ctx, recorded or not.
func inject(ctx context.Context, headers propagation.TextMapCarrier) {
	propagator.Inject(trace.ContextWithSpanContext(ctx, spans.Of(ctx)), headers)
}

// header returns the value of a header that propagators read. Trace Context lets a client send
// several tracestate headers, which are one list. It does not allow several of another one: there
// is no saying which is right, so all are ignored.
func header(key string, all []string) string {
	switch {
	case len(all) == 1:
		return all[0]
	case key == "tracestate":
		return strings.Join(all, ",")
	default:
		return ""
	}
}

// headers makes those of a request readable for a propagator.
type headers http.Header

var _ propagation.TextMapCarrier = headers(nil)

// Get returns the value of a key, empty if there is none.
func (h headers) Get(key string) string { return header(key, http.Header(h).Values(key)) }

// Set replaces the values of a key.
func (h headers) Set(key, value string) { http.Header(h).Set(key, value) }

// Keys returns all keys.
func (h headers) Keys() []string { return slices.Collect(maps.Keys(h)) }

// carrier makes metadata readable for a propagator.
type carrier metadata.MD

var _ propagation.TextMapCarrier = carrier(nil)

// Get returns the value of a key, empty if there is none.
func (c carrier) Get(key string) string { return header(key, metadata.MD(c).Get(key)) }

// Set replaces the values of a key.
func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys returns all keys.
func (c carrier) Keys() []string { return slices.Collect(maps.Keys(c)) }
