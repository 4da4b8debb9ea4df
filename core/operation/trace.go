package operation

import (
	"context"
	"time"

	"github.com/mooringdb/mooring/core/event"
)

// Trace emits the events of an operation of several commands, which has an ID: the first one now,
// and the last one when the returned function is called with the operation's error. Run does so
// itself for an operation of one command.
func (r *Runner) Trace(ctx context.Context, op *Operation) (end func(error)) {
	return r.trace(ctx, op, op.ID)
}

func (r *Runner) trace(ctx context.Context, op *Operation, id int64) (end func(error)) {
	s := r.Sink
	if !s.HearsOperations() {
		return func(error) {}
	}
	began := time.Now()
	e := event.Operation{
		ID: id, Name: op.Name, Database: op.Database, Collection: op.Collection, Caller: op.Caller,
	}
	if e.Name == "" {
		e.Name = op.Command.Name()
	}
	if s.OperationStarted != nil {
		s.OperationStarted(event.OperationStarted{Operation: e, Context: ctx})
	}
	return func(err error) {
		if s.OperationEnded != nil {
			s.OperationEnded(event.OperationEnded{
				Operation: e, Duration: time.Since(began), Err: err,
			})
		}
	}
}
