package operation

import (
	"math"
	"time"
)

// The backoff before a retry that an overloaded server caused (Client Backpressure).
const (
	baseBackoff = 100 * time.Millisecond
	maxBackoff  = 10 * time.Second
)

// The pace of the retries that timeoutMS bounds in place of a number.
const (
	basePace = 10 * time.Millisecond
	maxPace  = 500 * time.Millisecond
)

// DefaultMaxAdaptiveRetries is how often an operation is retried at most once it has met an
// overloaded server.
const DefaultMaxAdaptiveRetries = 2

// rules holds what the Runner and the operation allow.
type rules struct {
	// overload says that retryable overload errors are retried.
	overload bool
	// unlimited says that timeoutMS bounds the retries, in place of a number.
	unlimited bool
	// adaptive is the number of retries at most, once a server was overloaded.
	adaptive int
	// retarget has retries avoid an overloaded server.
	retarget bool
}

// failure holds what matters for another attempt about one that failed.
type failure struct {
	// transient says that the rules of retryable reads or writes allow another attempt.
	transient bool
	// overloaded says that the server was overloaded, and retryable that it allows another attempt.
	overloaded, retryable bool
	// base is the server's baseBackoffMS; 0: it has named none.
	base    time.Duration
	sharded bool
	// timed says that there is a deadline, and left is the time until then.
	timed bool
	left  time.Duration
}

// verdict says how an operation goes on after a failed attempt.
type verdict struct {
	again bool
	wait  time.Duration
	// avoid has the next attempt prefer other servers than that of this one.
	avoid bool
}

// after decides what follows from a failed attempt, which the ledger has: the only place where that
// is decided (Retryable Reads, Retryable Writes, Client Backpressure). jitter is from 0 to 1.
func (l ledger) after(f failure, r rules, jitter float64) verdict {
	overload := f.overloaded && f.retryable && r.overload
	if !overload && !f.transient || l.attempts > l.most(r) {
		return verdict{}
	}
	var wait time.Duration
	switch {
	case f.overloaded:
		wait = backoff(f.base, l.attempts, jitter)
		if wait > 0 && f.timed && wait >= f.left {
			return verdict{}
		}
	case r.unlimited && !l.overloaded:
		wait = pace(l.attempts, jitter)
	}
	return verdict{again: true, wait: wait, avoid: f.sharded || f.overloaded && r.retarget}
}

// most returns how many retries the operation may have in all.
func (l ledger) most(r rules) int {
	switch {
	case l.overloaded:
		return r.adaptive
	case r.unlimited:
		return math.MaxInt
	}
	return 1
}

// backoff returns the wait before retry n, which begins with 1.
func backoff(base time.Duration, n int, jitter float64) time.Duration {
	if base <= 0 {
		base = baseBackoff
	}
	most := min(float64(base)*math.Pow(2, float64(n)), float64(maxBackoff))
	return time.Duration(jitter * most)
}

// pace returns the wait before retry n where timeoutMS bounds the retries. The first one has none.
// The specification names no wait: without one, a server that answers with an error at once would
// get as many commands as the network carries.
func pace(n int, jitter float64) time.Duration {
	if n <= 1 {
		return 0
	}
	most := min(float64(basePace)*math.Pow(2, float64(n-1)), float64(maxPace))
	return time.Duration((1 + jitter) / 2 * most)
}
