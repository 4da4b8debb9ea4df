// Package hub gives many subscribers the events of one change stream. The ring holds the newest
// events as bytes: it has no locks, clocks or goroutines.
package hub

import (
	"bytes"
	"sort"

	"github.com/mooringdb/mooring/core/bson"
)

// entryBytes is what an entry costs beside the bytes of its event and of its token, about.
const entryBytes = 128

// entry holds an event, or a mark: a resume token without an event. A mark's event is nil. Neither
// changes.
type entry struct{ event, token bson.Raw }

// cost returns the bytes that an entry takes in a ring, which has a copy of the token as its key.
func (e entry) cost() int { return len(e.event) + 2*len(e.token) + entryBytes }

// found says what a ring has at a position.
type found uint8

const (
	overrun found = iota // the entry was evicted
	atEnd                // no entry has come yet
	held
)

// ring holds the newest entries of a change stream, as many as its budget of bytes allows. Entries
// are numbered from 0 on; a subscriber is the number of the entry that it reads next.
type ring struct {
	budget  int
	entries []entry
	// first is the number of entries[0], or of the next entry if there is none.
	first uint64
	bytes int // the entries' cost
	// before is the token of the last entry that was evicted, or where the stream has begun; nil:
	// not known.
	before bson.Raw
	// numbers has the entries by their tokens.
	numbers map[string]uint64
}

// newRing returns an empty ring of a stream that begins at a token; nil: the token is not known.
func newRing(budget int, start bson.Raw) *ring {
	return &ring{budget: budget, before: start, numbers: map[string]uint64{}}
}

// append appends an entry, which it keeps, and evicts the oldest ones beyond the budget. If the
// entry alone is larger, it is evicted as well. It returns the bytes that evicted entries held,
// which may include the new one's.
func (r *ring) append(e entry) (evicted int) {
	r.numbers[string(e.token)] = r.end()
	r.entries = append(r.entries, e)
	r.bytes += e.cost()
	for r.bytes > r.budget && len(r.entries) > 0 {
		evicted += r.evict()
	}
	return evicted
}

// evict evicts the oldest entry, which must exist, and returns the bytes that it held.
func (r *ring) evict() int {
	e := r.entries[0]
	r.entries[0] = entry{}
	r.entries = r.entries[1:]
	if key := string(e.token); r.numbers[key] == r.first {
		delete(r.numbers, key)
	}
	r.first++
	r.bytes -= e.cost()
	r.before = e.token.Clone() // the event's memory goes
	return e.cost()
}

// end returns the number that the next entry gets.
func (r *ring) end() uint64 { return r.first + uint64(len(r.entries)) }

// next returns the entry at a position.
func (r *ring) next(position uint64) (entry, found) {
	switch {
	case position < r.first:
		return entry{}, overrun
	case position >= r.end():
		return entry{}, atEnd
	}
	return r.entries[position-r.first], held
}

// after returns the position behind a resume token, and whether the ring holds all that follows
// it. Where tokens have an order, the token need not be one that the ring has seen.
func (r *ring) after(token bson.Raw) (position uint64, ok bool) {
	if n, ok := r.numbers[string(token)]; ok {
		return n + 1, true
	}
	if r.before != nil && bytes.Equal(token, r.before) {
		return r.first, true
	}
	if !isBefore(r.before, token) || !isBefore(token, r.last()) {
		return 0, false
	}
	n := sort.Search(len(r.entries), func(i int) bool {
		return isBefore(token, r.entries[i].token)
	})
	return r.first + uint64(n), true
}

// last returns the newest token: that of the last event, or the postBatchResumeToken after it. Nil:
// there is none yet.
func (r *ring) last() bson.Raw {
	if len(r.entries) == 0 {
		return r.before
	}
	return r.entries[len(r.entries)-1].token
}

// isBefore reports whether a token is known to be older than another. MongoDB's tokens are
// {_data: <hexadecimal>}, whose strings have the order of the events; others have no order.
func isBefore(a, b bson.Raw) bool {
	older, ok := data(a)
	newer, both := data(b)
	return ok && both && older < newer
}

func data(token bson.Raw) (string, bool) {
	if token == nil {
		return "", false
	}
	v, _ := token.Lookup("_data")
	return v.Str()
}

// tokenOf returns an event's resume token, a view on the event.
func tokenOf(event bson.Raw) bson.Raw {
	id, _ := event.Lookup("_id")
	token, _ := id.Document()
	return token
}
