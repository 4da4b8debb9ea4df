// Package otlptest receives traces for tests: an HTTP server that takes OTLP, as a collector does,
// and shows the spans as text.
package otlptest

import (
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Receiver keeps the spans that it gets.
type Receiver struct {
	*httptest.Server

	more chan struct{} // has a value after spans have come

	// mu guards the fields below.
	mu    sync.Mutex
	spans []*tracepb.Span
}

// New returns a receiver that listens until the test ends.
func New(t testing.TB) *Receiver {
	r := &Receiver{more: make(chan struct{}, 1)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := r.receive(req); err != nil {
			t.Errorf("otlptest: %v", err)
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *Receiver) receive(req *http.Request) error {
	if req.URL.Path != "/v1/traces" {
		return fmt.Errorf("%s %s", req.Method, req.URL.Path)
	}
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(body); err != nil {
			return err
		}
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var batch collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(b, &batch); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range batch.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	select {
	case r.more <- struct{}{}:
	default:
	}
	return nil
}

// Wait blocks until there are n spans, half a minute at most.
func (r *Receiver) Wait(t testing.TB, n int) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for len(r.Spans("")) < n {
		select {
		case <-r.more:
		case <-limit:
			t.Errorf("otlptest: %d spans, want %d", len(r.Spans("")), n)
			return
		}
	}
}

// Spans returns the spans of a trace, those that began first before the others. The id is in
// hexadecimal; empty means all traces.
func (r *Receiver) Spans(trace string) []*tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*tracepb.Span
	for _, s := range r.spans {
		if trace == "" || fmt.Sprintf("%x", s.GetTraceId()) == trace {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b *tracepb.Span) int {
		return cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano())
	})
	return all
}

// Tree returns the spans of a trace, one on each line, those under another one indented below it:
// the kind, the name, "failed" if it has failed, and the values of the attributes.
func (r *Receiver) Tree(trace string, attributes ...string) string {
	all := r.Spans(trace)
	known := map[string]bool{}
	for _, s := range all {
		known[string(s.GetSpanId())] = true
	}
	var b strings.Builder
	var below func(parent string, depth int)
	write := func(s *tracepb.Span, depth int) {
		kind := strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_"))
		fmt.Fprintf(&b, "%s%s %s", strings.Repeat("  ", depth), kind, s.GetName())
		if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			b.WriteString(" failed")
		}
		for _, name := range attributes {
			if v := Attribute(s, name); v != "" {
				b.WriteString(" " + v)
			}
		}
		b.WriteByte('\n')
		below(string(s.GetSpanId()), depth+1)
	}
	below = func(parent string, depth int) {
		for _, s := range all {
			if string(s.GetParentSpanId()) == parent {
				write(s, depth)
			}
		}
	}
	for _, s := range all {
		if !known[string(s.GetParentSpanId())] {
			write(s, 0)
		}
	}
	return b.String()
}

// Attribute returns an attribute of a span as text, empty if it has none.
func Attribute(s *tracepb.Span, name string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() != name {
			continue
		}
		if v, ok := a.GetValue().GetValue().(*commonpb.AnyValue_IntValue); ok {
			return fmt.Sprint(v.IntValue)
		}
		return a.GetValue().GetStringValue()
	}
	return ""
}
