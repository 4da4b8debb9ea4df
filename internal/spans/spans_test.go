package spans_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/spans"
)

// world holds a tracer and what it has exported.
type world struct {
	memory *tracetest.InMemoryExporter
	tracer trace.Tracer
	sink   *event.Sink
}

func newWorld(sampler sdktrace.Sampler) *world {
	memory := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(memory),
		sdktrace.WithSampler(sampler))
	tracer := provider.Tracer("test")
	return &world{memory, tracer, spans.Sink(tracer, 0)}
}

// exported returns the span with that name.
func (w *world) exported(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	all := w.memory.GetSpans()
	i := slices.IndexFunc(all, func(s tracetest.SpanStub) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no span %q among %d", name, len(all))
	}
	return all[i]
}

// find emits the events of a find by the caller of ctx, in a transaction unless it is 0.
func (w *world) find(ctx context.Context, transaction int64, err error) {
	operation := event.Operation{
		ID: 7, Name: "find", Database: "d", Collection: "k", Transaction: transaction,
	}
	command := event.Command{
		Name: "find", RequestID: 8, OperationID: 7, Database: "d", Address: "h:1",
	}
	w.sink.OperationStarted(event.OperationStarted{Operation: operation, Context: ctx})
	body := bson.NewBuilder(nil).String("find", "k").Finish()
	w.sink.CommandStarted(event.CommandStarted{Command: command, Body: body})
	if err == nil {
		w.sink.CommandSucceeded(event.CommandSucceeded{Command: command})
	} else {
		w.sink.CommandFailed(event.CommandFailed{Command: command, Err: err})
	}
	w.sink.OperationEnded(event.OperationEnded{Operation: operation, Err: err})
}

func TestSpans(t *testing.T) {
	w := newWorld(sdktrace.AlwaysSample())
	ctx, request := w.tracer.Start(t.Context(), "request")
	w.find(ctx, 0, errors.New("cut"))
	request.End()
	operation, command := w.exported(t, "find d.k"), w.exported(t, "find")
	if got, want := operation.Parent.SpanID(), request.SpanContext().SpanID(); got != want {
		t.Errorf("the operation is under %s, want %s", got, want)
	}
	if got, want := command.Parent.SpanID(), operation.SpanContext.SpanID(); got != want {
		t.Errorf("the command is under %s, want %s", got, want)
	}
	for _, s := range []tracetest.SpanStub{operation, command} {
		if s.SpanKind != trace.SpanKindClient ||
			s.Status.Code != codes.Error || s.Status.Description != "cut" ||
			len(s.Events) != 1 || s.Events[0].Name != "exception" || len(s.Links) != 0 {
			t.Errorf("%s: kind %v, status %v, events %v, links %v",
				s.Name, s.SpanKind, s.Status, s.Events, s.Links)
		}
		if !slices.Contains(s.Attributes, attribute.String("exception.message", "cut")) {
			t.Errorf("%s: attributes %v, want the exception's message", s.Name, s.Attributes)
		}
	}
	if links := w.exported(t, "request").Links; len(links) != 0 {
		t.Errorf("the request has links to spans of its own trace: %v", links)
	}
}

// TestCodeOfServer checks the attribute that a command gets at its end.
func TestCodeOfServer(t *testing.T) {
	w := newWorld(sdktrace.AlwaysSample())
	w.find(t.Context(), 0, &mongoerr.CommandError{Code: 89, Message: "hunter2", Address: "h:1"})
	s := w.exported(t, "find")
	if !slices.Contains(s.Attributes, attribute.String("db.response.status_code", "89")) ||
		s.Status.Description != "command failed on h:1: error (code 89)" {
		t.Errorf("attributes %v, status %v", s.Attributes, s.Status)
	}
}

// TestTextsAreBounded has clients choose long names, and names that are not UTF-8.
func TestTextsAreBounded(t *testing.T) {
	w := newWorld(sdktrace.AlwaysSample())
	w.sink = spans.Sink(w.tracer, 5000)
	long := strings.Repeat("ä", 5000)
	w.sink.OperationStarted(event.OperationStarted{
		Operation: event.Operation{ID: 7, Name: "find", Database: "d", Collection: "\xff" + long},
		Context:   t.Context(),
	})
	command := event.Command{
		Name: long, RequestID: 8, OperationID: 7, Database: "d", Address: "h:1",
	}
	body := bson.NewBuilder(nil).String("find", long).Finish()
	w.sink.CommandStarted(event.CommandStarted{Command: command, Body: body})
	w.sink.CommandFailed(event.CommandFailed{Command: command, Err: errors.New(long)})
	w.sink.OperationEnded(event.OperationEnded{Operation: event.Operation{ID: 7}})
	// Whole characters in 1024 bytes, the first of which is none.
	w.exported(t, "find d.?"+long[:1024-8])
	failed := w.exported(t, long[:1024])
	if got := failed.Status.Description; got != long[:1024] {
		t.Errorf("the status has %d bytes", len(got))
	}
	for _, s := range w.memory.GetSpans() {
		all := s.Attributes
		for _, e := range s.Events {
			all = append(all, e.Attributes...)
		}
		for _, a := range all {
			text, most := a.Value.AsString(), 1024
			switch a.Key {
			case "exception.stacktrace":
				continue
			case "db.query.text":
				most = 5000
				if len(text) < 4999 {
					t.Errorf("%s has %d bytes", a.Key, len(text))
				}
			}
			if len(text) > most || !utf8.ValidString(text) {
				t.Errorf("%s of %.20q: %d bytes, valid: %v",
					a.Key, s.Name, len(text), utf8.ValidString(text))
			}
		}
	}
}

