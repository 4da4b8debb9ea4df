package admission

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// resource adds the lock and the clock to a queue.
type resource struct {
	name     string
	patience atomic.Int64 // a time.Duration
	refused  refused

	// mu guards the fields below. Nothing blocks while it is held.
	mu    sync.Mutex
	queue *queue
	// places has one for each demand that waits in queue.
	places *queue
	// reclaim makes room, each of so many bytes if it can. It is set before the first call, and
	// called without the lock.
	reclaim []func(amount int64, only *Principal)
}

func newResource(name string, l Limits, patience time.Duration) *resource {
	r := &resource{name: name, queue: newQueue(l), places: newQueue(Limits{Total: maxWaiting})}
	r.patience.Store(int64(patience))
	return r
}

// maxWaiting is how many demands wait for a resource, of which each principal has a share as of the
// resource itself. One more is refused at once.
const maxWaiting = 10_000

// set changes the limits and the patience.
func (r *resource) set(l Limits, patience time.Duration) {
	r.patience.Store(int64(patience))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue.limits != l {
		r.queue.limits = l
		r.queue.grant()
	}
}

// take takes an amount. It blocks until the amount fits and it is the principal's turn, for at
// most the patience and until ctx ends.
func (r *resource) take(ctx context.Context, p Principal, amount int64) error {
	v, err := r.attempt(ctx, p, amount, false)
	if err == nil && v != fits {
		return r.refusal(v)
	}
	return err
}

// attempt does what take does. It returns fits if it has taken the amount, and otherwise why it
// does not fit.
func (r *resource) attempt(
	ctx context.Context, p Principal, amount int64, last bool,
) (verdict, error) {
	v := r.takeNow(p, amount, last)
	patience := time.Duration(r.patience.Load())
	if v == fits || v == tooMuch || patience == 0 {
		return v, nil
	}
	return r.wait(ctx, p, amount, last, patience, nil)
}

// spare takes an amount if it fits, and reports whether it has.
func (r *resource) spare(p Principal, amount int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queue.take(p, amount, false) == fits
}

// othersWait reports whether demands of other principals wait.
func (r *resource) othersWait(p Principal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, waiting := range r.queue.turns {
		for _, m := range waiting {
			if m.principal != p {
				return true
			}
		}
	}
	return false
}

// takeNow takes an amount if it fits, or if there is room for it once what can be missed is
// reclaimed.
func (r *resource) takeNow(p Principal, amount int64, last bool) verdict {
	r.mu.Lock()
	v := r.queue.take(p, amount, last)
	r.mu.Unlock()
	for _, reclaim := range r.reclaim {
		if v == fits || v == tooMuch {
			break
		}
		reclaim(amount, r.only(p, amount, last))
		r.mu.Lock()
		v = r.queue.take(p, amount, last)
		r.mu.Unlock()
	}
	return v
}

// await takes an amount for what is not refused any more. It blocks until the amount fits, or until
// it can send to spare, which may be nil; and until ctx ends. It reports whether it has taken the
// amount.
func (r *resource) await(
	ctx context.Context, p Principal, amount int64, last bool, spare chan<- struct{},
) (taken bool, err error) {
	v := r.takeNow(p, amount, last)
	if v == fits {
		return true, nil
	}
	if v == tooMuch { // it would keep others of its principal from what fits
		return false, r.awaitSpare(ctx, amount, spare)
	}
	v, err = r.wait(ctx, p, amount, last, forever, spare)
	return v == fits && err == nil, err
}

// awaitSpare blocks until it can send to spare, and until ctx ends.
func (r *resource) awaitSpare(ctx context.Context, amount int64, spare chan<- struct{}) error {
	again := time.NewTicker(reclaimEvery)
	defer again.Stop()
	for {
		select {
		case spare <- struct{}{}:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C: // what has the spare one may be missed by now
			for _, reclaim := range r.reclaim {
				reclaim(amount, nil)
			}
		}
	}
}

