package rpcerr_test

import (
	"context"
	"testing"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestBrokenOff checks what the client of a stream is told that is broken off, by what its handler
// has done.
func TestBrokenOff(t *testing.T) {
	one := int64(1)
	quoting := mongoerr.WriteError{Code: 121, Message: "a document's words"}
	partly := &rpcerr.PartialError{
		Err: context.Canceled, Result: rpcerr.Result{
			InsertedCount: &one, WriteErrors: []mongoerr.WriteError{quoting},
		},
	}
	for name, row := range map[string]struct {
		taken    bool
		ended    error
		reason   rpcerr.Reason
		retry    rpcerr.Retry
		inserted int64
		quotes   bool
	}{
		"nothing was taken":     {false, context.Canceled, rpcerr.BodyTimeout, rpcerr.SameRequest, 0, false},
		"not known":             {true, nil, rpcerr.BodyTimeout, rpcerr.Never, 0, false},
		"nothing tells more":    {true, context.Canceled, rpcerr.BodyTimeout, rpcerr.Never, 0, false},
		"a part":                {true, partly, rpcerr.BodyTimeout, rpcerr.Never, 1, true},
		"a part, explained":     {true, rpcerr.Explain(partly, call.Call{}), rpcerr.BodyTimeout, rpcerr.Never, 1, true},
		"a part of a quiet one": {true, rpcerr.Explain(partly, call.Call{Local: call.Local{Quiet: true}}), rpcerr.BodyTimeout, rpcerr.Never, 1, false},
		"an unknown outcome": {
			true, &operation.OutcomeUnknownError{Err: context.Canceled}, rpcerr.WriteOutcomeUnknown,
			rpcerr.Never, 0, false,
		},
	} {
		err := rpcerr.BrokenOff(&rpcerr.Error{Reason: rpcerr.BodyTimeout}, row.taken, row.ended)
		failed := rpcerr.Explain(err, call.Call{})
		body := failed.HTTP().Body
		quotes := false
		for _, w := range body.GetError().GetWriteErrors() {
			quotes = quotes || w.GetMessage() == quoting.Message
		}
		if failed.Reason() != string(row.reason) || failed.Retry() != row.retry ||
			body.GetResult().GetInsertedCount() != row.inserted || quotes != row.quotes {
			t.Errorf("%s: %s, retry %s, %v, quotes %v", name, failed.Reason(), failed.Retry(),
				body, quotes)
		}
	}
}

// TestPartOfStatus checks that what was done is told with the status that ended a call: that of a
// message that did not arrive, which comes to a handler as a status.
func TestPartOfStatus(t *testing.T) {
	one := int64(1)
	err := rpcerr.Status(&rpcerr.Error{Reason: rpcerr.MessageTooLarge, Message: "large"}).Err()
	failed := rpcerr.Explain(&rpcerr.PartialError{
		Err: err, Result: rpcerr.Result{InsertedCount: &one},
	}, call.Call{})
	body := failed.HTTP().Body
	if failed.Reason() != "MessageTooLarge" || body.GetResult().GetInsertedCount() != 1 {
		t.Errorf("%v", body)
	}
}
