package admission

import (
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// bucket holds the calls that a principal may still make, as of a time. It is refilled by a rate
// per second, and holds one second's calls, at least one.
type bucket struct {
	left float64
	at   time.Time
}

// rounding is how much of a call the arithmetic may lose.
const rounding = 1e-9

// take returns the bucket after one more call, and how long the caller must wait if there is none.
func (b bucket) take(rate float64, now time.Time) (_ bucket, wait time.Duration) {
	if b.at.IsZero() {
		b = bucket{left: max(rate, 1), at: now}
	}
	left := min(b.left+rate*max(0, now.Sub(b.at).Seconds()), max(rate, 1))
	if left < 1-rounding {
		return bucket{left, now}, waitFor((1 - left) / rate)
	}
	return bucket{max(left-1, 0), now}, 0
}

// reserve returns the bucket after one more, which may be taken in advance, and after how long it
// is there: at most longest.
func (b bucket) reserve(
	rate float64, longest time.Duration, now time.Time,
) (_ bucket, wait time.Duration) {
	if b.at.IsZero() {
		b = bucket{left: rate, at: now}
	}
	left := min(b.left+rate*max(0, now.Sub(b.at).Seconds()), rate)
	left = max(left-1, -rate*longest.Seconds())
	if left < -rounding {
		wait = waitFor(-left / rate)
	}
	return bucket{left, now}, wait
}

// waitFor returns that many seconds in microseconds, rounded up: a call that comes after them is
// not refused for a fraction.
func waitFor(seconds float64) time.Duration {
	return time.Duration(math.Ceil(seconds*1e6)) * time.Microsecond
}

// remembered is how many principals have a bucket. One more forgets the principal whose last call
// is the longest ago.
const remembered = 10_000

// rates limits calls per second.
type rates struct {
	total, each float64 // 0: no limit
	refused     *refused

	// mu guards the fields below. Nothing blocks while it is held.
	mu      sync.Mutex
	all     bucket
	buckets *simplelru.LRU[Principal, bucket]
}

// newRates returns nil if there are no limits. What is refused is counted in refused.
func newRates(total, each float64, refused *refused) *rates {
	if total == 0 && each == 0 {
		return nil
	}
	lru, err := simplelru.NewLRU[Principal, bucket](remembered, nil)
	if err != nil {
		panic("bug: admission: " + err.Error())
	}
	return &rates{total: total, each: each, refused: refused, buckets: lru}
}

// take counts a call. Its error is an *Error. A call that is refused, by either limit, counts for
// none.
func (r *rates) take(p Principal, now time.Time) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	own, all := bucket{}, r.all
	var waitOwn, waitAll time.Duration
	if r.each > 0 {
		own, _ = r.buckets.Get(p)
		own, waitOwn = own.take(r.each, now)
	}
	if r.total > 0 {
		all, waitAll = all.take(r.total, now)
	}
	if wait := max(waitOwn, waitAll); wait > 0 {
		cause := Full
		if waitOwn > 0 {
			cause = OwnShare
		}
		r.refused[cause].Add(1)
		return &Error{Cause: cause, What: perSecond, RetryAfter: wait}
	}
	if r.each > 0 {
		r.buckets.Add(p, own)
	}
	r.all = all
	return nil
}

const perSecond = "calls per second"
