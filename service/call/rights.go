package call

import (
	"context"
	"time"
)

// Rights says what a call was allowed by the policy, and whether its client would still be allowed
// what was opened by other calls.
type Rights interface {
	// Taken returns what the call was allowed by, which what it opens keeps.
	Taken() string
	// Check returns an error if the client of this call would not be allowed now what Taken has
	// returned for another call. A stream then also depends on it.
	Check(taken string) error
	// Since returns since when this replica has the rules and the API keys that it has now.
	Since() time.Time
}

// Taken returns what a call was allowed by; empty: there is no policy.
func Taken(ctx context.Context) string {
	if c, ok := ctx.Value(key{}).(*Call); ok && c.Rights != nil {
		return c.Rights.Taken()
	}
	return ""
}

// CheckTaken returns an error if the client of a call would not be allowed now what another call
// was.
func CheckTaken(ctx context.Context, taken string) error {
	if c, ok := ctx.Value(key{}).(*Call); ok && c.Rights != nil && taken != "" {
		return c.Rights.Check(taken)
	}
	return nil
}

// RightsSince returns since when the replica has the rules and the API keys by which it decides
// about a call; zero: there is no policy.
func RightsSince(ctx context.Context) time.Time {
	if c, ok := ctx.Value(key{}).(*Call); ok && c.Rights != nil {
		return c.Rights.Since()
	}
	return time.Time{}
}
