package rpcerr

import (
	"context"
	"errors"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/pool"
)

// deadlineExceeded explains that the call's own time ran out. Other timeouts (of the server's, of
// selection, of connecting) have lines and words of their own.
func (x *explanation) deadlineExceeded(err error) {
	x.row = reasons[DeadlineExceeded]
	if mongoerr.Judge(err).Delivery == mongoerr.Unsent {
		x.retry = SameRequest
	}
	x.message = deadlineMessage(err)
}

// deadlineMessage says what was waited for when the call's deadline passed.
func deadlineMessage(err error) string {
	const passed = "the deadline of the call passed"
	if e, ok := errors.AsType[*mongoerr.SelectionError](err); ok {
		return passed + " while it waited for a server for " + e.Selector + "; topology: " + e.Topology
	}
	if e, ok := errors.AsType[*pool.WaitQueueTimeoutError](err); ok {
		return passed + " while it waited for a connection to " + e.Address.String()
	}
	if e, ok := errors.AsType[*mongoerr.NetworkError](err); ok {
		return passed + " while it waited for the answer of " + e.Address.String()
	}
	if e, ok := errors.AsType[*operation.TimeoutError](err); ok && !errors.Is(e.Err, context.DeadlineExceeded) {
		return passed + ": " + e.Err.Error()
	}
	return passed
}

// isUnsent says whether the error is that of a connection that could not be opened, or not be
// used any more: nothing has been sent. Opening has a time limit of its own, so this is not the
// call's deadline, whatever the error wraps: that would have ended the wait in the pool.
func isUnsent(err error) bool {
	return mongoerr.IsNetwork(err) && mongoerr.Judge(err).Delivery == mongoerr.Unsent
}
