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

// NewContext returns a context with a call.
func NewContext(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, key{}, c)
}

// From returns the call of a context that NewContext has made. It panics without one: a handler that
// no interceptor leads to would serve every client as the same principal.
func From(ctx context.Context) *Call {
	c, ok := ctx.Value(key{}).(*Call)
	if !ok {
		panic("bug: call: the context has no call")
	}
	return c
}