func TestText(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 0, ""},
		{"find", 4, "find"},
		{"find", 3, "fin"},
		{"aä", 2, "a"},
		{"\x80\x80\x80", 2, ""}, // no character begins before the limit
		{"\xffä", 3, "?ä"},
	} {
		if got := spans.Text(test.text, test.limit); got != test.want {
			t.Errorf("Text(%q, %d) = %q, want %q", test.text, test.limit, got, test.want)
		}
	}
}

// TestTransactionOfOneTrace has two requests of one trace work in one transaction: no links.
func TestTransactionOfOneTrace(t *testing.T) {
	w := newWorld(sdktrace.AlwaysSample())
	ctx, page := w.tracer.Start(t.Context(), "page")
	first, one := w.tracer.Start(ctx, "one")
	w.sink.TransactionStarted(event.TransactionStarted{ID: 3, Context: first})
	one.End()
	second, two := w.tracer.Start(ctx, "two")
	w.find(second, 3, nil)
	w.sink.TransactionEnded(event.TransactionEnded{ID: 3})
	two.End()
	page.End()
	for _, name := range []string{"find d.k", "two", "one", "transaction"} {
		if links := w.exported(t, name).Links; len(links) != 0 {
			t.Errorf("links of %s: %v, want none", name, links)
		}
	}
}

// TestUnrecordedInTransaction checks that an operation of a recorded transaction has a link to its
// call also if that is not recorded.
func TestUnrecordedInTransaction(t *testing.T) {
	w := newWorld(sdktrace.AlwaysSample())
	first, one := w.tracer.Start(t.Context(), "one")
	w.sink.TransactionStarted(event.TransactionStarted{ID: 3, Context: first})
	one.End()
	ids := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
	})
	w.find(&spans.Unrecorded{Context: t.Context(), IDs: ids}, 3, nil)
	w.sink.TransactionEnded(event.TransactionEnded{ID: 3})
	operation := w.exported(t, "find d.k")
	if len(operation.Links) != 1 || !operation.Links[0].SpanContext.Equal(ids) {
		t.Errorf("links of the operation: %v", operation.Links)
	}
}

// TestTransaction has two requests of two traces work in one transaction. The operation of the
// second is in the trace of the first, where the transaction began, and the two have links.
func TestTransaction(t *testing.T) {
	w := newWorld(sdktrace.AlwaysSample())
	first, one := w.tracer.Start(t.Context(), "one")
	w.sink.TransactionStarted(event.TransactionStarted{ID: 3, Context: first})
	one.End()
	second, two := w.tracer.Start(t.Context(), "two")
	w.find(second, 3, nil)
	w.sink.TransactionEnded(event.TransactionEnded{ID: 3})
	two.End()
	transaction, operation := w.exported(t, "transaction"), w.exported(t, "find d.k")
	if got, want := operation.Parent.SpanID(), transaction.SpanContext.SpanID(); got != want {
		t.Errorf("the operation is under %s, want %s", got, want)
	}
	request := w.exported(t, "two")
	if len(operation.Links) != 1 ||
		operation.Links[0].SpanContext.SpanID() != request.SpanContext.SpanID() {
		t.Errorf("links of the operation: %v", operation.Links)
	}
	if len(request.Links) != 1 ||
		request.Links[0].SpanContext.SpanID() != operation.SpanContext.SpanID() {
		t.Errorf("links of the request: %v", request.Links)
	}
}

func TestNotSampled(t *testing.T) {
	w := newWorld(sdktrace.ParentBased(sdktrace.NeverSample()))
	w.find(t.Context(), 0, nil) // the sampler is asked
	unsampled := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1},
	})
	for _, ctx := range []context.Context{
		trace.ContextWithSpanContext(t.Context(), unsampled),
		&spans.Unrecorded{Context: t.Context(), IDs: unsampled},
	} {
		w.find(ctx, 0, nil)
		if n := len(w.memory.GetSpans()); n != 0 {
			t.Errorf("%d spans were exported", n)
		}
		if spans.Records(ctx) || !spans.Records(t.Context()) {
			t.Error("Records: want false under a span that is not sampled, true under none")
		}
		if id := spans.TraceID(ctx); id != unsampled.TraceID().String() {
			t.Errorf("TraceID = %q", id)
		}
		if n := testing.AllocsPerRun(100, func() {
			w.sink.OperationStarted(event.OperationStarted{
				Operation: event.Operation{ID: 7, Name: "find"}, Context: ctx,
			})
			w.sink.OperationEnded(event.OperationEnded{Operation: event.Operation{ID: 7}})
		}); n != 0 {
			t.Errorf("%v allocations for an operation that is not sampled, want 0", n)
		}
	}
}

func TestTraceID(t *testing.T) {
	ctx, span := newWorld(sdktrace.AlwaysSample()).tracer.Start(t.Context(), "a")
	if got, want := spans.TraceID(ctx), span.SpanContext().TraceID().String(); got != want {
		t.Errorf("TraceID = %q, want %q", got, want)
	}
	if got := spans.TraceID(t.Context()); got != "" {
		t.Errorf("TraceID without a span = %q", got)
	}
}
