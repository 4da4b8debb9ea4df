package rpcerr

import (
	"errors"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/service/call"
)

// evidence holds what is known of what a call that failed has done.
type evidence struct {
	// last is how far the last operation got, with all its attempts.
	last mongoerr.Delivery
	// partly says that the result has something that operations before it have changed.
	partly bool
	// write and commit say that it is not known whether a write was done, or whether the
	// transaction is committed.
	write, commit bool
	// expired says that the server gave up at the deadline.
	expired bool
}

func evidenceOf(err error) evidence {
	e := evidence{
		last:   mongoerr.Judge(err).Delivery,
		commit: mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult),
	}
	if p, ok := errors.AsType[*PartialError](err); ok {
		e.partly = p.Result.IsAny()
	}
	_, e.write = errors.AsType[*operation.OutcomeUnknownError](err)
	e.expired = slices.Contains(expired, mongoerr.Code(err))
	return e
}

// IsOutcomeUnknown reports whether err says that a write, or the commit of a transaction, may have
// been done.
func IsOutcomeUnknown(err error) bool {
	e := evidenceOf(err)
	return e.write || e.commit
}

// expired are the codes of a server that gave up at the deadline: MaxTimeMSExpired and
// ExceededTimeLimit. It aborts the transaction of the command.
var expired = []int32{50, 262}

// advise returns whether a client may repeat a call that failed: by the row of the error, by what
// the call has done and by what the call is. It is the only place where these meet.
func advise(r row, e evidence, of call.Call) Retry {
	switch {
	case e.commit && of.Transaction != nil:
		return Never // Run would run its operations again; Commit only repeats itself
	case r.retry == Transaction:
		return Transaction // the abort undoes what was done
	case (e.write || e.expired) && of.Transaction != nil:
		return Transaction
	case of.Exact != nil && (e.write || r.retry == SameRequest || passes(r.code)):
		return SameRequest // it is done once, however often it comes
	case r.reason == ShuttingDown && e.last == mongoerr.Unsent && !e.partly:
		return SameRequest // at another replica
	case e.partly, r.retry == SameRequest && e.last == mongoerr.Executed && !e.commit:
		return Never
	case r.retry != Never:
		return r.retry
	case e.last == mongoerr.Refused, e.last == mongoerr.Unsent && passes(r.code):
		return SameRequest // nothing was done
	}
	return Never
}

// passes reports whether errors of a code are about the moment, and not about the request.
func passes(c codes.Code) bool {
	return c == codes.Unavailable || c == codes.DeadlineExceeded || c == codes.Canceled
}
