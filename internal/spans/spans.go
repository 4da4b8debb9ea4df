// Package spans makes OpenTelemetry spans of the driver's events. It uses only OpenTelemetry's API:
// the tracer that it gets decides where spans go, and which are recorded.
package spans

import (
	"context"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/event/eventtrace"
)

// Sink returns a sink that makes the spans of operations, commands and transactions (see package
// eventtrace). A change stream has the spans of its aggregate and getMore commands and nothing
// else. maxQueryText limits the text of a command in its span; 0 leaves it out.
func Sink(tracer trace.Tracer, maxQueryText int) *event.Sink {
	return eventtrace.Sink(eventtrace.Config{
		Start: starter{tracer}.start, Records: Records, MaxQueryTextLength: maxQueryText,
	})
}

// Unrecorded implements a context with the ids of a span that is not recorded, which the log and
// other replicas get. A span of a tracer would make more allocations. A tracer does not know the
// ids, so no span may begin under them.
type Unrecorded struct {
	context.Context //nolint:containedctx // it is a context
	IDs             trace.SpanContext
}

type unrecordedKey struct{}

// Value returns the context itself for the key of Of, and the value of the inner context for other
// keys.
func (u *Unrecorded) Value(key any) any {
	if key == (unrecordedKey{}) {
		return u
	}
	return u.Context.Value(key)
}

// Of returns the ids of the span that ctx is part of, recorded or not; they are not valid if there
// is none.
func Of(ctx context.Context) trace.SpanContext {
	if u, ok := ctx.Value(unrecordedKey{}).(*Unrecorded); ok {
		return u.IDs
	}
	return trace.SpanContextFromContext(ctx)
}

// Records reports whether a span under the one in ctx can be recorded: ctx has none, so that the
// sampler decides, or one that is recorded.
func Records(ctx context.Context) bool {
	return !Of(ctx).IsValid() || trace.SpanFromContext(ctx).IsRecording()
}

// TraceID returns the id of the trace that ctx is part of, as logs have it; empty: of none.
func TraceID(ctx context.Context) string {
	if id := Of(ctx).TraceID(); id.IsValid() {
		return id.String()
	}
	return ""
}

// maxText is the length of the longest text in a span but db.query.text. It is more than the names
// of MongoDB need, but clients choose names, and of any length.
const maxText = 1 << 10

// Text returns a text as spans may have it: as many whole characters as have up to limit bytes, and
// in valid UTF-8, since one span with anything else would cost the batch that it is sent with.
func Text(text string, limit int) string {
	if len(text) > limit {
		for limit > 0 && !utf8.RuneStart(text[limit]) {
			limit--
		}
		text = strings.Clone(text[:limit]) // the span does not keep the whole
	}
	return strings.ToValidUTF8(text, "?")
}

type starter struct{ tracer trace.Tracer }

// start begins a span of the driver. An operation of a transaction is under the transaction's span,
// which began with another call: the spans of operation and call have links to each other.
func (s starter) start(
	ctx context.Context, parent eventtrace.Span, name string, attributes []eventtrace.Attribute,
) eventtrace.Span {
	name = Text(name, maxText)
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(convert(attributes)...),
	}
	caller := trace.SpanFromContext(ctx)
	if p, ok := parent.(*span); ok {
		if of := Of(ctx); of.IsValid() && of.TraceID() != p.SpanContext().TraceID() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: of}))
		}
		ctx = trace.ContextWithSpan(ctx, p.Span)
	}
	_, made := s.tracer.Start(ctx, name, opts...)
	if !made.IsRecording() {
		return nil
	}
	if of := caller.SpanContext(); of.IsValid() && of.TraceID() != made.SpanContext().TraceID() {
		caller.AddLink(trace.Link{SpanContext: made.SpanContext()})
	}
	return &span{made}
}

// span makes one span of OpenTelemetry one of eventtrace.
type span struct{ trace.Span }

var _ eventtrace.Span = (*span)(nil)

// Set adds attributes.
func (s *span) Set(attributes []eventtrace.Attribute) { s.SetAttributes(convert(attributes)...) }

// Fail records an exception, as an event and as attributes of the span.
func (s *span) Fail(e eventtrace.Exception) {
	exception := []attribute.KeyValue{
		attribute.String("exception.type", e.Type),
		attribute.String("exception.message", Text(e.Message, maxText)),
		attribute.String("exception.stacktrace", e.Stacktrace),
	}
	s.AddEvent("exception", trace.WithAttributes(exception...))
	s.SetAttributes(exception...)
	s.SetStatus(codes.Error, Text(e.Message, maxText))
}

// End ends the span.
func (s *span) End() { s.Span.End() }

func convert(attributes []eventtrace.Attribute) []attribute.KeyValue {
	all := make([]attribute.KeyValue, len(attributes))
	for i, a := range attributes {
		switch v := a.Value.(type) {
		case int64:
			all[i] = attribute.Int64(a.Key, v)
		case string:
			limit := maxText
			if a.Key == "db.query.text" {
				limit = len(v) // it has a limit of its own
			}
			all[i] = attribute.String(a.Key, Text(v, limit))
		default:
			panic("bug: spans: an attribute that is neither a number nor a text: " + a.Key)
		}
	}
	return all
}
