package unified

import (
	"context"
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/client"
)

// transactionOptions reads the options of a transaction, as the start of one has them.
func (a *arguments) transactionOptions() client.TransactionOptions {
	o := client.TransactionOptions{
		ReadPreference:  a.readPreference("readPreference"),
		MaxCommitTimeMS: a.int64("maxCommitTimeMS"),
	}
	var err error
	if d := a.document("readConcern"); d != nil {
		var rc *client.ReadConcern
		if rc, err = newReadConcern(d); err == nil {
			o.ReadConcernLevel = &rc.Level
		}
	}
	if d := a.document("writeConcern"); d != nil && err == nil {
		o.WriteConcern, err = newWriteConcern(d)
	}
	if err != nil && a.err == nil {
		a.err = err
	}
	return o
}

func startTransaction(_ *run, s *client.Session, a *arguments) action {
	options := a.transactionOptions()
	return func(context.Context) outcome { return failed(s.StartTransaction(options)) }
}

func commitTransaction(_ *run, s *client.Session, a *arguments) action {
	options := client.EndTransactionOptions{Timeout: a.timeout(nil)}
	return func(ctx context.Context) outcome { return failed(s.CommitTransaction(ctx, options)) }
}

func abortTransaction(_ *run, s *client.Session, a *arguments) action {
	options := client.EndTransactionOptions{Timeout: a.timeout(nil)}
	return func(ctx context.Context) outcome { return failed(s.AbortTransaction(ctx, options)) }
}

// withTransaction runs the operations of the callback. What is wrong with one of them ends the
// test, whatever withTransaction makes of it. An error that an operation expects is returned by the
// callback nevertheless.
func withTransaction(r *run, s *client.Session, a *arguments) action {
	var callback []operation
	for _, doc := range a.must("callback").documents("callback") {
		callback = append(callback, newOperation(doc))
	}
	options := client.WithTransactionOptions{
		TransactionOptions: a.transactionOptions(), Timeout: a.timeout(nil),
	}
	return func(ctx context.Context) outcome {
		var broken error
		err := s.WithTransaction(ctx, options, func(ctx context.Context) error {
			for _, op := range callback {
				err, wrong := r.inCallback(ctx, op)
				broken = errors.Join(broken, wrong)
				if err = errors.Join(err, wrong); err != nil {
					return err
				}
			}
			return nil
		})
		return outcome{err: err, broken: broken}
	}
}

// inCallback runs an operation of a callback. It returns the operation's own error, and what is not
// as expected.
func (r *run) inCallback(ctx context.Context, op operation) (err, wrong error) {
	out, err := r.perform(ctx, op, &arguments{run: r, doc: op.arguments})
	if err != nil {
		return nil, fmt.Errorf("%s on %s cannot be run: %w", op.name, op.object, err)
	}
	if out.err == nil || op.expectError != nil {
		if err := r.check(op, out); err != nil {
			wrong = fmt.Errorf("%s on %s: %w", op.name, op.object, err)
		}
	}
	return out.err, wrong
}

func assertTransactionState(r *run, _ *run, a *arguments) action {
	s, want := entityOf[*client.Session](r, a, "session"), a.must("state").text("state")
	return func(context.Context) outcome {
		if got := s.TransactionState().String(); got != want {
			return failed(fmt.Errorf("the transaction is %s, want %s", got, want))
		}
		return outcome{}
	}
}

func assertPinned(want bool) func(*run, *run, *arguments) action {
	return func(r *run, _ *run, a *arguments) action {
		s := entityOf[*client.Session](r, a, "session")
		return func(context.Context) outcome {
			if _, _, got := s.PinnedTo(); got != want {
				return failed(fmt.Errorf("the session is pinned: %v", got))
			}
			return outcome{}
		}
	}
}

// targetedFailPoint sets a fail point on the mongos that a session is pinned to.
func targetedFailPoint(r *run, _ *run, a *arguments) action {
	s := entityOf[*client.Session](r, a, "session")
	command := a.must("failPoint").document("failPoint")
	return func(context.Context) outcome {
		server, service, ok := s.PinnedTo()
		if !ok {
			return failed(fmt.Errorf("the session is not pinned"))
		}
		return failed(r.deployment.SetFailPoint(server, service, command))
	}
}
