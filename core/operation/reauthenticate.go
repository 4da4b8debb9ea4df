package operation

import (
	"context"
	"errors"

	"github.com/mooringdb/mooring/core/mongoerr"
)

// codeReauthenticationRequired is how a server says that what the connection has authenticated
// with is over.
const codeReauthenticationRequired = 391

// wantsReauthentication reports whether the server refused the command for that reason, for the
// first time.
func (x *exchange) wantsReauthentication(err error) bool {
	failed, ok := errors.AsType[*mongoerr.CommandError](err)
	return ok && failed.Code == codeReauthenticationRequired && !x.reauthenticated
}

// sendAgain authenticates the connection again and sends the command once more, whatever it is:
// the server has not run it (Authentication, "Reauthentication").
func (x *exchange) sendAgain(
	ctx context.Context, c *course, op *Operation, cause error,
) (Result, error) {
	x.reauthenticated, x.requestID, c.sent = true, nextRequestID(), false
	if err := x.conn.Reauthenticate(ctx, cause); err != nil {
		x.markDirty(err)
		x.leave(err)
		return Result{}, err
	}
	if err := x.req.build(ctx, op, x, c); err != nil {
		return Result{}, err
	}
	return x.send(ctx, c, op)
}
