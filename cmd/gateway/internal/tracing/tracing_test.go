package tracing_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/cmd/gateway/internal/tracing"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/event/eventtrace"
	"github.com/mooringdb/mooring/internal/spans"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNew tells which environments switch tracing on, and which are refused.
func TestNew(t *testing.T) {
	const endpoint, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	const collector, headers = "http://127.0.0.1:4318", "OTEL_EXPORTER_OTLP_HEADERS"
	for _, tt := range []struct {
		name string
		env  []string
		on   bool
		err  string
	}{
		{name: "nothing"},
		{name: "an endpoint", env: []string{endpoint, collector}, on: true},
		{name: "an endpoint for traces", env: []string{traces, collector}, on: true},
		{name: "the exporter", env: []string{"OTEL_TRACES_EXPORTER", "otlp"}, on: true},
		{name: "no exporter", env: []string{endpoint, collector, "OTEL_TRACES_EXPORTER", "none"}},
		{name: "disabled", env: []string{endpoint, collector, "OTEL_SDK_DISABLED", "true"}},
		{name: "not disabled", env: []string{endpoint, collector, "OTEL_SDK_DISABLED", "false"}, on: true},
		{name: "another exporter", env: []string{"OTEL_TRACES_EXPORTER", "zipkin"}, err: `OTEL_TRACES_EXPORTER: "zipkin"`},
		{name: "gRPC", env: []string{endpoint, collector, "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, on: true},
		{name: "HTTP", env: []string{endpoint, collector, "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}, on: true},
		{
			name: "traces first",
			env:  []string{endpoint, collector, "OTEL_EXPORTER_OTLP_PROTOCOL", "x", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"},
			on:   true,
		},
		{name: "another protocol", env: []string{endpoint, collector, "OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"}, err: `OTEL_EXPORTER_OTLP_PROTOCOL: "http/json"`},
		{name: "another sampler", env: []string{endpoint, collector, "OTEL_TRACES_SAMPLER", "often"}, err: `OTEL_TRACES_SAMPLER: "often"`},
		{name: "another share", env: []string{endpoint, collector, "OTEL_TRACES_SAMPLER_ARG", "2"}, err: `OTEL_TRACES_SAMPLER_ARG: "2"`},
		{name: "headers", env: []string{endpoint, collector, headers, "authorization=Bearer%20hunter2"}, on: true},
		{name: "headers without a value", env: []string{endpoint, collector, headers, "authorization: Bearer hunter2"}, err: headers},
		{name: "headers with empty members", env: []string{endpoint, collector, headers, ",a=b, ,c=d,"}, on: true},
		{name: "headers without a name", env: []string{endpoint, collector, headers, "Bearer hunter2=x"}, err: headers},
		{name: "headers that are not encoded", env: []string{endpoint, collector, headers, "a=b,authorization=%zzhunter2"}, err: headers},
		{name: "headers of traces", env: []string{endpoint, collector, "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "hunter2"}, err: "OTEL_EXPORTER_OTLP_TRACES_HEADERS"},
		{name: "headers over gRPC", env: []string{endpoint, collector, "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", headers, "hunter2"}, err: headers},
		{name: "no certificate", env: []string{endpoint, collector, "OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such"}, err: "OTEL_EXPORTER_OTLP_CERTIFICATE: cannot be read: no such file"},
		{
			name: "a key in place of its file",
			env:  []string{endpoint, collector, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "tracing.go", "OTEL_EXPORTER_OTLP_CLIENT_KEY", "-----BEGIN PRIVATE KEY-----\nhunter2\n"},
			err:  "OTEL_EXPORTER_OTLP_CLIENT_KEY: cannot be read: no such file",
		},
		{name: "not a certificate", env: []string{endpoint, collector, "OTEL_EXPORTER_OTLP_CERTIFICATE", "tracing.go"}, err: "OTEL_EXPORTER_OTLP_CERTIFICATE"},
		{
			name: "not a client's certificate",
			env:  []string{endpoint, collector, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "tracing.go", "OTEL_EXPORTER_OTLP_CLIENT_KEY", "tracing.go"},
			err:  "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
		},
		{name: "no scheme", env: []string{endpoint, "collector.example:4318"}, err: endpoint},
		{name: "no scheme, for traces", env: []string{endpoint, collector, traces, "collector.example:4318"}, err: traces},
		{name: "no host", env: []string{endpoint, "http:///v1/traces"}, err: endpoint},
		{name: "not a URL", env: []string{endpoint, "http://a:hunter2/b@collector.example"}, err: endpoint},
		{name: "a target of gRPC", env: []string{endpoint, "collector.example:4317", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, on: true},
		{name: "not a target of gRPC", env: []string{endpoint, "127.0.0.1:4317", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, err: endpoint},
		{name: "another timeout", env: []string{endpoint, collector, "OTEL_EXPORTER_OTLP_TIMEOUT", "ten"}, err: "OTEL_EXPORTER_OTLP_TIMEOUT"},
		{name: "another compression", env: []string{endpoint, collector, "OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"}, err: `OTEL_EXPORTER_OTLP_COMPRESSION: "zstd"`},
		{name: "compression", env: []string{endpoint, collector, "OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"}, on: true},
		{
			name: "an endpoint that one for traces replaces",
			env:  []string{endpoint, "c.example:4317", traces, collector},
			on:   true,
		},
		{
			name: "a target of gRPC that one for traces replaces",
			env:  []string{endpoint, "127.0.0.1:4317", traces, collector, "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
			on:   true,
		},
		{
			name: "headers that those of traces replace",
			env:  []string{endpoint, collector, headers, "a=b,hunter2", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b"},
			on:   true,
		},
		{
			name: "a timeout that one for traces replaces",
			env:  []string{endpoint, collector, "OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "10000"},
			on:   true,
		},
		{
			name: "a compression that one for traces replaces",
			env:  []string{endpoint, collector, "OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"},
			on:   true,
		},
		{
			name: "another timeout for traces",
			env:  []string{endpoint, collector, "OTEL_EXPORTER_OTLP_TIMEOUT", "10000", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "ten"},
			err:  "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
		},
		{
			name: "a client's certificate that only half of one for traces replaces",
			env:  []string{endpoint, collector, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/no/such", "OTEL_EXPORTER_OTLP_CLIENT_KEY", "/no/such", "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "tracing.go"},
			err:  "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
		},
		{
			name: "a client's certificate that one for traces replaces",
			env:  []string{endpoint, collector, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/no/such", "OTEL_EXPORTER_OTLP_CLIENT_KEY", "/no/such", "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "tracing.go", "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "tracing.go"},
			err:  "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
		},
		{name: "another delay", env: []string{endpoint, collector, "OTEL_BSP_SCHEDULE_DELAY", "soon"}, err: `OTEL_BSP_SCHEDULE_DELAY: "soon"`},
		{name: "another limit", env: []string{endpoint, collector, "OTEL_SPAN_EVENT_COUNT_LIMIT", "few"}, err: `OTEL_SPAN_EVENT_COUNT_LIMIT: "few"`},
		{name: "neither on nor off", env: []string{endpoint, collector, eventtrace.EnabledVariable, "yes"}, err: eventtrace.EnabledVariable + `: "yes"`},
		{name: "another length", env: []string{endpoint, collector, eventtrace.MaxQueryTextLengthVariable, "1KiB"}, err: eventtrace.MaxQueryTextLengthVariable + `: "1KiB"`},
		{name: "a negative length", env: []string{endpoint, collector, eventtrace.MaxQueryTextLengthVariable, "-1"}, err: eventtrace.MaxQueryTextLengthVariable + `: "-1"`},
		{name: "the driver's", env: []string{endpoint, collector, eventtrace.EnabledVariable, "true", eventtrace.MaxQueryTextLengthVariable, "1024"}, on: true},
		{name: "no share", env: []string{endpoint, collector, "OTEL_TRACES_SAMPLER_ARG", "NaN"}, err: `OTEL_TRACES_SAMPLER_ARG: "NaN"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i := 0; i < len(tt.env); i += 2 {
				t.Setenv(tt.env[i], tt.env[i+1])
			}
			var log bytes.Buffer
			// By itself it logs to the standard error.
			otel.SetLogger(funcr.New(func(prefix, args string) { log.WriteString(prefix + args) },
				funcr.Options{}))
			made, err := tracing.New(t.Context(),
				tracing.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
			if (made != nil) != tt.on || (err != nil) != (tt.err != "") ||
				err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("New = %v, %v; want on: %v, error %q", made != nil, err, tt.on, tt.err)
			}
			for i := 0; i < len(tt.env); i += 2 {
				if got := os.Getenv(tt.env[i]); got != tt.env[i+1] {
					t.Errorf("%s = %q after New, want %q", tt.env[i], got, tt.env[i+1])
				}
			}
			if text := fmt.Sprint(err, &log); strings.Contains(text, "hunter2") {
				t.Errorf("a secret is shown: %s", text)
			}
			if err := made.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOff checks that a gateway without traces has nothing of them in its way.
func TestOff(t *testing.T) {
	var off *tracing.Tracing
	h := http.NewServeMux()
	if got := off.HTTP(h); got != http.Handler(h) {
		t.Error("HTTP does not return its handler")
	}
	if off.GRPC() != nil || off.Sink() != nil {
		t.Error("there is a hook")
	}
	off.SetSampling(nil)
}

// only returns the one span that was exported.
func only(t *testing.T, memory *tracetest.InMemoryExporter) tracetest.SpanStub {
	t.Helper()
	all := memory.GetSpans()
	if len(all) != 1 {
		t.Fatalf("%d spans, want one: %v", len(all), all)
	}
	return all[0]
}

// text returns the attributes, one in each word.
func text(all []attribute.KeyValue) string {
	words := make([]string, len(all))
	for i, a := range all {
		words[i] = string(a.Key) + "=" + a.Value.String()
	}
	return strings.Join(words, " ")
}

const remote = "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01"

// failed tells the writer of a response of a failure, as package front does.
func failed(w http.ResponseWriter, status int, code grpccodes.Code) {
	told, _ := w.(interface {
		Failed(status int, code grpccodes.Code)
	})
	told.Failed(status, code)
}

func TestHTTP(t *testing.T) {
	for _, tt := range []struct {
		name    string
		serve   http.HandlerFunc
		span    string
		has     string // attributes
		failure bool
	}{
		{
			"a request", func(w http.ResponseWriter, r *http.Request) {
				r.Pattern = "/v1/{database}"
				w.Header().Set("Mooring-Request-Id", "7")
				_, _ = w.Write([]byte("x"))
			},
			"GET /v1/{database}", "http.request.method=GET url.scheme=http " +
				"network.protocol.version=1 user_agent.original=agent client.address=192.0.2.1 " +
				"http.route=/v1/{database} http.response.status_code=200 mooring.request_id=7",
			false,
		},
		{
			"no route", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
			"GET", "http.response.status_code=404", false,
		},
		{
			"nothing written", func(http.ResponseWriter, *http.Request) {},
			"GET", "http.response.status_code=200", false,
		},
		{
			"an information first", func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusServiceUnavailable)
			},
			"GET", "http.response.status_code=503 mooring.request_id= error.type=503", true,
		},
		{
			"a failure in the body", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("x"))
				failed(w, http.StatusGatewayTimeout, grpccodes.DeadlineExceeded)
			},
			"GET", "http.response.status_code=200 mooring.request_id= error.type=DeadlineExceeded",
			true,
		},
		{
			"a client's failure in the body", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("x"))
				failed(w, http.StatusRequestTimeout, grpccodes.DeadlineExceeded)
			},
			"GET", "http.response.status_code=200", false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			made, memory := tracing.NewRecorded(t, nil)
			r := httptest.NewRequest(http.MethodGet, "/v1/shop?filter=secret", nil)
			r.Header.Set("Traceparent", remote)
			r.Header.Set("User-Agent", "agent")
			var id string
			made.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				id = spans.TraceID(r.Context())
				if err := http.NewResponseController(w).Flush(); err != nil && tt.failure {
					t.Error(err)
				}
				tt.serve(w, r)
			})).ServeHTTP(httptest.NewRecorder(), r)
			s := only(t, memory)
			if id != "0102030405060708090a0b0c0d0e0f10" || s.SpanContext.TraceID().String() != id ||
				s.Parent.SpanID().String() != "0102030405060708" ||
				s.SpanKind != trace.SpanKindServer {
				t.Errorf("the span %v is not in the trace of the client, %s", s.SpanContext, id)
			}
			if all := text(s.Attributes); s.Name != tt.span || !strings.Contains(all, tt.has) ||
				strings.Contains(all, "secret") {
				t.Errorf("span %q with %s, want %q with %s", s.Name, all, tt.span, tt.has)
			}
			if (s.Status.Code == codes.Error) != tt.failure {
				t.Errorf("status %v", s.Status)
			}
		})
	}
}

// TestResponse checks that a client gets the status and the body of a traced response.
func TestResponse(t *testing.T) {
	made, _ := tracing.NewRecorded(t, nil)
	w := httptest.NewRecorder()
	made.HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("short"))
	})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusTeapot || w.Body.String() != "short" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// TestTextsOfClients sends methods and names of agents that are not as they should be.
func TestTextsOfClients(t *testing.T) {
	long := strings.Repeat("ä", 10000)
	for _, tt := range []struct{ method, agent, name, want, not string }{
		{"QUERY", "", "QUERY /x", "http.request.method=QUERY", "_original"},
		{"get", "", "HTTP /x", "http.request.method=_OTHER", "method=get"},
		{"get", "", "HTTP /x", "http.request.method_original=get ", ""},
		{strings.Repeat("M", 10000), "", "HTTP /x", "method_original=" + strings.Repeat("M", 32) + " ", ""},
		{"POST", strings.Repeat("a", 256), "POST /x", "user_agent.original=" + strings.Repeat("a", 256) + " ", ""},
		{"POST", "a\xffb", "POST /x", "user_agent.original=a?b ", ""},
		{"POST", "a" + long, "POST /x", "user_agent.original=a" + long[:254] + " ", ""},
	} {
		made, memory := tracing.NewRecorded(t, nil)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method, r.Pattern = tt.method, "/x"
		r.Header.Set("User-Agent", tt.agent)
		made.HTTP(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
		s := only(t, memory)
		if all := text(s.Attributes); s.Name != tt.name || !strings.Contains(all, tt.want) ||
			tt.not != "" && strings.Contains(all, tt.not) {
			t.Errorf("%.40q: span %q with %s, want %q with %s", tt.method, s.Name, all, tt.name,
				tt.want)
		}
	}
}

// TestTraceContext checks which headers put a call into a trace, over HTTP and gRPC, and that what
// is not sound is ignored.
func TestTraceContext(t *testing.T) {
	const id, trace = "0102030405060708", "0102030405060708090a0b0c0d0e0f10"
	for _, tt := range []struct {
		name   string
		md     metadata.MD
		parent string // empty: the trace begins here
		state  string
	}{
		{"none", metadata.MD{}, "", ""},
		{"one", metadata.Pairs("traceparent", remote), id, ""},
		{"a state", metadata.Pairs("traceparent", remote, "tracestate", "a=1,b=2"), id, "a=1,b=2"},
		{"states", metadata.Pairs("traceparent", remote, "tracestate", "a=1", "tracestate", "b=2"), id, "a=1,b=2"},
		{"a state that is none", metadata.Pairs("traceparent", remote, "tracestate", "???"), id, ""},
		{"a state alone", metadata.Pairs("tracestate", "a=1"), "", ""},
		{"baggage", metadata.Pairs("traceparent", remote, "baggage", "user=anna"), id, ""},
		{"baggage that is none", metadata.Pairs("traceparent", remote, "baggage", ";;;=,"), id, ""},
		{"two", metadata.Pairs("traceparent", remote, "traceparent", remote), "", ""},
		{"a later version", metadata.Pairs("traceparent", "01"+remote[2:]+"-more"), id, ""},
		{"version ff", metadata.Pairs("traceparent", "ff"+remote[2:]), "", ""},
		{"more than version 00 has", metadata.Pairs("traceparent", remote+"-more"), "", ""},
		{"no trace", metadata.Pairs("traceparent", "00-"+strings.Repeat("0", 32)+remote[35:]), "", ""},
		{"no span", metadata.Pairs("traceparent", remote[:36]+strings.Repeat("0", 16)+"-01"), "", ""},
		{"upper case", metadata.Pairs("traceparent", strings.ToUpper(remote)), "", ""},
		{"too short", metadata.Pairs("traceparent", remote[:54]), "", ""},
		{"empty", metadata.Pairs("traceparent", ""), "", ""},
		{"long", metadata.Pairs("traceparent", strings.Repeat("0", 60000)), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			made, memory := tracing.NewRecorded(t, nil)
			_, end := made.GRPC()(metadata.NewIncomingContext(t.Context(), tt.md), "/a/b")
			end(nil)
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			for key, all := range tt.md {
				for _, v := range all {
					r.Header.Add(key, v)
				}
			}
			made.HTTP(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
			all := memory.GetSpans()
			if len(all) != 2 {
				t.Fatalf("%d spans, want 2", len(all))
			}
			for _, s := range all {
				parent := ""
				if s.Parent.IsValid() {
					parent = s.Parent.SpanID().String()
				}
				if parent != tt.parent ||
					(s.SpanContext.TraceID().String() == trace) != (tt.parent != "") {
					t.Errorf("%s: the parent is %q of %s, want %q", s.Name, parent,
						s.SpanContext.TraceID(), tt.parent)
				}
				if got := s.SpanContext.TraceState().String(); got != tt.state {
					t.Errorf("%s: the state is %q, want %q", s.Name, got, tt.state)
				}
			}
		})
	}
}

func TestHealthHasNoSpan(t *testing.T) {
	made, memory := tracing.NewRecorded(t, nil)
	for _, path := range []string{"/healthz", "/readyz"} {
		w := httptest.NewRecorder()
		made.HTTP(http.NotFoundHandler()).
			ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusNotFound || w.Body.Len() == 0 {
			t.Errorf("%s = %d %s, not the handler's answer", path, w.Code, w.Body)
		}
	}
	if n := len(memory.GetSpans()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

func TestTLS(t *testing.T) {
	made, memory := tracing.NewRecorded(t, nil)
	r := httptest.NewRequest(http.MethodGet, "https://h/v1", nil)
	r.RemoteAddr = "@" // a Unix domain socket
	made.HTTP(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
	if all := text(only(t, memory).Attributes); !strings.Contains(all, "url.scheme=https") ||
		strings.Contains(all, "client.address") {
		t.Errorf("attributes: %s", all)
	}
}

func TestGRPC(t *testing.T) {
	const find = "mooring.v1.DocumentService/Find"
	long := strings.Repeat("a", 1999) // with the slash a path of 2,000 bytes
	for _, tt := range []struct {
		method, name string
		err          error
		code         string
		failure      bool
	}{
		{"/" + find, find, nil, "OK", false},
		{"/" + find, find, status.Error(grpccodes.NotFound, "x"), "NotFound", false},
		{"/" + find, find, status.Error(grpccodes.Unavailable, "x"), "Unavailable", true},
		{"/" + find, find, errors.New("x"), "Unknown", true},
		{"/a/\xff", "a/?", status.Error(grpccodes.Unimplemented, "x"), "Unimplemented", true},
		{"/" + long, long[:1<<10], status.Error(grpccodes.Unimplemented, "x"), "Unimplemented", true},
	} {
		made, memory := tracing.NewRecorded(t, nil)
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", remote))
		ctx, end := made.GRPC()(ctx, tt.method)
		sent := metadata.MD{}
		made.Inject(ctx, sent)
		comment, _ := made.Comment(ctx).Document()
		if v, _ := comment.Lookup("traceparent"); !strings.HasPrefix(stringOf(v),
			"00-0102030405060708090a0b0c0d0e0f10-") {
			t.Errorf("comment: %v", comment)
		}
		end(tt.err)
		s := only(t, memory)
		if got := sent.Get("traceparent"); len(got) != 1 ||
			!strings.Contains(got[0], s.SpanContext.SpanID().String()) {
			t.Errorf("traceparent of a call to a replica: %q", got)
		}
		want := "rpc.system.name=grpc rpc.method=" + tt.name + " rpc.response.status_code=" +
			tt.code
		if all := text(s.Attributes); s.Name != tt.name || !strings.HasPrefix(all, want) ||
			s.Parent.SpanID().String() != "0102030405060708" {
			t.Errorf("span %q under %s with %s, want %s", s.Name, s.Parent.SpanID(), all, want)
		}
		if (s.Status.Code == codes.Error) != tt.failure {
			t.Errorf("%s: status %v", tt.code, s.Status)
		}
	}
}

// TestCost bounds what a call allocates for traces if it is not recorded, as most are not.
func TestCost(t *testing.T) {
	none := 0.0
	made, _ := tracing.NewRecorded(t, &none)
	begin := made.GRPC()
	ctx := metadata.NewIncomingContext(t.Context(),
		metadata.Pairs(":authority", "a", "content-type", "application/grpc"))
	if n := testing.AllocsPerRun(100, func() {
		_, end := begin(ctx, "/mooring.v1.DocumentService/FindOne")
		end(nil)
	}); n > 1 {
		t.Errorf("gRPC: %v allocations, want at most 1", n)
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/shop", nil)
	h, w := made.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})),
		httptest.NewRecorder()
	if n := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) }); n > 1 {
		t.Errorf("HTTP: %v allocations, want at most 1", n)
	}
}

func stringOf(v bson.Value) string {
	s, _ := v.Str()
	return s
}

func TestNoComment(t *testing.T) {
	none := 0.0
	made, _ := tracing.NewRecorded(t, &none)
	ctx, end := made.GRPC()(t.Context(), "/a/b")
	defer end(nil)
	if c := made.Comment(ctx); c != nil {
		t.Errorf("a call that is not recorded has the comment %v", c)
	}
}

// TestNotRecorded checks what the log, another replica and the commands get of calls that are not
// recorded.
func TestNotRecorded(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	made, memory := tracing.NewRecorded(t, nil)
	for _, tt := range []struct {
		name            string
		md              metadata.MD
		id, flags, list string
	}{
		{"of no trace", nil, "", "00", ""},
		{"of a trace", metadata.Pairs("traceparent", remote, "tracestate", "a=1"), remote[3:35], "00", "a=1"},
		{"with another flag", metadata.Pairs("traceparent", remote[:53]+"03"), remote[3:35], "02", ""},
	} {
		ctx, end := made.GRPC()(metadata.NewIncomingContext(t.Context(), tt.md), "/a/b")
		id := spans.TraceID(ctx)
		if len(id) != 32 || tt.id != "" && id != tt.id {
			t.Errorf("%s: the id is %q, want %q", tt.name, id, tt.id)
		}
		sent := metadata.MD{}
		made.Inject(ctx, sent)
		parent := strings.Join(sent.Get("traceparent"), " ")
		if len(parent) != 55 || parent[3:35] != id || parent[36:52] == remote[36:52] ||
			parent[53:] != tt.flags {
			t.Errorf("%s: traceparent of a call to a replica: %q", tt.name, parent)
		}
		if got := strings.Join(sent.Get("tracestate"), " "); got != tt.list {
			t.Errorf("%s: tracestate of a call to a replica: %q, want %q", tt.name, got, tt.list)
		}
		if c := made.Comment(ctx); c != nil {
			t.Errorf("%s: the comment is %v", tt.name, c)
		}
		end(nil)
	}
	if n := len(memory.GetSpans()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

// TestSampling counts the traces of calls, and changes the share while the gateway runs.
func TestSampling(t *testing.T) {
	share := func(x float64) *float64 { return &x }
	call := func(made *tracing.Tracing, md ...string) {
		ctx, end := made.GRPC()(metadata.NewIncomingContext(t.Context(), metadata.Pairs(md...)),
			"/a/b")
		if spans.TraceID(ctx) == "" {
			t.Error("a call that is not recorded has no trace id")
		}
		end(nil)
	}
	made, memory := tracing.NewRecorded(t, share(0))
	calls := func(n int, md ...string) int {
		memory.Reset()
		for range n {
			call(made, md...)
		}
		return len(memory.GetSpans())
	}
	if got := calls(10); got != 0 {
		t.Errorf("share 0: %d spans", got)
	}
	if got := calls(10, "traceparent", remote); got != 10 {
		t.Errorf("share 0 of a recorded trace: %d spans, want 10", got)
	}
	made.SetSampling(share(0.5))
	if got := calls(1000); got < 400 || got > 600 {
		t.Errorf("share 0.5: %d of 1000", got)
	}
	made.SetSampling(nil)
	if got := calls(10); got != 10 {
		t.Errorf("the environment's: %d of 10", got)
	}
}

func TestSamplerOfEnvironment(t *testing.T) {
	for name, want := range map[string][2]int{ // calls of no trace, and of one that is not recorded
		"always_on": {1, 1}, "always_off": {0, 0}, "traceidratio": {0, 0},
		"parentbased_always_on": {1, 0}, "parentbased_always_off": {0, 0}, "parentbased_traceidratio": {0, 0},
	} {
		t.Setenv("OTEL_TRACES_SAMPLER", name)
		t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0")
		made, memory := tracing.NewRecorded(t, nil)
		for i, md := range []metadata.MD{
			nil, metadata.Pairs("traceparent", strings.TrimSuffix(remote, "1")+"0"),
		} {
			memory.Reset()
			_, end := made.GRPC()(metadata.NewIncomingContext(t.Context(), md), "/a/b")
			end(nil)
			if got := len(memory.GetSpans()); got != want[i] {
				t.Errorf("%s, %d: %d spans, want %d", name, i, got, want[i])
			}
		}
	}
}

// TestSink checks that the driver's spans are under the call's, and can be switched off.
func TestSink(t *testing.T) {
	made, memory := tracing.NewRecorded(t, nil)
	operation := event.Operation{ID: 1, Name: "find", Database: "d", Collection: "k"}
	ctx, end := made.GRPC()(t.Context(), "/a/b")
	sink := made.Sink()
	sink.OperationStarted(event.OperationStarted{Operation: operation, Context: ctx})
	sink.OperationEnded(event.OperationEnded{Operation: operation})
	end(nil)
	all := memory.GetSpans()
	i := slices.IndexFunc(all, func(s tracetest.SpanStub) bool { return s.Name == "find d.k" })
	if len(all) != 2 || i < 0 || all[i].Parent.SpanID() != all[1-i].SpanContext.SpanID() {
		t.Errorf("spans: %v", all)
	}
	resource := text(all[0].Resource.Attributes())
	if !strings.Contains(resource, "service.name=mooring") ||
		!strings.Contains(resource, "service.version=v1") {
		t.Errorf("resource: %s", resource)
	}
	t.Setenv(eventtrace.EnabledVariable, "false")
	if made.Sink() != nil {
		t.Error("the driver's spans are not switched off")
	}
}

func TestComplaints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := tracing.NewComplaints(slog.New(slog.NewTextHandler(&out, nil)))
		for range 181 {
			c.Handle(errors.New("refused"))
			time.Sleep(time.Second) //nolint:forbidigo // time is fake
		}
		if n := strings.Count(out.String(), "traces cannot be sent"); n != 4 {
			t.Errorf("%d lines in 181 seconds, want one at the end of each minute:\n%s", n,
				out.String())
		}
	})
}
