package ctxwatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Child implements a context below another one that its owner can cancel, as those of
// context.WithCancelCause, at less cost: a context of package context is made only when Done asks
// for one, or it is canceled. Until then one observer watches the parent (see Watchable). It needs
// no goroutine. Init comes first, and End last. A Child must not be copied.
type Child struct {
	parent context.Context //nolint:containedctx // the context that it is below
	// whole is &made when made is set; nil before.
	whole atomic.Pointer[cancelable]
	made  cancelable
	over  atomic.Bool // End was called

	mu        sync.Mutex // guards what follows, and the making of whole
	interrupt func()     // of Watch; nil: nothing is watched
	follows   Watch      // of the parent or of made, while interrupt is set
}

// cancelable holds a context of package context.
type cancelable struct {
	context.Context //nolint:containedctx // it is a context
	cancel          context.CancelCauseFunc
}

var (
	_ context.Context = (*Child)(nil)
	_ Watchable       = (*Child)(nil)
)

// Init sets the context that the child is below.
func (c *Child) Init(parent context.Context) { c.parent = parent }

// Deadline returns the parent's.
func (c *Child) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done returns a channel that is closed when the context has ended.
func (c *Child) Done() <-chan struct{} { return c.make().Done() }

// Err returns why the context has ended.
func (c *Child) Err() error {
	if whole := c.whole.Load(); whole != nil {
		return whole.Err()
	}
	if c.over.Load() {
		return context.Canceled
	}
	return c.parent.Err()
}

// Value returns the parent's value of a key.
func (c *Child) Value(key any) any {
	if whole := c.whole.Load(); whole != nil {
		return whole.Value(key)
	}
	return c.parent.Value(key)
}

// make returns the context that has all.
func (c *Child) make() *cancelable {
	if whole := c.whole.Load(); whole != nil {
		return whole
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.whole.Load() == nil {
		c.made.Context, c.made.cancel = context.WithCancelCause(c.parent)
		if c.over.Load() {
			c.made.cancel(context.Canceled)
		}
		c.watchMadeLocked()
		c.whole.Store(&c.made)
	}
	return &c.made
}

// watchMadeLocked has what watches told by the new context instead of by the parent, which tells it
// and that context in any order: who is interrupted must see the end.
func (c *Child) watchMadeLocked() {
	switch {
	case c.interrupt == nil:
	case c.follows.Cease(): // the parent has ended, and is about to tell the new context
		<-c.made.Done()
	default:
		c.follows = Watch{stop: context.AfterFunc(c.made.Context, c.interrupt)}
	}
}

// Watch has interrupt called when the context ends: see Watchable.
func (c *Child) Watch(interrupt func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interrupt != nil || c.over.Load() || c.whole.Load() != nil {
		return false
	}
	c.interrupt, c.follows = interrupt, Call(c.parent, interrupt)
	return true
}

// Unwatch ends what Watch has begun.
func (c *Child) Unwatch() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	watches := c.interrupt != nil
	c.interrupt = nil
	return watches && !c.follows.Cease()
}

// Cancel ends the context with a cause, unless it has ended.
func (c *Child) Cancel(cause error) { c.make().cancel(cause) }

// End ends the context, unless it has ended, and releases what it holds. The owner must call it.
func (c *Child) End() {
	c.mu.Lock()
	c.over.Store(true)
	whole, interrupt := c.whole.Load(), c.interrupt
	if interrupt != nil && whole == nil && !c.follows.Cease() {
		go interrupt()
	}
	c.interrupt = nil
	c.mu.Unlock()
	if whole != nil {
		whole.cancel(context.Canceled)
	}
}
