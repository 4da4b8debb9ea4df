package client

import (
	"context"
	"math"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
)

// WithTransactionOptions holds the options of WithTransaction.
type WithTransactionOptions struct {
	TransactionOptions
	// Timeout is timeoutMS for all attempts together; nil inherits the session's, and that the
	// client's. Where it is set, operations in the callback must not have one of their own.
	Timeout *time.Duration
	// RunOn and Caller are those of the commit and the abort.
	RunOn  bool
	Caller string
}

// transactionLimit is how long WithTransaction tries again if no timeoutMS is set.
const transactionLimit = 120 * time.Second

// WithTransaction runs f in a transaction, and commits it. If an error has the label
// TransientTransactionError, it runs f again in a new transaction; if the commit's outcome is
// unknown, it repeats the commit. It gives up at the deadline of ctx, and after timeoutMS or, if
// that is not set, after 120 seconds. Then the error is a *TransactionTimeoutError around the last
// one. Any other error is returned as it is.
//
// f may run many times. Its operations must use the session and the context that f gets, which has
// the deadline. f must return the errors of its operations: otherwise WithTransaction tries to
// commit a transaction that the server has aborted. f may end the transaction itself.
func (s *Session) WithTransaction(
	ctx context.Context, opt WithTransactionOptions, f func(context.Context) error,
) error {
	timeout := s.timeout(opt.Timeout)
	until := time.Now().Add(transactionLimit)
	if s.client.runner.Limited(timeout) {
		until = time.Now().Add(*timeout)
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until = deadline
	}
	ctx, done := s.client.runner.Begin(ctx, timeout, time.Time{})
	defer done()
	a := attempts{
		session: s, opt: opt.TransactionOptions, timeout: timeout, until: until,
		end: EndTransactionOptions{Timeout: timeout, RunOn: opt.RunOn, Caller: opt.Caller},
	}
	for n := 1; ; n++ {
		again, err := a.try(ctx, f)
		if !again {
			return err
		}
		if err := a.wait(ctx, backoff(n, s.client.runner.Jitter()), err); err != nil {
			return err
		}
	}
}

// attempts holds what the attempts of one WithTransaction have in common.
type attempts struct {
	session *Session
	opt     TransactionOptions
	timeout *time.Duration // timeoutMS; nil: none is set
	until   time.Time
	end     EndTransactionOptions
}

// try runs one transaction. If again is true, err allows another one.
func (a *attempts) try(
	ctx context.Context, f func(context.Context) error,
) (again bool, err error) {
	s := a.session
	if err := s.StartTransaction(a.opt); err != nil {
		return false, err
	}
	err = a.call(ctx, f)
	if err != nil {
		s.abandon(ctx, a.end)
		return mongoerr.HasLabel(err, mongoerr.LabelTransientTransaction), err
	}
	if !s.TransactionState().Running() {
		return false, nil
	}
	return a.commit(ctx)
}

// call runs f. If f panics, call aborts the transaction.
func (a *attempts) call(ctx context.Context, f func(context.Context) error) error {
	s, returned := a.session, false
	s.bounded = s.client.runner.Limited(a.timeout)
	defer func() {
		s.bounded = false
		if !returned {
			s.abandon(ctx, a.end)
		}
	}()
	err := f(ctx)
	returned = true
	return err
}

// commit commits the transaction, and repeats that while it is unknown whether it is committed. If
// again is true, err allows another transaction.
func (a *attempts) commit(ctx context.Context) (again bool, err error) {
	var pause time.Duration
	for n := 0; ; n++ {
		err := a.session.CommitTransaction(ctx, a.end)
		if !repeatsCommit(err) {
			return mongoerr.HasLabel(err, mongoerr.LabelTransientTransaction), err
		}
		if n > 0 { // the specification names no wait; the first repetition has none
			pause = backoff(n, 1)
		}
		if err := a.wait(ctx, pause, err); err != nil {
			return false, err
		}
	}
}

const codeMaxTimeMSExpired = 50

// repeatsCommit reports whether a commit that failed with err is sent again. One that the server
// had no time for is not.
func repeatsCommit(err error) bool {
	return mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult) &&
		mongoerr.Code(err) != codeMaxTimeMSExpired
}

// backoff returns how long WithTransaction waits before attempt n+1 (Convenient API for
// Transactions, "Backoff"). jitter is from 0 to 1.
func backoff(n int, jitter float64) time.Duration {
	const first, most = 5 * time.Millisecond, 500 * time.Millisecond
	return time.Duration(jitter * min(float64(first)*math.Pow(1.5, float64(n)), float64(most)))
}

// wait blocks for d, after last. If the time is over by then, it returns an error at once. Its
// errors have last, with its labels.
func (a *attempts) wait(ctx context.Context, d time.Duration, last error) error {
	if !time.Now().Add(d).Before(a.until) {
		if mongoerr.IsTimeout(last) {
			return last
		}
		return &TransactionTimeoutError{Err: last}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return operation.Interrupted(context.Cause(ctx), last)
	}
	return nil
}

// TransactionTimeoutError reports that WithTransaction had no time left for another attempt. Err is
// the error of the last one, whose labels it has. errors.Is(err, context.DeadlineExceeded) holds.
type TransactionTimeoutError struct{ Err error }

func (e *TransactionTimeoutError) Error() string {
	return "no time is left to try the transaction again: " + e.Err.Error()
}

// Unwrap returns the error of the last attempt.
func (e *TransactionTimeoutError) Unwrap() error { return e.Err }

// Is reports whether target is context.DeadlineExceeded.
func (e *TransactionTimeoutError) Is(target error) bool {
	return target == context.DeadlineExceeded
}

// Timeout returns true.
func (e *TransactionTimeoutError) Timeout() bool { return true }
