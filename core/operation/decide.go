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

// failure holds what matters about an attempt that failed.
type failure struct {
	// transient says that the rules of retryable reads or writes allow another attempt.
	transient bool
	// overloaded says that the server was overloaded, and retryable that it allows another attempt.
	overloaded, retryable bool
	// base is the server's baseBackoffMS; 0: it has named none.
	base time.Duration
	// attempted says that the server may have carried something out.
	attempted bool
	sharded   bool
	// timed says that there is a deadline, and left is the time until then.
	timed bool
	left  time.Duration
}

// tries holds what the attempts of an operation came to so far. It is a value.
type tries struct {
	failed     int
	overloaded bool // a server was
}

// verdict says how an operation goes on after a failed attempt.
type verdict struct {
	again bool
	wait  time.Duration
	// avoid has the next attempt prefer other servers than that of this one.
	avoid bool
	// keep makes this attempt's error that of the operation, until another one is kept.
	keep bool
}

// after decides what follows from a failed attempt: the only place where that is decided
// (Retryable Reads, Retryable Writes, Client Backpressure). jitter is from 0 to 1.
func (t tries) after(f failure, r rules, jitter float64) (tries, verdict) {
	v := verdict{keep: t.failed == 0 || f.attempted}
	t.failed++
	t.overloaded = t.overloaded || f.overloaded
	overload := f.overloaded && f.retryable && r.overload
	if !overload && !f.transient || t.failed > t.most(r) {
		return t, v
	}
	var wait time.Duration
	if f.overloaded {
		wait = backoff(f.base, t.failed, jitter)
	}
	if wait > 0 && f.timed && wait >= f.left {
		return t, v
	}
	v.again, v.wait = true, wait
	v.avoid = f.sharded || f.overloaded && r.retarget
	return t, v
}

// most returns how many retries the operation may have in all.
func (t tries) most(r rules) int {
	switch {
	case t.overloaded:
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
