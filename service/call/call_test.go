package call_test

import (
	"context"
	"testing"

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
