// Package ctxwatch interrupts blocking I/O when a context ends, without a goroutine per operation. It neither reads
// nor writes; what an interruption does is up to the caller.
package ctxwatch

import (
	"context"
	"errors"
)

// Watcher observes contexts, one at a time. Make one with New.
type Watcher struct {
	interrupt func()
	done      chan struct{} // gets a value when interrupt has returned; capacity 1: each call of Stop takes it out
}

// New makes a Watcher that calls interrupt, in a goroutine of its own, if a context that it observes ends. interrupt must not
// block, and must be safe to call while the I/O goes on and after it is over.
func New(interrupt func()) *Watcher {
	w := &Watcher{done: make(chan struct{}, 1)}
	w.interrupt = func() {
		defer func() { w.done <- struct{}{} }()
		interrupt()
	}
	return w
}

// Watch is one running observation of a context.
type Watch struct {
	watcher *Watcher
	stop    func() bool
}

// Start begins to observe ctx, until Stop. A context that cannot end costs nothing.
func (w *Watcher) Start(ctx context.Context) Watch {
	if ctx.Done() == nil {
		return Watch{}
	}
	return Watch{w, context.AfterFunc(ctx, w.interrupt)}
}

// Stop ends the observation; it must be called once. It is true if interrupt was called, and has returned by then: nothing
// interrupts any more, so that what the interruption did can be undone if the I/O had succeeded before.
func (w Watch) Stop() (interrupted bool) {
	if w.stop == nil || w.stop() {
		return false
	}
	<-w.watcher.done
	return true
}

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

// Past is err, the end of one caller's context, for the callers who come later: it tells what happened, but it is no end of
// their contexts, so it satisfies errors.Is for causes other than context.Canceled and context.DeadlineExceeded only.
func Past(err error) error { return &pastError{err} }

type pastError struct{ err error }

func (e *pastError) Error() string { return "given up by an earlier call: " + e.err.Error() }

func (e *pastError) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && //nolint:errorlint // identity: which is asked for?
		errors.Is(e.err, target)
}

// Timeout is true, since somebody's time was over, and that says nothing about the server.
func (*pastError) Timeout() bool { return true }
