package paging

import (
	"sync"
	"time"

	"github.com/mooringdb/mooring/service/page"
)

// successions remembers where the cursors of drained replicas went, for as long as a token of
// theirs may be asked for.
//
// The mutex guards known. It may be taken under the table's lock, and nothing blocks while it is
// held.
type successions struct {
	keep time.Duration

	mu    sync.Mutex
	known map[page.Instance]succession
}

type succession struct {
	to page.Replica
	at time.Time
}

// maxSuccessions bounds the drained replicas whose successors are remembered.
const maxSuccessions = 1000

func newSuccessions(keep time.Duration) *successions {
	return &successions{keep: keep, known: map[page.Instance]succession{}}
}

// record records where the cursors of a drained replica went.
func (x *successions) record(from page.Instance, to page.Replica) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	for i, s := range x.known {
		if now.Sub(s.at) > x.keep || len(x.known) >= maxSuccessions {
			delete(x.known, i)
		}
	}
	x.known[from] = succession{to, now}
}

// all returns all that is known.
func (x *successions) all() map[page.Instance]page.Replica {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make(map[page.Instance]page.Replica, len(x.known))
	for from, s := range x.known {
		all[from] = s.to
	}
	return all
}

// of returns the replica to ask for the cursors of another one: the replica that they went to last,
// if that is known. It has no instance then: a cursor on which a call worked was not pushed with
// the others, so a successor that does not know it cannot say that it has ended.
func (x *successions) of(replica page.Replica) page.Replica {
	x.mu.Lock()
	defer x.mu.Unlock()
	last := replica
	for range maxHops {
		s, ok := x.known[last.Instance]
		if !ok {
			break
		}
		last = s.to
	}
	if last.Instance != replica.Instance {
		last.Instance = page.Instance{}
	}
	return last
}

// Succeeded records where the cursors of a drained replica went.
func (p *Pager) Succeeded(from page.Instance, to page.Replica) { p.successions.record(from, to) }

// Successors returns where the cursors of replicas went that have drained, for a replica that is
// new.
func (p *Pager) Successors() map[page.Instance]page.Replica { return p.successions.all() }
