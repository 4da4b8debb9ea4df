package call_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/ctxwatch"
	"github.com/mooringdb/mooring/service/call"
)

type other struct{}

func TestFrom(t *testing.T) {
	outer := context.WithValue(t.Context(), other{}, "kept")
	c := &call.Context{Context: outer, Call: call.Call{Principal: "alice"}}
	ctx, cancel := context.WithCancel(c)
	if got := call.From(ctx); got != &c.Call {
		t.Errorf("From() = %v, want the call of the context that it is made from", got)
	}
	if got := ctx.Value(other{}); got != "kept" {
		t.Errorf("Value() = %v, want what the context within has", got)
	}
	cancel()
	if ctx.Err() == nil || c.Err() != nil {
		t.Errorf("after cancel: %v and %v, want an end of the inner context alone", ctx.Err(),
			c.Err())
	}
}

// Without a call every client would be the same principal.
func TestFromWithout(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("From() of a context without a call returns, want a panic")
		}
	}()
	call.From(t.Context())
}

// TestWatch checks that the end of a call is told through its Context to one observer.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var below ctxwatch.Child
		below.Init(t.Context())
		c := &call.Context{Context: &below}
		told := false
		if !c.Watch(func() { told = true }) || c.Watch(func() {}) {
			t.Error("the first observer is refused, or a second one is not")
		}
		if !c.Unwatch() || !c.Watch(func() { told = true }) {
			t.Error("Unwatch() = false, or Watch() after it")
		}
		below.End()
		synctest.Wait()
		if !told || c.Unwatch() {
			t.Error("the end was not told, or Unwatch() = true after it")
		}
	})
	derived := &call.Context{Context: context.WithoutCancel(t.Context())}
	if derived.Watch(func() {}) || derived.Unwatch() {
		t.Error("a context of package context can be watched")
	}
}
