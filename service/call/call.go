// Package call is what a handler knows of a call besides its request: who calls, under which id, and
// in which form the response should be. The interceptors make the value and put it into the call's
// context; service/request takes it from there. The deadline and the cancellation are the context's
// own.
package call

import (
	"context"

	"github.com/mooringdb/mooring/service/payload"
)

// Call is the value. The tokens of sessions and transactions will be fields of it.
type Call struct {
	// Principal names the client; empty for clients that are not authenticated.
	Principal string
	// RequestID is the id of the request, which logs and errors have.
	RequestID string
	// Encoding is the form of documents in the response and in the details of an error.
	Encoding payload.Encoding
	// Casual: the client may be content with the first page of a result, as one that sends a plain GET.
	Casual bool
}

type key struct{}

// Context is a context that carries a call. It is a struct, so that the interceptors' own value of a
// call can be the handler's context, too.
type Context struct {
	context.Context //nolint:containedctx // it is a context, of the call that it stands beside
	Call
}

// Value returns the call, for From, and else what the context within has.
func (c *Context) Value(k any) any {
	if k == (key{}) {
		return &c.Call
	}
	return c.Context.Value(k)
}

// From returns the call of the Context that ctx is, or is made from. It panics without one: a handler
// that no interceptor leads to would serve every client as the same principal.
func From(ctx context.Context) *Call {
	c, ok := ctx.Value(key{}).(*Call)
	if !ok {
		panic("bug: call: the context has no call")
	}
	return c
}
