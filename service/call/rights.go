package call

import "context"

// Rights says what a call was allowed by the policy, and whether its client would still be allowed
// what was opened by other calls.
type Rights interface {
	// Taken returns what the call was allowed by, which what it opens keeps.
	Taken() string
	// Check returns an error if the client of this call would not be allowed now what Taken has
	// returned for another call. A stream then also depends on it.
	Check(taken string) error
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
