package ctxwatch_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/ctxwatch"
)

// waits are the ways in which something can wait for a context's end.
var waits = map[string]func(context.Context){
	"by its channel": func(ctx context.Context) { <-ctx.Done() },
	"below it": func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		<-ctx.Done()
	},
	"by a watch": func(ctx context.Context) {
		interrupted := make(chan struct{})
		watch := ctxwatch.New(func() { close(interrupted) }).Start(ctx)
		<-interrupted
		watch.Stop()
	},
	"by a watch, with a channel made meanwhile": func(ctx context.Context) {
		interrupted := make(chan struct{})
		watch := ctxwatch.New(func() { close(interrupted) }).Start(ctx)
		<-ctx.Done()
		<-interrupted
		watch.Stop()
	},
}

// TestChild checks who ends a Child, with which error and cause, and that a watch of it is
// interrupted once: Watcher would wait for ever for a second time.
func TestChild(t *testing.T) {
	type key struct{}
	cause := errors.New("cause")
	for _, row := range []struct {
		name  string
		end   func(c *ctxwatch.Child, parent context.CancelCauseFunc)
		err   error
		cause error
	}{
		{
			"its owner", func(c *ctxwatch.Child, _ context.CancelCauseFunc) { c.Cancel(cause) },
			context.Canceled, cause,
		},
		{
			"its end", func(c *ctxwatch.Child, _ context.CancelCauseFunc) { c.End() },
			context.Canceled, context.Canceled,
		},
		{
			"its parent", func(_ *ctxwatch.Child, parent context.CancelCauseFunc) { parent(cause) },
			context.Canceled, cause,
		},
		{"all", func(c *ctxwatch.Child, parent context.CancelCauseFunc) {
			parent(cause)
			c.Cancel(errors.New("later"))
			c.End()
		}, context.Canceled, cause},
		{"its deadline", func(*ctxwatch.Child, context.CancelCauseFunc) {
			time.Sleep(time.Minute) //nolint:forbidigo // fake time
		}, context.DeadlineExceeded, context.DeadlineExceeded},
	} {
		for how, wait := range waits {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithTimeout(
					context.WithValue(t.Context(), key{}, "value"), 30*time.Second)
				defer cancel()
				parent, cancelCause := context.WithCancelCause(parent)
				defer cancelCause(nil)
				var c ctxwatch.Child
				c.Init(parent)
				if at, ok := c.Deadline(); !ok || time.Until(at) != 30*time.Second ||
					c.Err() != nil || c.Value(key{}) != "value" {
					t.Errorf("Deadline() = %v, Err() = %v", at, c.Err())
				}
				ended := make(chan struct{})
				go func() { wait(&c); close(ended) }()
				synctest.Wait()
				row.end(&c, cancelCause)
				<-ended
				if !errors.Is(c.Err(), row.err) || !errors.Is(context.Cause(&c), row.cause) ||
					c.Value(key{}) != "value" {
					t.Errorf("%s, %s: Err() = %v, Cause = %v", row.name, how, c.Err(),
						context.Cause(&c))
				}
				c.End()
				c.End()
				synctest.Wait()
			})
		}
	}
}

// ordered implements a context of which the test says when each that depends on it hears of its
// end. It has no values, so that package context finds no other way to the end.
type ordered struct {
	context.Context //nolint:containedctx // it is a context
	told            []func()
}

func (o *ordered) Value(any) any { return nil }

func (o *ordered) AfterFunc(f func()) (stop func() bool) {
	i := len(o.told)
	o.told = append(o.told, f)
	return func() bool {
		waits := o.told[i] != nil
		o.told[i] = nil
		return waits
	}
}

// TestWatchOfAChildSeesTheEnd checks that what watches a Child finds it ended, with a cause, when
// it is interrupted, in whatever order the parent tells those that depend on it.
func TestWatchOfAChildSeesTheEnd(t *testing.T) {
	for _, asked := range []bool{false, true} {
		for _, backwards := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ends, cancel := context.WithCancel(t.Context())
				parent := &ordered{Context: ends}
				var c ctxwatch.Child
				c.Init(parent)
				calls := 0
				if !c.Watch(func() {
					calls++
					if c.Err() == nil || context.Cause(&c) == nil {
						t.Errorf("asked %t: Err() = %v, Cause() = %v when interrupted", asked,
							c.Err(), context.Cause(&c))
					}
				}) {
					t.Error("Watch() = false")
				}
				if asked {
					c.Done()
				}
				cancel()
				if backwards {
					slices.Reverse(parent.told)
				}
				for _, tell := range parent.told {
					if tell != nil {
						tell()
						synctest.Wait()
					}
				}
				if calls != 1 || c.Unwatch() {
					t.Errorf("asked %t: %d interruptions, want 1, or Unwatch() = true", asked,
						calls)
				}
				c.End()
			})
		}
	}
}

// TestChildIsOver checks that a Child ends with End, however it was used before, that it is not
// watched after that, and that the end of its parent is nothing to it then.
func TestChildIsOver(t *testing.T) {
	for name, use := range map[string]func(*ctxwatch.Child){
		"not used":    func(*ctxwatch.Child) {},
		"waited for":  func(c *ctxwatch.Child) { c.Done() },
		"was watched": func(c *ctxwatch.Child) { ctxwatch.New(func() {}).Start(c).Stop() },
	} {
		synctest.Test(t, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			var c ctxwatch.Child
			c.Init(parent)
			use(&c)
			c.End()
			if !errors.Is(c.Err(), context.Canceled) || c.Watch(func() {}) {
				t.Errorf("%s: Err() = %v after End, or it can be watched", name, c.Err())
			}
			called := false
			stop := context.AfterFunc(&c, func() { called = true })
			cancel()
			synctest.Wait()
			if <-c.Done(); !called || stop() {
				t.Errorf("%s: what is below it has not ended", name)
			}
		})
	}
}

