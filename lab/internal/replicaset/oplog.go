package replicaset

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// timestamp holds a cluster time. Its zero value is before all others.
type timestamp struct{ t, i uint32 }

func timestampOf(v bson.Value) timestamp {
	t, i, _ := v.Timestamp()
	return timestamp{t, i}
}

func (t timestamp) value() bson.Value { return bson.TimestampValue(t.t, t.i) }

func (t timestamp) compare(o timestamp) int {
	return cmp.Or(cmp.Compare(t.t, o.t), cmp.Compare(t.i, o.i))
}

func (t timestamp) after(o timestamp) bool { return t.compare(o) > 0 }

// change holds what happened to a document or to a collection. It is never changed.
type change struct {
	kind          string // the operationType of change streams
	ns            namespace
	to            namespace // of a rename
	before, after bson.Raw  // the document
	// The fields below are the oplog's.
	at    timestamp
	part  uint32 // counts the changes with the same time: a transaction's
	wall  time.Time
	lsid  bson.Raw // of a transaction
	txn   int64
	whole bool // the change is of a transaction
}

// id returns the _id of the document that changed, or the zero Value.
func (c change) id() bson.Value {
	if c.before != nil {
		return idOf(c.before)
	}
	return idOf(c.after)
}

// mostBytes is how large the documents of an oplog may be.
const mostBytes = 256 << 20

// oplog holds the newest changes in their order, and the cluster time, which goes on with them.
type oplog struct {
	most int

	mu      sync.Mutex // guards the fields below
	changes []change
	bytes   int
	last    timestamp
	since   timestamp // the changes after it are all here
	latest  time.Time
	changed chan struct{} // closed, and replaced, at each change
}

func newOplog(most int) *oplog {
	now := time.Now()
	start := timestamp{uint32(now.Unix()), 1}
	return &oplog{most: most, last: start, since: start, latest: now, changed: make(chan struct{})}
}

// add adds changes, all with one time.
func (l *oplog) add(changes []change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(changes) == 0 {
		return
	}
	l.latest = time.Now()
	if now := uint32(l.latest.Unix()); now > l.last.t {
		l.last = timestamp{now, 1}
	} else {
		l.last.i++
	}
	for i, c := range changes {
		c.at, c.part, c.wall = l.last, uint32(i), l.latest
		l.changes = append(l.changes, c)
		l.bytes += len(c.before) + len(c.after)
	}
	l.trimLocked()
	close(l.changed)
	l.changed = make(chan struct{})
}

// trimLocked forgets the oldest changes, those of one time together.
func (l *oplog) trimLocked() {
	n := 0
	for n < len(l.changes) && (len(l.changes)-n > l.most || l.bytes > mostBytes ||
		l.changes[n].at == l.since) {
		l.since = l.changes[n].at
		l.bytes -= len(l.changes[n].before) + len(l.changes[n].after)
		n++
	}
	l.changes = slices.Delete(l.changes, 0, n)
}

func (l *oplog) now() timestamp {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *oplog) written() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest
}

// after returns the changes behind a position, the time that is reached with them, and a channel
// that is closed when there are more. ok is false if some of them are forgotten.
func (l *oplog) after(p position) (list []change, now timestamp, more <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.after(p.at) {
		return nil, l.last, l.changed, false
	}
	first, _ := slices.BinarySearchFunc(l.changes, p, func(c change, p position) int {
		if (position{at: c.at, part: c.part}).compare(p) <= 0 {
			return -1
		}
		return 1
	})
	return slices.Clone(l.changes[first:]), l.last, l.changed, true
}

// times returns what every reply carries.
func (l *oplog) times() bson.Raw {
	return fakemongo.ClusterTimes(l.now().value())
}
