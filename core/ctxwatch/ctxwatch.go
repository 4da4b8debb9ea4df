// Package ctxwatch interrupts blocking I/O when a context ends, without a goroutine for each
// operation. It neither reads nor writes: the caller says what an interruption does.
package ctxwatch

import (
	"context"
	"errors"
)

// Watcher observes contexts, one at a time. Make one with New.
type Watcher struct {
	interrupt func()
	// done receives a value when interrupt has returned. It has room for one: Stop takes it out.
	done chan struct{}
}

// New returns a Watcher. If a context that it observes ends, the Watcher calls interrupt in a
// goroutine of its own. interrupt must not block, and must be safe to call during the I/O and
// after it.
func New(interrupt func()) *Watcher {
	w := &Watcher{done: make(chan struct{}, 1)}
	w.interrupt = func() {
		defer func() { w.done <- struct{}{} }()
		interrupt()
	}
	return w
}

// Watchable tells one observer of the end of a context, at less cost than context.AfterFunc. A
// context may be one; what is derived from it is none.
type Watchable interface {
	// Watch has interrupt called in a goroutine of its own when the context ends. It reports false
	// if it does not; context.AfterFunc works then, too.
	Watch(interrupt func()) bool
	// Unwatch ends what a Watch that reported true has begun. It reports false if interrupt was
	// called or will be.
	Unwatch() bool
}

// Watch identifies one running observation of a context.
type Watch struct {
	watcher *Watcher    // nil with Call
	of      Watchable   // or else
	stop    func() bool // nil: the context cannot end
}

// Start begins to observe ctx until Stop. A context that cannot end costs nothing.
func (w *Watcher) Start(ctx context.Context) Watch {
	watch := Call(ctx, w.interrupt)
	watch.watcher = w
	return watch
}

// Call has f called, in a goroutine of its own, when ctx ends, unless Cease is called before.
func Call(ctx context.Context, f func()) Watch {
	if of, ok := ctx.(Watchable); ok && of.Watch(f) {
		return Watch{of: of}
	}
	if ctx.Done() == nil {
		return Watch{}
	}
	return Watch{stop: context.AfterFunc(ctx, f)}
}

// Cease ends an observation that Call has begun. It reports whether f was called, or will be.
func (w Watch) Cease() (called bool) {
	switch {
	case w.of != nil:
		return !w.of.Unwatch()
	case w.stop != nil:
		return !w.stop()
	}
	return false
}

// Stop ends an observation that Start has begun; the caller must call it once. It reports whether
// interrupt was called, and has then waited for it to return. After Stop nothing interrupts the
// I/O, so the caller can undo the interruption if the I/O has succeeded.
func (w Watch) Stop() (interrupted bool) {
	if !w.Cease() {
		return false
	}
	<-w.watcher.done
	return true
}

// Err returns why ctx ended, or nil if it has not. It satisfies errors.Is for ctx.Err() and for
// context.Cause(ctx).
func Err(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != err { //nolint:errorlint // identity
		return &endError{cause, err}
	}
	return err
}

// endError reports that a context ended with a cause of its own.
type endError struct{ cause, err error }

func (e *endError) Error() string   { return e.cause.Error() }
func (e *endError) Unwrap() []error { return []error{e.cause, e.err} }

// Past returns an error for calls that come after err ended an earlier call's context. It has the
// text of err, but their contexts have not ended: errors.Is does not find context.Canceled and
// context.DeadlineExceeded in it.
func Past(err error) error { return &pastError{err} }

type pastError struct{ err error }

func (e *pastError) Error() string { return "given up by an earlier call: " + e.err.Error() }

func (e *pastError) Is(target error) bool {
	//nolint:errorlint // identity
	return target != context.Canceled && target != context.DeadlineExceeded &&
		errors.Is(e.err, target)
}

// Timeout reports true: an earlier call ran out of time, which says nothing about the server.
func (*pastError) Timeout() bool { return true }
