package ctxwatch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Child implements a context below another one that its owner can cancel, as those of
// context.WithCancelCause, at less cost: a context of package context is made only when Done asks
// for one, or it is canceled. Until then one observer watches the parent (see Watchable). It needs
// no goroutine. Init comes first, and End last (see IsUnseen). A Child must not be copied.
type Child struct {
	parent context.Context //nolint:containedctx // the context that it is below
	// whole is &made when made is set; nil before.
	whole atomic.Pointer[cancelable]
	made  cancelable
	over  atomic.Bool // End was called

	mu        sync.Mutex // guards what follows, and the making of whole
	interrupt func()     // of Watch; nil: nothing is watched
	follows   Watch      // of the parent or of made, while interrupt is set
	ordered   error      // of Cancel: the first that is not context.Canceled, if any
	orders    map[*order]struct{}
}

// order holds what Orders was given.
type order struct{ f func(cause error) }

// nearest identifies the Child that a context is, or is below, as a key of Value.
type nearest struct{}

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
func (c *Child) Init(parent context.Context) {
	c.parent = parent
	c.over.Store(false)
}

// IsUnseen reports, after End, whether the context was not asked for its channel, not canceled, and
// not ended by its parent. Init can then be called again, if nothing looks at it any more.
func (c *Child) IsUnseen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whole.Load() == nil && c.ordered == nil && c.parent.Err() == nil
}

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
	if key == (nearest{}) {
		return c
	}
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
	watches, follows := c.interrupt != nil, c.follows
	c.interrupt, c.follows = nil, Watch{}
	return watches && !follows.Cease()
}

// Cancel ends the context with a cause, unless it has ended, and tells the callers of Orders.
func (c *Child) Cancel(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	c.mu.Lock()
	if c.ordered == nil || errors.Is(c.ordered, context.Canceled) {
		c.ordered = cause
	}
	orders := slices.Collect(maps.Keys(c.orders))
	c.mu.Unlock()
	c.make().cancel(cause)
	for _, o := range orders {
		o.f(cause)
	}
}

// Orders has f called with the cause if the Child that ctx is, or one that it is below, is or was
// canceled with Cancel, until stop is called. A context has one end: what goes on after the end of
// ctx hears of a later Cancel by Orders only. Of several before, f hears of the first one whose
// cause is not context.Canceled. f must not block, and may be called more than once, also by Orders
// itself and after stop.
func Orders(ctx context.Context, f func(cause error)) (stop func()) {
	o := &order{f}
	var of []*Child
	//nolint:contextcheck // the contexts above
	for c := childOf(ctx); c != nil; c = childOf(c.parent) {
		of = append(of, c)
		c.mu.Lock()
		if c.orders == nil {
			c.orders = map[*order]struct{}{}
		}
		c.orders[o] = struct{}{}
		cause := c.ordered
		c.mu.Unlock()
		if cause != nil {
			f(cause)
		}
	}
	return func() {
		for _, c := range of {
			c.mu.Lock()
			delete(c.orders, o)
			c.mu.Unlock()
		}
	}
}

// childOf returns the Child that a context is, or is below; nil: there is none.
func childOf(ctx context.Context) *Child {
	c, _ := ctx.Value(nearest{}).(*Child)
	return c
}

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
