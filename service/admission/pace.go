package admission

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// The refusals of one principal: so many at once, and as many in each second after that. More are
// held back, each for at most longestHeld, and so many at a time of all principals.
const (
	promptRefusals = 100
	longestHeld    = time.Second
	mostHeld       = 2000
)

// pace spaces out the refusals of each principal. Refusing a call takes the gateway nearly as much
// as a small call, and a client that does not wait afterwards could keep it busy with that.
type pace struct {
	// mu guards the fields below. Nothing blocks while it is held.
	mu      sync.Mutex
	buckets *simplelru.LRU[Principal, bucket]
	held    *queue // one for each refusal that is held back; each principal has its share
}

func newPace() *pace {
	lru, err := simplelru.NewLRU[Principal, bucket](remembered, nil)
	if err != nil {
		panic("bug: admission: " + err.Error())
	}
	return &pace{buckets: lru, held: newQueue(Limits{Total: mostHeld})}
}

// HoldBack delays the refusal of a call: call it before you return the refusal to the client. It
// blocks for at most 1 second and until ctx ends, and not at all for a principal with up to 100
// refusals per second, nor if too many refusals are delayed already. If a is nil, it does nothing.
func (a *Admission) HoldBack(ctx context.Context, p Principal) {
	if a == nil {
		return
	}
	wait := a.pace.enter(p, time.Now())
	if wait == 0 {
		return
	}
	defer a.pace.leave(p)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// enter counts a refusal, and returns how long it is held back. If that is not 0, the caller calls
// leave afterwards.
func (o *pace) enter(p Principal, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, _ := o.buckets.Get(p)
	after, wait := before.reserve(promptRefusals, longestHeld, now)
	if wait > 0 && o.held.take(p, 1, false) != fits {
		return 0
	}
	o.buckets.Add(p, after)
	return wait
}

func (o *pace) leave(p Principal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held.give(p, 1)
}
