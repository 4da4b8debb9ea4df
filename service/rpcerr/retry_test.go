package rpcerr_test

import (
	"context"
	"io"
	"testing"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestRetry checks what a client may do after an error: by what was done, and by what the call is.
func TestRetry(t *testing.T) {
	const (
		never, same      = rpcerr.Never, rpcerr.SameRequest
		restart, another = rpcerr.Restart, rpcerr.Transaction
	)
	partly := func(err error) error {
		return &rpcerr.PartialError{Err: err, Result: rpcerr.Result{InsertedCount: new(int64(1))}}
	}
	unknown := func(err error) error { return &operation.OutcomeUnknownError{Err: err} }
	label := func(err error, label string) error { return mongoerr.WithLabel(err, label) }
	const transient = mongoerr.LabelTransientTransaction
	const commit = mongoerr.LabelUnknownTransactionCommitResult
	lost := &mongoerr.NetworkError{Op: "read", Sent: true, Err: io.EOF}
	full := &pool.WaitQueueTimeoutError{}
	left := &pool.WaitQueueTimeoutError{Err: context.Canceled}
	stops := &rpcerr.Error{Reason: rpcerr.ShuttingDown}
	stepped := command(10107, "NotWritablePrimary")
	busy := command(462, "", mongoerr.LabelSystemOverloaded, mongoerr.LabelRetryable)
	for _, test := range []struct {
		name string
		err  error
		// what a plain call, one with a key, and one in a transaction are told
		plain, exact, within rpcerr.Retry
	}{
		{"a full pool", full, same, same, same},
		{"the caller left the queue of a pool", left, same, same, same},
		{"the caller left the gateway's queue", &admission.WaitError{Err: context.Canceled}, same, same, same},
		{"the deadline passed in the gateway's queue", &admission.WaitError{Err: context.DeadlineExceeded}, same, same, same},
		{"the gateway stops, and the call was in its queue", &admission.WaitError{Err: stops}, same, same, same},
		{"the gateway stops in a queue, after a part was done", partly(&admission.WaitError{Err: stops}), never, same, never},
		{"the gateway stops, and nothing tells more", stops, restart, same, restart},
		{"the caller left, and nothing tells more", context.Canceled, never, same, never},
		{"the deadline passed, and nothing tells more", context.DeadlineExceeded, never, same, never},
		{"the server gave up at the deadline", command(50, "MaxTimeMSExpired"), never, same, another},
		{"a server stepped down", stepped, same, same, same},
		{"a server is overloaded", busy, same, same, same},
		{"no session is left", command(261, "TooManyLogicalSessions"), same, same, same},
		{"a server refused, after a part was done", partly(stepped), never, same, never},
		{"a full pool, after nothing was done", &rpcerr.PartialError{Err: full, Result: rpcerr.Result{InsertedCount: new(int64(0))}}, same, same, same},
		{"a full pool, after a part was done", partly(full), never, same, never},
		{"no share is left, after a part was done", partly(&admission.Error{Cause: admission.OwnShare}), never, same, never},
		{"a full pool, after a part without counts", mongoerr.WithDelivery(full, mongoerr.Executed), never, same, never},
		{"a part was done, and the rest is unknown", partly(unknown(lost)), never, same, another},
		{"a write without an answer", unknown(lost), never, same, another},
		{"a write whose deadline passed", unknown(context.DeadlineExceeded), never, same, another},
		{"a write whose caller left", unknown(context.Canceled), never, same, another},
		{"a write that another primary may know", unknown(stepped), never, same, another},
		{"a read without an answer", lost, same, same, same},
		{"an operation without an answer", label(unknown(lost), transient), another, another, another},
		{"a conflict", command(112, "WriteConflict", transient), another, another, another},
		{"a conflict, after a part was done", partly(command(112, "", transient)), another, another, another},
		{"a write concern that was not met", &mongoerr.WriteConcernError{Code: 91}, never, same, never},
		{"a duplicate key", writes(11000), never, never, never},
		{"the gateway stops", topology.ErrClosed, restart, same, restart},
		// The call that ran the transaction is Run, and one without a transaction is Commit.
		{"a commit without an answer", label(lost, commit), same, same, never},
		{"a commit whose time is over", &client.TransactionTimeoutError{Err: label(lost, commit)}, same, same, never},
		{"a commit, and both labels", command(91, "", transient, commit), same, same, never},
	} {
		for what, row := range map[string]struct {
			of   call.Call
			want rpcerr.Retry
		}{
			"plain":            {call.Call{}, test.plain},
			"with a key":       {call.Call{Exact: &call.ExactWrite{}}, test.exact},
			"in a transaction": {call.Call{Transaction: &call.Transaction{}}, test.within},
		} {
			if got := rpcerr.Explain(test.err, row.of).Retry(); got != row.want {
				t.Errorf("%s, %s: retry is %s, want %s", test.name, what, got, row.want)
			}
		}
	}
}
