package caller

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/mooringdb/mooring/service/clientaddr"
)

// An address may fail failureBurst times at once, and failureRate times a second after that. What
// fails beyond it is told to wait. What counts, counts in any case, since the clients behind one
// NAT have one address: API keys are always looked up, and new tokens are verified within the
// budget.
const (
	failureBurst = 100
	failureRate  = 10 // a second
	// throttled is how many addresses are remembered. One more forgets the address whose last
	// failure is the oldest.
	throttled = 10_000
)

// throttle counts the failures of each address.
type throttle struct {
	// mu guards the fields below. Nothing blocks while it is held.
	mu      sync.Mutex
	buckets *simplelru.LRU[netip.Addr, bucket]
}

// bucket holds how many failures an address has left, as of a time.
type bucket struct {
	left float64
	at   time.Time
}

func newThrottle() *throttle {
	lru, err := simplelru.NewLRU[netip.Addr, bucket](throttled, nil)
	if err != nil {
		panic("bug: caller: " + err.Error())
	}
	return &throttle{buckets: lru}
}

// refill returns the bucket as of now.
func (b bucket) refill(now time.Time) bucket {
	left := b.left + failureRate*max(0, now.Sub(b.at).Seconds())
	return bucket{left: min(left, failureBurst), at: now}
}

// fail records a failure, and reports whether the address had one left. The clients of a Unix
// domain socket have no address and are not counted: one of them would slow all the others down.
func (t *throttle) fail(a netip.Addr, now time.Time) bool {
	if !a.IsValid() {
		return true
	}
	a = clientaddr.Network(a)
	t.mu.Lock()
	defer t.mu.Unlock()
	b, ok := t.buckets.Get(a)
	if !ok {
		b = bucket{left: failureBurst, at: now}
	}
	b = b.refill(now)
	allowed := b.left >= 1
	if allowed {
		b.left--
	}
	t.buckets.Add(a, b)
	return allowed
}

// exhausted reports whether the address has no failure left.
func (t *throttle) exhausted(a netip.Addr, now time.Time) bool {
	a = clientaddr.Network(a)
	t.mu.Lock()
	defer t.mu.Unlock()
	b, ok := t.buckets.Peek(a)
	return ok && b.refill(now).left < 1
}
