// Package ctxwatch interrupts blocking I/O when a context ends, without a goroutine per operation. It neither reads
// nor writes; what an interruption does is up to the caller.
package ctxwatch

import "context"

// Watch is one running observation of a context. The zero value observes nothing.
type Watch struct{ stop func() bool }

// Start calls interrupt, once and in a goroutine of its own, if ctx ends before Stop. interrupt must be safe to call
// while the I/O goes on and after it is over. A context that cannot end costs nothing.
func Start(ctx context.Context, interrupt func()) Watch {
	if ctx.Done() == nil {
		return Watch{}
	}
	return Watch{context.AfterFunc(ctx, interrupt)}
}

// Stop ends the observation. It is true if interrupt was called, or is being called: what it interrupts must then not
// be used again, even if the I/O had already succeeded.
func (w Watch) Stop() (interrupted bool) { return w.stop != nil && !w.stop() }

// Err is why ctx ended, or nil if it has not. It satisfies errors.Is for ctx.Err() and for context.Cause(ctx).
func Err(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != err { //nolint:errorlint // identity: is there a cause of its own?
		return &endError{cause, err}
	}
	return err
}

// endError is the end of a context for a cause of its own.
type endError struct{ cause, err error }

func (e *endError) Error() string   { return e.cause.Error() }
func (e *endError) Unwrap() []error { return []error{e.cause, e.err} }
