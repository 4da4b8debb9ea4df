package server

import (
	"context"

	"google.golang.org/grpc/tap"

	"github.com/mooringdb/mooring/service/rpcerr"
)

// refuseEarly refuses calls before they have a goroutine: those on connections that are closed
// already, of which grpc still reads what it has received, and the streams of health and reflection
// beyond those that clients may hold, which are of no use. Those with a timeout get a goroutine
// that only refuses them. grpc calls it for each call, in the goroutine that reads from the
// connection, and with a lock held: it does not block.
func refuseEarly(ctx context.Context, call *tap.Info) (context.Context, error) {
	c := clientOf(ctx)
	if c == nil {
		return ctx, nil
	}
	if c.closed.Load() {
		return early(ctx, errGone)
	}
	if !isInfrastructure(call.FullMethodName) || isCheck(call.FullMethodName) {
		return ctx, nil
	}
	if !c.cost.Hold() {
		c.cost.Waste()
		return early(ctx, rpcerr.Status(tooManyStreams(isHealth(call.FullMethodName))).Err())
	}
	context.AfterFunc(ctx, c.cost.Release) // when the stream ends
	return ctx, nil
}

// early refuses a call: at once, or in open if the call has a timeout. grpc does not cancel the
// context of a call that is refused at once, and until the timeout, which may be years, its timer
// would hold memory.
func early(ctx context.Context, refused error) (context.Context, error) {
	if _, timed := ctx.Deadline(); timed {
		return context.WithValue(ctx, refusedKey{}, refused), nil
	}
	return nil, refused
}

// refusedKey keys the error of a call that early has left to open.
type refusedKey struct{}

// refusedEarly returns the error of a call that early has left to open, nil for other calls.
func refusedEarly(ctx context.Context) error {
	err, _ := ctx.Value(refusedKey{}).(error)
	return err
}

// errGone refuses a call whose client gets no answer any more.
var errGone = rpcerr.Status(&rpcerr.Error{
	Reason: rpcerr.Canceled, Message: "the connection is closed",
}).Err()

// isCheck reports whether a method of health is unary.
func isCheck(method string) bool { return isHealth(method) && method != watchMethod }

const watchMethod = "/grpc.health.v1.Health/Watch"