const (
	// forever is longer than any call.
	forever = 1<<63 - 1
	// reclaimEvery is how often room is made again for what waits: more can be missed by then, such
	// as what is kept for a client that has not read for a while.
	reclaimEvery = 5 * time.Second
)

// reclaimFor makes room for a demand that waits, unless it is granted.
func (r *resource) reclaimFor(p Principal, d *demand, granted <-chan struct{}) {
	for _, reclaim := range r.reclaim {
		select {
		case <-granted:
			return
		default:
			reclaim(d.amount, r.only(p, d.amount, d.last))
		}
	}
}

// only returns the principal if nothing but its own use can make room for an amount that does not
// fit. nil: that of others can, too.
func (r *resource) only(p Principal, amount int64, last bool) *Principal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue.othersHelp(p, amount, last) {
		return nil
	}
	return &p
}

// wait waits until an amount fits, for at most the patience and until ctx ends, or until it can
// send to spare. It returns fits if it has taken the amount, and otherwise why it does not fit.
func (r *resource) wait(
	ctx context.Context, p Principal, amount int64, last bool, patience time.Duration,
	spare chan<- struct{},
) (verdict, error) {
	granted := make(chan struct{})
	d := &demand{amount: amount, last: last, granted: func() { close(granted) }}
	r.mu.Lock()
	v := r.queue.take(p, amount, last)
	if v == fits || !r.place(p, patience) { // it fits meanwhile
		r.mu.Unlock()
		return v, nil
	}
	r.queue.wait(p, d)
	r.mu.Unlock()
	defer r.leavePlace(p)

	timer := time.NewTimer(patience)
	defer timer.Stop()
	again := time.NewTicker(reclaimEvery)
	defer again.Stop()
	spared := false
	for waits := true; waits; {
		waits = false
		select {
		case <-granted:
			return fits, nil
		case spare <- struct{}{}:
			spared = true
		case <-ctx.Done():
		case <-timer.C:
		case <-again.C:
			r.reclaimFor(p, d, granted)
			waits = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-granted: // before the lock was taken
		if !spared {
			return fits, nil
		}
		r.queue.give(p, amount) // the caller has the spare one
		return full, nil
	default:
	}
	v = r.queue.abandon(d)
	if !spared && ctx.Err() != nil {
		return v, context.Cause(ctx)
	}
	return v, nil
}

// place takes a place for a demand that waits, and reports whether it has. What is not refused any
// more always gets one. The lock is held.
func (r *resource) place(p Principal, patience time.Duration) bool {
	if patience == forever {
		r.places.force(p, 1)
		return true
	}
	return r.places.take(p, 1, false) == fits
}

func (r *resource) leavePlace(p Principal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places.give(p, 1)
}

// unsent returns the error of take for a call of which nothing has been sent to a server.
func (r *resource) unsent(err error) error {
	if _, refused := errors.AsType[*Error](err); err == nil || refused {
		return err
	}
	return &WaitError{What: r.name, Err: err}
}

// check returns an error if an amount would not fit even if nothing were held.
func (r *resource) check(amount int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fit(r.queue.limits, 0, 0, amount, false) {
		return nil
	}
	return r.refusal(tooMuch)
}

func (r *resource) force(p Principal, amount int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.force(p, amount)
}

func (r *resource) give(p Principal, amount int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.give(p, amount)
}

// move gives what one principal holds to another one.
func (r *resource) move(from, to Principal, amount int64) {
	if from == to || amount <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.force(to, amount)
	r.queue.give(from, amount)
}

func (r *resource) usage() Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.queue
	return Usage{
		Held: q.used, Limit: q.limits.Total, Waiting: q.waits(), Refused: r.refused.read(),
	}
}

var causes = [...]Cause{ownShare: OwnShare, full: Full, tooMuch: TooMuch}

func (r *resource) refusal(v verdict) *Error {
	r.refused[causes[v]].Add(1)
	return &Error{Cause: causes[v], What: r.name}
}

// refused counts refusals by their causes.
type refused [numCauses]atomic.Uint64

func (r *refused) read() (counts [numCauses]uint64) {
	for i := range r {
		counts[i] = r[i].Load()
	}
	return counts
}
