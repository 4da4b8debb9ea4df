package pool_test

import (
	"slices"
	"testing"

	"github.com/mooringdb/mooring/core/pool"
)

// replay goes through the events of a soak in order, and knows the queue at each moment.
type replay struct {
	*soak
	t      *testing.T
	sum    tally
	paused bool
	// refused: the check-out that started last met a paused pool, and fails next.
	refused      bool
	queue        []uint64               // tickets
	establishing []uint64               // tickets that left the queue for a connection of their own
	state        map[uint64]string      // of connections: the last event
	made         map[uint64]int         // when a connection was created
	cleared      map[pool.ServiceID]int // when a service was cleared last
	used         map[uint64]int         // how often a connection was checked out
	next         map[string][]string    // the events that may follow an event of a connection
}

func newReplay(s *soak) *replay {
	return &replay{
		soak: s, t: s.t, paused: true,
		state: map[uint64]string{}, made: map[uint64]int{}, cleared: map[pool.ServiceID]int{},
		used: map[uint64]int{},
		next: map[string][]string{
			"":        {"created"},
			"created": {"ready", "closed"},
			"ready":   {"out", "closed"},
			"out":     {"in"},
			"in":      {"out", "closed"},
		},
	}
}

func (r *replay) run() tally {
	for now, e := range r.told {
		if e.id != 0 {
			if last := r.state[e.id]; !slices.Contains(r.next[last], e.kind) {
				r.t.Errorf("connection %d was told to be %q after %q", e.id, e.kind, last)
			}
			r.state[e.id] = e.kind
		}
		r.step(now, e)
		if r.t.Failed() {
			return r.sum
		}
	}
	if len(r.queue) > 0 || len(r.establishing) > 0 || len(r.order) > 0 {
		r.t.Errorf("at the end %v wait in the queue, %v for a connection of their own, %d were "+
			"never told of", r.queue, r.establishing, len(r.order))
	}
	return r.sum
}

func (r *replay) step(now int, e told) {
	switch e.kind {
	case "pool ready":
		r.paused = false
	case "cleared":
		r.sum.Cleared++
		r.paused = !r.balanced
		r.cleared[e.service] = now
	case "created":
		r.sum.Created++
		r.made[e.id] = now
		// An owner that is establishing again had a first connection that was stale at once.
		if owner := r.owner[e.id]; owner != 0 && !slices.Contains(r.establishing, owner) {
			r.leaveQueue(owner)
			r.establishing = append(r.establishing, owner)
		}
	case "ready":
		r.sum.Ready++
	case "closed":
		r.sum.Closed++
	case "started":
		r.sum.Started++
		if r.refused = r.paused; !r.paused {
			r.queue = append(r.queue, r.order[0])
			r.order = r.order[1:]
		}
	case "out":
		r.sum.Out++
		r.checkedOut(e.id)
	case "in":
		r.sum.In++
	case "failed":
		r.sum.Failed++
		r.failed(e.err)
	}
}

// leaveQueue removes a ticket from the queue and fails unless it is the first.
func (r *replay) leaveQueue(number uint64) {
	if len(r.queue) == 0 || r.queue[0] != number {
		r.t.Errorf("check-out %d was served before those that came earlier: %v", number, r.queue)
		return
	}
	r.queue = r.queue[1:]
}

func (r *replay) checkedOut(id uint64) {
	c := r.conns[id]
	number := c.had[r.used[id]]
	r.used[id]++
	if r.made[id] < r.cleared[c.service] {
		r.t.Errorf("check-out %d got connection %d, which is stale", number, id)
	}
	at := slices.Index(r.establishing, number)
	switch own := r.ownOf(number); {
	case at < 0 && len(r.establishing) == 0:
		r.leaveQueue(number)
		return
	case at < 0:
		r.t.Errorf("check-out %d was served before those that came earlier: %v", number,
			r.establishing)
		return
	case own != id && at > 0:
		r.t.Errorf("check-out %d got connection %d, which is not its own, before %v", number, id,
			r.establishing[:at])
	case own != id:
		r.passOn(own)
	}
	at = slices.Index(r.establishing, number)
	r.establishing = slices.Delete(r.establishing, at, at+1)
}

// ownOf returns the connection that is being established for a check-out.
func (r *replay) ownOf(number uint64) uint64 {
	newest := uint64(0)
	for id, owner := range r.owner {
		if owner == number && r.state[id] != "" {
			newest = max(newest, id)
		}
	}
	return newest
}

// passOn makes the connection that of the first check-out in the queue.
func (r *replay) passOn(id uint64) {
	delete(r.owner, id)
	if len(r.queue) > 0 {
		r.owner[id] = r.queue[0]
		r.establishing = append(r.establishing, r.queue[0])
		r.queue = r.queue[1:]
	}
}

func (r *replay) failed(err error) {
	if r.refused {
		r.refused = false
		return
	}
	for _, number := range r.errs[err] { // several if they were sent away together
		r.establishing = slices.DeleteFunc(r.establishing,
			func(n uint64) bool { return n == number })
		r.queue = slices.DeleteFunc(r.queue, func(n uint64) bool { return n == number })
	}
}
