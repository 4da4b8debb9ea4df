// Package eventtrace turns the driver's events into the spans of the MongoDB specification of
// OpenTelemetry: one for each operation, one for each attempt to run a command under it, and one
// around the operations of a transaction. It knows the names and attributes of spans and which span
// is under which one. It has no clock and no tracer: those that Config gives make the spans.
package eventtrace

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// Attribute holds one attribute of a span. Value is a string or an int64.
type Attribute struct {
	Key   string
	Value any
}

// Exception describes the error that a span records.
type Exception struct {
	Type, Message, Stacktrace string
}

// Span represents a span of the kind client that has begun. Its methods are called by one goroutine
// at a time.
type Span interface {
	// Set adds attributes.
	Set(attributes []Attribute)
	// Fail records an exception, and that what the span stands for has failed.
	Fail(e Exception)
	// End ends the span.
	End()
}

// Config says which spans are made, and how.
type Config struct {
	// Start begins a span under parent or, where that is nil, under the caller's span, which is in
	// ctx. It is called on the goroutine that emits the event. If the span is not recorded, it
	// returns nil; then there are no spans under it.
	Start func(ctx context.Context, parent Span, name string, attributes []Attribute) Span
	// Records reports whether spans under the caller's span are recorded. If they are not, Start
	// is not called. Nil means that they are.
	Records func(ctx context.Context) bool
	// MaxQueryTextLength limits db.query.text, the command as Extended JSON. Longer ones are cut
	// off; 0 leaves the attribute out.
	MaxQueryTextLength int
}

// The environment variables that FromEnvironment reads.
const (
	EnabledVariable            = "OTEL_GO_INSTRUMENTATION_MONGODB_ENABLED"
	MaxQueryTextLengthVariable = "OTEL_GO_INSTRUMENTATION_MONGODB_QUERY_TEXT_MAX_LENGTH"
)

// FromEnvironment returns whether the environment asks for spans, and for which length of the text
// of commands. Tracing is off by default. A value that is none counts as unset.
func FromEnvironment(getenv func(string) string) (enabled bool, maxQueryTextLength int) {
	enabled, _ = strconv.ParseBool(getenv(EnabledVariable))
	maxQueryTextLength, err := strconv.Atoi(getenv(MaxQueryTextLengthVariable))
	if err != nil || maxQueryTextLength < 0 {
		maxQueryTextLength = 0
	}
	return enabled, maxQueryTextLength
}

// Sink returns a sink that makes spans of the events.
func Sink(cfg Config) *event.Sink {
	t := &tracer{
		cfg: cfg, operations: map[int64]Span{}, transactions: map[int64]Span{},
		commands: map[int32]Span{},
	}
	return &event.Sink{
		TransactionStarted: t.transactionStarted, TransactionEnded: t.transactionEnded,
		OperationStarted: t.operationStarted, OperationEnded: t.operationEnded,
		CommandStarted: t.commandStarted, CommandSucceeded: t.commandSucceeded,
		CommandFailed: t.commandFailed,
	}
}

// tracer holds the spans that have not ended.
type tracer struct {
	cfg Config

	// mu guards the fields below. No span is called while it is held.
	mu           sync.Mutex
	transactions map[int64]Span
	operations   map[int64]Span
	commands     map[int32]Span
}

func (t *tracer) records(ctx context.Context) bool {
	return t.cfg.Records == nil || t.cfg.Records(ctx)
}

func (t *tracer) transactionStarted(e event.TransactionStarted) {
	if t.records(e.Context) {
		put(t, t.transactions, e.ID, t.cfg.Start(e.Context, nil, "transaction", system()))
	}
}

func (t *tracer) transactionEnded(e event.TransactionEnded) {
	if span := take(t, t.transactions, e.ID); span != nil {
		span.End()
	}
}

func (t *tracer) operationStarted(e event.OperationStarted) {
	parent := find(t, t.transactions, e.Transaction)
	if parent == nil && !t.records(e.Context) {
		return
	}
	name := e.Name + " " + namespace(e.Database, e.Collection)
	put(t, t.operations, e.ID,
		t.cfg.Start(e.Context, parent, name, operationAttributes(e.Operation, name)))
}

func (t *tracer) operationEnded(e event.OperationEnded) {
	end(take(t, t.operations, e.ID), e.Err)
}

// commandStarted begins no span for a sensitive command, whose body is empty, nor for one that is
// part of no operation.
func (t *tracer) commandStarted(e event.CommandStarted) {
	parent := find(t, t.operations, e.OperationID)
	if parent == nil || e.Body.IsEmpty() {
		return
	}
	attributes := commandAttributes(e, t.cfg.MaxQueryTextLength)
	put(t, t.commands, e.RequestID,
		t.cfg.Start(context.Background(), parent, e.Name, attributes))
}

func (t *tracer) commandSucceeded(e event.CommandSucceeded) {
	span := take(t, t.commands, e.RequestID)
	if span == nil {
		return
	}
	if id := cursorID(e.Reply); id != 0 {
		span.Set([]Attribute{{"db.mongodb.cursor_id", id}})
	}
	span.End()
}

func (t *tracer) commandFailed(e event.CommandFailed) {
	span := take(t, t.commands, e.RequestID)
	if code := mongoerr.Code(e.Err); span != nil && code != 0 {
		span.Set([]Attribute{{"db.response.status_code", strconv.Itoa(int(code))}})
	}
	end(span, e.Err)
}

// end ends a span, nil or not, with the error of what it stands for.
func end(span Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		span.Fail(Exception{
			Type: fmt.Sprintf("%T", err), Message: mongoerr.Outline(err),
			Stacktrace: string(debug.Stack()),
		})
	}
	span.End()
}

// put remembers a span, unless it is not recorded.
func put[K comparable](t *tracer, spans map[K]Span, id K, span Span) {
	if span == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	spans[id] = span
}

// find returns a span that has begun, nil if there is none with the id.
func find[K comparable](t *tracer, spans map[K]Span, id K) Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	return spans[id]
}

// take returns a span that has begun, and forgets it.
func take[K comparable](t *tracer, spans map[K]Span, id K) Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	span := spans[id]
	delete(spans, id)
	return span
}