// TestChildHasOneObserver checks that a second observer, and one that comes when a context of
// package context was made, are told too, by that.
func TestChildHasOneObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c ctxwatch.Child
		c.Init(t.Context())
		calls := make(chan string, 4)
		if !c.Watch(func() { calls <- "first" }) || c.Watch(func() { calls <- "refused" }) {
			t.Error("the first observer is refused, or the second one is not")
		}
		second := ctxwatch.Call(&c, func() { calls <- "second" })
		if !c.Unwatch() || c.Unwatch() || c.Watch(func() { calls <- "refused" }) {
			t.Error("Unwatch, Unwatch and Watch are not true, false and false")
		}
		c.Cancel(errors.New("cause"))
		synctest.Wait()
		if len(calls) != 1 || <-calls != "second" || !second.Cease() {
			t.Errorf("%d other calls", len(calls))
		}
		c.End()
	})
}

// TestOrders checks that what goes on after a context has ended hears of each Cancel above, whether
// it comes before or after its parent's end and the call of Orders, and of none after stop.
func TestOrders(t *testing.T) {
	cause := errors.New("cause")
	for name, row := range map[string]struct {
		before, after func(outer, inner *ctxwatch.Child, parent context.CancelFunc)
		want          int
	}{
		"none": {want: 0},
		"the parent's end is no order": {
			after: func(_, _ *ctxwatch.Child, parent context.CancelFunc) { parent() },
		},
		"End is no order": {
			after: func(outer, inner *ctxwatch.Child, _ context.CancelFunc) { inner.End(); outer.End() },
		},
		"the inner one": {
			after: func(_, inner *ctxwatch.Child, parent context.CancelFunc) {
				parent()
				inner.Cancel(cause)
			},
			want: 1,
		},
		"the outer one": {
			after: func(outer, _ *ctxwatch.Child, parent context.CancelFunc) {
				parent()
				outer.Cancel(cause)
			},
			want: 1,
		},
		"before": {
			before: func(outer, _ *ctxwatch.Child, parent context.CancelFunc) {
				parent()
				outer.Cancel(cause)
			},
			want: 1,
		},
		"twice before": {
			before: func(outer, _ *ctxwatch.Child, _ context.CancelFunc) {
				outer.Cancel(nil)
				outer.Cancel(cause)
				outer.Cancel(errors.New("later"))
			},
			want: 1,
		},
	} {
		parent, cancel := context.WithCancel(t.Context())
		var outer, inner ctxwatch.Child
		outer.Init(parent)
		inner.Init(context.WithValue(&outer, t, t))
		calls := 0
		if row.before != nil {
			row.before(&outer, &inner, cancel)
		}
		stop := ctxwatch.Orders(context.WithoutCancel(&inner), func(got error) {
			if calls++; got != cause { //nolint:errorlint // identity
				t.Errorf("%s: cause %v", name, got)
			}
		})
		if row.after != nil {
			row.after(&outer, &inner, cancel)
		}
		if calls != row.want {
			t.Errorf("%s: %d calls, want %d", name, calls, row.want)
		}
		stop()
		inner.Cancel(cause)
		outer.Cancel(cause)
		if calls != row.want {
			t.Errorf("%s: called after stop", name)
		}
		cancel()
	}
	ctxwatch.Orders(t.Context(), func(error) { t.Error("an order without a Child") })()
}

// TestIsUnseen checks that a Child can be used again only if nothing has seen it end or waits for
// its end, and that it begins anew then.
func TestIsUnseen(t *testing.T) {
	for name, row := range map[string]struct {
		use  func(c *ctxwatch.Child, parent context.CancelFunc)
		want bool
	}{
		"not used":    {func(*ctxwatch.Child, context.CancelFunc) {}, true},
		"was watched": {func(c *ctxwatch.Child, _ context.CancelFunc) { ctxwatch.New(func() {}).Start(c).Stop() }, true},
		"waited for":  {func(c *ctxwatch.Child, _ context.CancelFunc) { c.Done() }, false},
		"canceled":    {func(c *ctxwatch.Child, _ context.CancelFunc) { c.Cancel(nil) }, false},
		"its parent":  {func(_ *ctxwatch.Child, parent context.CancelFunc) { parent() }, false},
	} {
		parent, cancel := context.WithCancel(t.Context())
		var c ctxwatch.Child
		c.Init(parent)
		row.use(&c, cancel)
		c.End()
		if got := c.IsUnseen(); got != row.want {
			t.Errorf("%s: IsUnseen() = %t", name, got)
		}
		cancel()
		if !row.want {
			continue
		}
		another, end := context.WithCancel(t.Context())
		c.Init(another)
		if c.Err() != nil {
			t.Errorf("%s: Err() = %v when it begins again", name, c.Err())
		}
		end()
		<-c.Done()
		c.End()
	}
}

// TestChildAllocatesNothing checks what a Child is for.
func TestChildAllocatesNothing(t *testing.T) {
	w := ctxwatch.New(func() {})
	c := new(ctxwatch.Child)
	c.Init(context.Background())
	if n := testing.AllocsPerRun(100, func() { w.Start(c).Stop() }); n != 0 {
		t.Errorf("%v allocations to watch a Child", n)
	}
}
