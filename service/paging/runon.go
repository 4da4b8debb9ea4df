package paging

import (
	"context"
	"errors"
	"time"

	"github.com/mooringdb/mooring/core/operation"
)

// errRunOnOver ends the asking of other replicas for a client that has gone long ago.
var errRunOnOver = errors.New("the caller disconnected, and the other replicas did not answer " +
	"in time")

// runOn returns a context for asking other replicas. If the client goes away, it continues until
// the deadline of ctx, for operation.RunOnLimit at most. Every other end of ctx ends it. The caller
// must call cancel.
func runOn(ctx context.Context) (_ context.Context, cancel func()) {
	inner, end := context.WithCancelCause(context.WithoutCancel(ctx))
	timeUp := func() {}
	if deadline, ok := ctx.Deadline(); ok {
		inner, timeUp = context.WithDeadline(inner, deadline)
	}
	limit := make(chan *time.Timer, 1)
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			end(cause)
			limit <- nil
			return
		}
		limit <- time.AfterFunc(operation.RunOnLimit, func() { end(errRunOnOver) })
	})
	return inner, func() {
		if !stop() { // it runs, or has run
			if timer := <-limit; timer != nil {
				timer.Stop()
			}
		}
		timeUp()
		end(nil)
	}
}
