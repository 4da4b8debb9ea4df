package rpcerr

import (
	"context"
	"errors"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/service/admission"
)

// deadlineExceeded explains that the call's own deadline passed. Other timeouts (the server's, of
// selection, of connecting) have rows and messages of their own.
func (x *explanation) deadlineExceeded(err error) {
	x.row = reasons[DeadlineExceeded]
	x.message = deadlineMessage(err)
}

// deadlineMessage returns a message that says what the call waited for when its deadline passed.
func deadlineMessage(err error) string {
	const passed = "the deadline of the call passed"
	if e, ok := errors.AsType[*admission.WaitError](err); ok {
		return passed + " while it waited for the gateway's " + e.What
	}
	if e, ok := errors.AsType[*mongoerr.SelectionError](err); ok {
		return passed + " while it waited for a server for " + e.Selector +
			"; topology: " + e.Topology
	}
	if e, ok := errors.AsType[*pool.WaitQueueTimeoutError](err); ok {
		return passed + " while it waited for a connection to " + e.Address.String()
	}
	if e, ok := errors.AsType[*mongoerr.NetworkError](err); ok {
		return passed + " while it waited for the answer of " + e.Address.String()
	}
	e, ok := errors.AsType[*operation.TimeoutError](err)
	if ok && !errors.Is(e.Err, context.DeadlineExceeded) {
		return passed + ": " + mongoerr.Outline(e.Err)
	}
	return passed
}

// isUnsent reports whether the error is a network error before anything was sent: the connection
// could not be opened, or could no longer be used. Opening has a time limit of its own. So this is
// not the call's deadline, whatever the error wraps: the deadline would end the wait in the pool.
func isUnsent(err error) bool {
	return mongoerr.IsNetwork(err) && mongoerr.Judge(err).Delivery == mongoerr.Unsent
}
