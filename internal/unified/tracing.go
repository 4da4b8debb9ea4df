package unified

import (
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/internal/spans"
	"github.com/mooringdb/mooring/internal/unified/match"
)

// exporter makes OpenTelemetry's spans of the events of a client, and holds those that have ended.
type exporter struct {
	memory   *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
}

func newExporter() exporter {
	memory := tracetest.NewInMemoryExporter()
	return exporter{memory, sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithSyncer(memory))}
}

// spanSink returns the sink that makes the spans of a client.
func (c *observed) spanSink() *event.Sink {
	limit := 0
	if c.payload {
		limit = maxPayload
	}
	return spans.Sink(c.exporter.provider.Tracer("mooring"), limit)
}

// maxPayload is longer than any command of a test.
const maxPayload = 1 << 24

// span holds an exported span, and those under it in the order in which they began.
type span struct {
	tracetest.SpanStub
	nested []*span
}

// tree returns the exported spans that are under no other one.
func (e exporter) tree() ([]*span, error) {
	stubs := e.memory.GetSpans()
	slices.SortStableFunc(stubs, func(a, b tracetest.SpanStub) int {
		return a.StartTime.Compare(b.StartTime)
	})
	all := map[trace.SpanID]*span{}
	for _, stub := range stubs {
		if stub.SpanKind != trace.SpanKindClient {
			return nil, fmt.Errorf("the span %s has the kind %s", stub.Name, stub.SpanKind)
		}
		all[stub.SpanContext.SpanID()] = &span{SpanStub: stub}
	}
	var roots []*span
	for _, stub := range stubs {
		s, parent := all[stub.SpanContext.SpanID()], stub.Parent
		switch of := all[parent.SpanID()]; {
		case of != nil && parent.TraceID() == s.SpanContext.TraceID():
			of.nested = append(of.nested, s)
		case parent.IsValid():
			return nil, fmt.Errorf("the span over %s was not exported", stub.Name)
		default:
			roots = append(roots, s)
		}
	}
	return roots, nil
}

// document returns the attributes as the format compares them: a session's id is an lsid.
func (s *span) document() bson.Raw {
	b := new(bson.Builder)
	for _, a := range s.Attributes {
		key, v := string(a.Key), a.Value
		if v.Type() == attribute.INT64 {
			b.Int64(key, v.AsInt64())
			continue
		}
		id, err := bson.ParseUUID(v.AsString())
		if key == "db.mongodb.lsid" && err == nil {
			b.OpenDocument(key).Binary("id", subtypeUUID, id[:]).Close()
		} else {
			b.String(key, v.AsString())
		}
	}
	return b.Finish()
}

func (s *span) String() string {
	return s.Name + match.Text(bson.DocumentValue(s.document())) + fmt.Sprint(s.nested)
}

// tracing checks expectTracingMessages of one client.
func (r *run) tracing(expected bson.Raw) error {
	c, err := get[*observed](r, text(expected, "client"))
	if err != nil {
		return err
	}
	extra, _ := lookup(expected, "ignoreExtraSpans").Bool()
	exported, err := c.exporter.tree()
	if err != nil {
		return err
	}
	var actual []*span
	for _, s := range exported {
		if !slices.ContainsFunc(s.nested, isFailPoint) { // which are the runner's
			actual = append(actual, s)
		}
	}
	return r.matchSpans(documents(expected, "spans"), actual, extra)
}

func isFailPoint(s *span) bool { return s.Name == "configureFailPoint" }

// matchSpans compares spans in order. With extra, more may follow.
func (r *run) matchSpans(expected []bson.Raw, actual []*span, extra bool) error {
	for i, want := range expected {
		if i >= len(actual) {
			return fmt.Errorf("span %d of %d is missing: %s, after %v", i, len(expected),
				match.Text(bson.DocumentValue(want)), actual)
		}
		got := actual[i]
		if name := text(want, "name"); name != got.Name {
			return fmt.Errorf("span %d is %q, want %q; all: %v", i, got.Name, name, actual)
		}
		if err := r.matcher.Root(lookup(want, "attributes"),
			bson.DocumentValue(got.document())); err != nil {
			return fmt.Errorf("span %d, %s: %w; all: %v", i, got.Name, err, actual)
		}
		if err := r.matchSpans(documents(want, "nested"), got.nested, extra); err != nil {
			return fmt.Errorf("below the span %d, %s: %w", i, got.Name, err)
		}
	}
	if len(actual) > len(expected) && !extra {
		return fmt.Errorf("spans that are not expected: %v, after %v", actual[len(expected):],
			actual[:len(expected)])
	}
	return nil
}
