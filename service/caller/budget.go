package caller

import (
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"runtime"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// A token whose key is known and whose claims are right costs a verification of its signature,
// more than anything else that a stranger can ask for. A stranger can make such tokens, without the
// signature. So verifications have a share of the processors, a lane for principals of whom a token
// was verified before and one for all others, and no failures keep a neighbour's token from being
// verified: what does not fit waits for its time in the lane.
const (
	// laneShare is the part of the processors that a lane may take: one in so many.
	laneShare = 4
	// laneBurst is how much of its share a lane can save up.
	laneBurst = 100 * time.Millisecond
	// patience is how long a token waits at most, and patienceOverdrawn the same for an address
	// that has failed too often. Such an address cannot fill the lane for others.
	patience          = time.Second
	patienceOverdrawn = patience / 4
)

// lane holds the time from which the next verification may begin. The zero value is one that has
// not been used.
type lane struct{ free time.Time }

// reserve returns the lane with one more verification of a cost, and how long that has to wait. It
// returns false if it would wait longer than most.
func (l lane) reserve(
	now time.Time, cost time.Duration, processors int, most time.Duration,
) (lane, time.Duration, bool) {
	begin := l.free
	if saved := now.Add(-laneBurst); begin.Before(saved) {
		begin = saved
	}
	wait := max(0, begin.Sub(now))
	if wait > most {
		return l, 0, false
	}
	return lane{begin.Add(cost * laneShare / time.Duration(processors))}, wait, true
}

// budget shares the processors between verifications.
type budget struct {
	// mu guards the lanes. Nothing blocks while it is held.
	mu             sync.Mutex
	known, unknown lane
}

// errBusy refuses a token of an address that has not failed too often. The queue is then as long
// as patience, which is also the time that clients are told to wait.
var errBusy = &Error{
	Problem: Busy, Message: "too many new tokens are being verified",
}

// wait blocks until a verification of a cost may begin. If that is too far away, it returns
// errTooMany or errBusy at once. Its other error is the cause of ctx.
func (b *budget) wait(
	ctx context.Context, cost time.Duration, known, overdrawn bool,
) error {
	most, full := patience, errBusy
	if overdrawn {
		most, full = patienceOverdrawn, errTooMany
	}
	after, ok := b.reserve(time.Now(), cost, known, most)
	switch {
	case !ok:
		return full
	case after == 0:
		return nil
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *budget) reserve(
	now time.Time, cost time.Duration, known bool, most time.Duration,
) (after time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &b.unknown
	if known {
		l = &b.known
	}
	*l, after, ok = l.reserve(now, cost, runtime.GOMAXPROCS(0), most)
	return after, ok
}

// costOf returns about how long it takes to try keys on a signature.
func costOf(keys []jose.JSONWebKey) (sum time.Duration) {
	for i := range keys {
		sum += cost(keys[i].Key)
	}
	return sum
}

// cost returns the time for one key, measured on a server processor of 2025 and rounded up.
func cost(key any) time.Duration {
	switch k := key.(type) {
	case *rsa.PublicKey: // the square of the length
		n := time.Duration(k.N.BitLen())
		return 50 * time.Microsecond * n * n / (leastRSA * leastRSA)
	case *ecdsa.PublicKey:
		switch bits := k.Curve.Params().BitSize; {
		case bits > 384:
			return 2 * time.Millisecond
		case bits > 256:
			return time.Millisecond
		}
	}
	return 100 * time.Microsecond // P-256 and Ed25519
}
