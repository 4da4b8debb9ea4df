// Package hub shares one change stream, the source, between many subscribers. A goroutine for each
// source reads it into a ring buffer, which holds the newest events as bytes. A subscriber that
// needs older events reads a source of its own until it meets the ring: it catches up. The ring has
// no locks, clocks or goroutines.
package hub

import (
	"bytes"
	"sort"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
)

// entryBytes is what an entry costs beside the bytes of its event and of its token, about.
const entryBytes = 128

// entry holds an event, or a mark: a resume token without an event. A mark's event is nil. Neither
// changes.
type entry struct {
	event, token bson.Raw
	// readers has the subscribers that have taken the event and not come back for more: the first
	// one, which is charged for it, and through it the others.
	readers *reading
	// evicted says that the ring does not hold the entry any more.
	evicted bool
}

// cost returns the bytes that an entry takes in a ring, which has a copy of the token as its key.
func (e *entry) cost() int { return len(e.event) + 2*len(e.token) + entryBytes }

// found says what a ring has at a position.
type found uint8

const (
	overrun found = iota // the entry was evicted
	atEnd                // no entry has come yet
	held
)

// ring holds the newest entries of a change stream, as many as its budget of bytes allows, and all
// of the newest reply, which no subscriber has had the time to read. Entries are numbered from 0
// on; a subscriber is the number of the entry that it reads next.
type ring struct {
	budget  int
	entries []*entry
	// first is the number of entries[0], or of the next entry if there is none.
	first uint64
	bytes int // the entries' cost
	// before is the token of the last entry that was evicted, or where the stream has begun; nil:
	// not known.
	before bson.Raw
	// mark is the newest token that is no event's, also if it was evicted; nil: there was none. The
	// position behind it is marked.
	mark   bson.Raw
	marked uint64
	// numbers has the entries by their tokens.
	numbers map[string]uint64
	// unordered says that an entry has come whose time is not known, or is before that of another.
	unordered bool
}

// newRing returns an empty ring of a stream that begins at a token; nil: the token is not known.
func newRing(budget int, start bson.Raw) *ring {
	return &ring{budget: budget, before: start, mark: start, numbers: map[string]uint64{}}
}

// append appends an entry, which it keeps, and evicts the oldest ones beyond the budget, but none
// from the number begin on, where the newest reply begins. It returns the bytes that are free then,
// as evict does.
func (r *ring) append(e *entry, begin uint64) (evicted int) {
	at, known := timeOf(e.token)
	last, _ := timeOf(r.last())
	r.unordered = r.unordered || !known || at < last
	r.numbers[string(e.token)] = r.end()
	r.entries = append(r.entries, e)
	if e.event == nil {
		r.mark, r.marked = e.token, r.end()
	}
	r.bytes += e.cost()
	for r.bytes > r.budget && r.first < begin {
		evicted += r.evict()
	}
	return evicted
}

// evict evicts the oldest entry, which must exist, and returns the bytes that are free then: none
// while the entry has readers, of whom one is charged.
func (r *ring) evict() int {
	e := r.entries[0]
	r.entries[0] = nil
	r.entries = r.entries[1:]
	if key := string(e.token); r.numbers[key] == r.first {
		delete(r.numbers, key)
	}
	r.first++
	r.bytes -= e.cost()
	r.before = e.token.Clone() // the event's memory goes
	e.evicted = true
	if e.readers != nil {
		return 0
	}
	return e.cost()
}

// end returns the number that the next entry gets.
func (r *ring) end() uint64 { return r.first + uint64(len(r.entries)) }

// next returns the entry at a position.
func (r *ring) next(position uint64) (*entry, found) {
	switch {
	case position < r.first:
		return nil, overrun
	case position >= r.end():
		return nil, atEnd
	}
	return r.entries[position-r.first], held
}

// after returns the position behind a resume token, and whether the ring is sure to hold all that
// follows it. The token is one that the ring has seen, or one between them: its time is after that
// of what was evicted, before that of the newest entry, and no entry's. What else there is at the
// same time has an order that only the server knows.
func (r *ring) after(token bson.Raw) (position uint64, ok bool) {
	if n, ok := r.numbers[string(token)]; ok {
		return n + 1, true
	}
	if r.before != nil && bytes.Equal(token, r.before) {
		return r.first, true
	}
	at, known := timeOf(token)
	gone, begun := timeOf(r.before)
	if r.unordered || !known || !begun || at <= gone {
		return 0, false
	}
	n := sort.Search(len(r.entries), func(i int) bool {
		has, _ := timeOf(r.entries[i].token)
		return has >= at
	})
	if n == len(r.entries) {
		return 0, false
	}
	if has, _ := timeOf(r.entries[n].token); has == at {
		return 0, false
	}
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

// timeDigits is how many hexadecimal digits a time has in a token.
const timeDigits = 16

// timeOf returns the cluster time of a token. MongoDB's tokens are {_data: <hexadecimal>}, and
// begin with it: a byte of its type, 0x82, and eight of its value, as big-endian. The events of a
// stream have the order of their times.
func timeOf(token bson.Raw) (at uint64, ok bool) {
	if token == nil {
		return 0, false
	}
	v, _ := token.Lookup("_data")
	text, _ := v.Str()
	if len(text) < 2+timeDigits || text[:2] != "82" {
		return 0, false
	}
	at, err := strconv.ParseUint(text[2:2+timeDigits], 16, 64)
	return at, err == nil
}

// tokenOf returns an event's resume token, a view on the event.
func tokenOf(event bson.Raw) bson.Raw {
	id, _ := event.Lookup("_id")
	token, _ := id.Document()
	return token
}
