package operation

import (
	"context"
	"time"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/session"
)

// Trace emits the events of an operation of several commands, which has an ID: the first one now,
// and the last one when the returned function is called with the operation's error. Run does so
// itself for an operation of one command.
func (r *Runner) Trace(ctx context.Context, op *Operation) (end func(error)) {
	t := r.trace(ctx, op, op.ID)
	return func(err error) { t.end(err) }
}

// operationTrace emits the last event of an operation. The zero value emits none.
type operationTrace struct {
	sink      *event.Sink
	operation event.Operation
	began     time.Time
}

func (r *Runner) trace(ctx context.Context, op *Operation, id int64) operationTrace {
	s := r.Sink
	if !s.HearsOperations() {
		return operationTrace{}
	}
	began := time.Now()
	e := event.Operation{
		ID: id, Name: op.Name, Database: op.Database, Collection: op.Collection, Caller: op.Caller,
		Transaction: r.transaction(ctx, op),
	}
	if e.Name == "" {
		e.Name = op.Command.Name()
	}
	if s.OperationStarted != nil {
		s.OperationStarted(event.OperationStarted{Operation: e, Context: ctx})
	}
	return operationTrace{s, e, began}
}

func (t *operationTrace) end(err error) {
	if t.sink != nil && t.sink.OperationEnded != nil {
		t.sink.OperationEnded(event.OperationEnded{
			Operation: t.operation, Duration: time.Since(t.began), Err: err,
		})
	}
}

// transaction returns the number of the transaction that an operation is part of, 0 for none. It
// emits TransactionStarted before the first one.
func (r *Runner) transaction(ctx context.Context, op *Operation) int64 {
	s := op.Session
	if s == nil || s.IsImplicit() {
		return 0
	}
	state, _ := s.Transaction()
	ofCursor := op.Selector != nil // which does not start a transaction
	id := s.TraceID()
	switch {
	case op.Role != Member:
		return id
	case !state.Running() || ofCursor && state == session.TransactionStarting:
		return 0
	case id != 0:
		return id
	}
	id = NewID()
	s.SetTraceID(id)
	if r.Sink.TransactionStarted != nil {
		r.Sink.TransactionStarted(event.TransactionStarted{ID: id, Context: ctx})
	}
	return id
}

// TransactionEnded emits the last event of a session's transaction, once, if it has events.
func (r *Runner) TransactionEnded(s *session.Client) {
	if id := s.SetTraceID(0); id != 0 && r.Sink.TransactionEnded != nil {
		r.Sink.TransactionEnded(event.TransactionEnded{ID: id})
	}
}
