package interceptor

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// lifetime implements the context of a call. It ends with its parent, by cancel with a cause, and
// at the end of the call. Most calls only have their requests to the server watched, and look for
// no Done channel: a context of package context is made when one is asked for. It must not be
// copied.
type lifetime struct {
	parent context.Context //nolint:containedctx // it is a context
	// whole is &made when made is set, and then has all that a context has; nil before.
	whole atomic.Pointer[cancelable]
	made  cancelable
	over  atomic.Bool // the call has ended

	mu sync.Mutex // guards what follows, and the making of whole
	// interrupt is what Watch was given, and stop ends that it is called with the end of whole, or
	// of the parent as long as whole is nil; nil: nothing is watched.
	interrupt func()
	stop      func() bool
	ended     bool // nothing more can be watched
}

// cancelable holds a context of package context.
type cancelable struct {
	context.Context //nolint:containedctx // it is a context
	cancel          context.CancelCauseFunc
}

var _ context.Context = (*lifetime)(nil)

// Deadline returns the parent's.
func (l *lifetime) Deadline() (time.Time, bool) { return l.parent.Deadline() }

// Done returns the channel that is closed when the context ends.
func (l *lifetime) Done() <-chan struct{} { return l.make().Done() }

// Err returns why the context has ended; nil: it has not.
func (l *lifetime) Err() error {
	switch c := l.whole.Load(); {
	case c != nil:
		return c.Err()
	case l.over.Load():
		return context.Canceled
	}
	return l.parent.Err()
}

// Value returns the parent's value, and tells package context where the cause of the end is.
func (l *lifetime) Value(key any) any {
	if c := l.whole.Load(); c != nil {
		return c.Value(key)
	}
	return l.parent.Value(key)
}

// make returns the context that has all.
func (l *lifetime) make() *cancelable {
	if c := l.whole.Load(); c != nil {
		return c
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.whole.Load() == nil {
		l.made.Context, l.made.cancel = context.WithCancelCause(l.parent)
		if l.over.Load() {
			l.made.cancel(nil)
		}
		l.watchMadeLocked()
		l.whole.Store(&l.made)
	}
	return &l.made
}

// watchMadeLocked has what is watched wait for the end of the new context: the parent tells those
// that depend on it in any order, and who is interrupted must see the end and its cause.
func (l *lifetime) watchMadeLocked() {
	switch {
	case l.stop == nil:
	case l.stop():
		l.stop = context.AfterFunc(l.made.Context, l.interrupt)
	default: // the parent has ended, and is about to tell the new context
		<-l.made.Done()
	}
}

// cancel ends the context with a cause. It does not block.
func (l *lifetime) cancel(cause error) {
	l.make().cancel(cause)
	l.interruptWatched()
}

// end ends the context with the call.
func (l *lifetime) end() {
	l.over.Store(true)
	l.mu.Lock()
	c, watched := l.whole.Load(), l.stop != nil
	l.ended = true
	l.mu.Unlock()
	if c != nil {
		c.cancel(nil)
	}
	if watched {
		l.interruptWatched()
	}
}

func (l *lifetime) interruptWatched() {
	l.mu.Lock()
	interrupt, stop := l.interrupt, l.stop
	l.interrupt, l.stop, l.ended = nil, nil, true
	l.mu.Unlock()
	if stop != nil && stop() {
		go interrupt()
	}
}

// Watch has interrupt called in a goroutine of its own when the context ends. It reports false if
// it does not, since something else watches, the context has been ended, or a Done channel was
// asked for: context.AfterFunc works then, too.
func (l *lifetime) Watch(interrupt func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.stop != nil || l.whole.Load() != nil {
		return false
	}
	l.interrupt, l.stop = interrupt, context.AfterFunc(l.parent, interrupt)
	return true
}

// Unwatch ends what Watch has begun. It reports false if interrupt was called or will be.
func (l *lifetime) Unwatch() bool {
	l.mu.Lock()
	stop := l.stop
	l.interrupt, l.stop = nil, nil
	l.mu.Unlock()
	return stop != nil && stop()
}
