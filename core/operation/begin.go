package operation

import (
	"context"
	"errors"
	"time"

	"github.com/mooringdb/mooring/core/internal/timeoutms"
)

// Begin returns the context of an operation that starts now, for all its commands: it ends with
// ctx, when timeout has passed, and at until, whichever comes first. A zero until is none. A
// timeout of nil is the Runner's, or what is left if ctx has a deadline that Begin has made. With
// one of 0 only ctx and until count.
//
// The returned function releases the context's timer. The caller calls it at the operation's end.
func (r *Runner) Begin(
	ctx context.Context, timeout *time.Duration, until time.Time,
) (context.Context, context.CancelFunc) {
	if _, timed := ctx.Deadline(); timeout == nil && !(timed && timeoutms.Governs(ctx)) {
		timeout = r.Timeout
	}
	if timeout != nil {
		ctx = timeoutms.Mark(ctx)
		if end := time.Now().Add(*timeout); *timeout > 0 && (until.IsZero() || end.Before(until)) {
			until = end
		}
	}
	if until.IsZero() {
		return ctx, nothing
	}
	return context.WithDeadline(ctx, until)
}

// Limited reports whether timeoutMS sets a limit for an operation with this timeout; nil is the
// Runner's.
func (r *Runner) Limited(timeout *time.Duration) bool {
	if timeout == nil {
		timeout = r.Timeout
	}
	return timeout != nil && *timeout > 0
}

// ended returns why ctx ended before a command was sent, nil if it did not.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return &TimeoutError{Err: errBeforeStart}
	}
	return cause
}

var errBeforeStart = errors.New("the deadline passed before anything was sent")
