// Package timeoutms marks the context of an operation that timeoutMS limits, so that the older
// limits (socketTimeoutMS, waitQueueTimeoutMS, wTimeoutMS) do not act beside it (Client Side
// Operations Timeout, "Validation and Overrides").
package timeoutms

import "context"

type key struct{}

// Mark returns a context like ctx whose time is governed by timeoutMS. Its deadline is ctx's: a
// timeoutMS of 0 sets none.
func Mark(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, true)
}

// Governs reports whether timeoutMS governs the time of ctx.
func Governs(ctx context.Context) bool {
	return ctx.Value(key{}) != nil
}
