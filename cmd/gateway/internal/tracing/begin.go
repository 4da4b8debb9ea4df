package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/mooringdb/mooring/internal/spans"
)

// begin begins the span of a call, and returns it and a context that has it. Most spans are not
// recorded: begin returns a context with ids and a nil span then.
func (t *Tracing) begin(ctx context.Context, name string) (context.Context, trace.Span) {
	id, unrecorded := t.decide(ctx, name)
	if unrecorded.IsValid() {
		return &spans.Unrecorded{Context: ctx, IDs: unrecorded}, nil
	}
	return t.record(ctx, id, name)
}

// decide asks the sampler about the span of a call. It returns the id of its trace and, if the span
// is not to be recorded, its ids.
func (t *Tracing) decide(
	ctx context.Context, name string,
) (id trace.TraceID, unrecorded trace.SpanContext) {
	parent := trace.SpanContextFromContext(ctx)
	id = parent.TraceID()
	if !id.IsValid() {
		id = newTraceID()
	}
	decision := t.sampler.ShouldSample(sdktrace.SamplingParameters{
		ParentContext: ctx, TraceID: id, Name: name, Kind: trace.SpanKindServer,
	})
	if decision.Decision == sdktrace.Drop {
		unrecorded = trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: id, SpanID: newSpanID(), TraceState: decision.Tracestate,
			TraceFlags: parent.TraceFlags() &^ trace.FlagsSampled,
		})
	}
	return id, unrecorded
}

// record begins the span of a call that decide has decided to record.
func (t *Tracing) record(
	ctx context.Context, id trace.TraceID, name string,
) (context.Context, trace.Span) {
	// The tracer asks the sampler once more, which says the same of the same trace, unless the
	// share has just changed.
	return t.tracer.Start(context.WithValue(ctx, traceKey{}, id), name,
		trace.WithSpanKind(trace.SpanKindServer))
}

// traceKey finds the id of a trace that begins with the next span.
type traceKey struct{}

// ids makes the ids of spans, and of traces that do not begin with a call.
type ids struct{}

var _ sdktrace.IDGenerator = ids{}

// NewIDs returns the ids of a trace and its first span.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if id, ok := ctx.Value(traceKey{}).(trace.TraceID); ok {
		return id, newSpanID()
	}
	return newTraceID(), newSpanID()
}

// NewSpanID returns the id of a span.
func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return newSpanID() }

func newTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
