package caller

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// An address may fail failureBurst times at once, and failureRate times a second after that. What
// fails beyond it is told to wait, and new tokens from the address are refused without being
// verified: that costs the processor more than anything else that a stranger can ask for. API keys
// are always looked up, and tokens that were verified before count: clients behind one proxy have
// one address.
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

// network returns what is counted as one address: of IPv6 a whole network, since each client has
// so many addresses.
func network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, err := a.Prefix(64)
		if err == nil {
			return p.Addr()
		}
	}
	return a
}

// fail records a failure, and reports whether the address had one left. The clients of a Unix
// domain socket have no address and are not counted: one of them would slow all the others down.
func (t *throttle) fail(a netip.Addr, now time.Time) bool {
	if !a.IsValid() {
		return true
	}
	a = network(a)
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
	a = network(a)
	t.mu.Lock()
	defer t.mu.Unlock()
	b, ok := t.buckets.Peek(a)
	return ok && b.refill(now).left < 1
}
