package handle

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/service/admission"
)

// Defaults of Config.
const (
	DefaultIdle            = 10 * time.Minute
	DefaultMax             = 100_000
	DefaultMaxOpen         = DefaultMax
	DefaultMaxPerPrincipal = 100
)

// Config configures a table. Zero fields mean the defaults.
type Config struct {
	// Idle is how long a handle waits for its client.
	Idle time.Duration
	// Max bounds the handles. One more ends the handle that expires first; handles that cannot be
	// continued end before all others.
	Max int
	// MaxOpen bounds the open handles when a call opens one more. Each principal has a share of
	// them, as it has of calls.
	MaxOpen int
	// MaxPerPrincipal is how many open handles a principal may have when it opens one more; less
	// than 0 means no limit but the share. Clients without a name are one principal for each
	// address.
	MaxPerPrincipal int
}

// Table holds the handles of one gateway.
//
// One mutex guards its fields, and the fields of the things; Do runs what uses them. Nothing blocks
// while it is held. The table's goroutines end things that have expired, and those for which there
// was no room.
type Table struct {
	cfg     Config
	sweeper sync.WaitGroup
	stop    context.CancelFunc
	// plain and pinned are removed things that are still to be ended.
	plain, pinned doomed
	// sooner has a token when the sweep is to look again when it wakes next.
	sooner chan struct{}

	mu       sync.Mutex
	things   map[ID]Thing
	waiting  queue            // those that can be continued
	over     queue            // the others
	open     *admission.Count // the open ones; it changes only while the lock is held
	owned    owned            // the open ones by their owners
	refusing bool
	// settlements counts calls of Settle.
	settlements uint64
	// wakeAt is when the sweep wakes next; zero: not before there is something that expires.
	wakeAt time.Time
}

// New returns an empty table. It does nothing until Start.
func New(cfg Config) *Table {
	cfg.Idle = orDefault(cfg.Idle, DefaultIdle)
	cfg.Max = orDefault(cfg.Max, DefaultMax)
	cfg.MaxOpen = orDefault(cfg.MaxOpen, DefaultMaxOpen)
	cfg.MaxPerPrincipal = orDefault(cfg.MaxPerPrincipal, DefaultMaxPerPrincipal)
	return &Table{
		cfg: cfg, things: map[ID]Thing{}, owned: owned{},
		open:  admission.NewCount(openHandles, cfg.limits()),
		plain: newDoomed(), pinned: newDoomed(), sooner: make(chan struct{}, 1),
		stop: func() {},
	}
}

// openHandles is how errors name what a principal has a share of.
const openHandles = "open cursors and transactions"

func (c *Config) limits() admission.Limits {
	return admission.Limits{Total: int64(c.MaxOpen), Each: max(int64(c.MaxPerPrincipal), 0)}
}

func orDefault[T ~int | ~int64](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// Start begins to end what has expired. ctx is for its values only; Stop ends it.
func (t *Table) Start(ctx context.Context) {
	ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	t.sweeper.Go(func() { t.sweep(ctx) })
	t.sweeper.Go(func() { t.plain.endAll(ctx) })
	t.sweeper.Go(func() { t.pinned.endAll(ctx) })
}

// Stop ends the table's goroutines, waits for them, and returns what is still to be ended.
func (t *Table) Stop() []Thing {
	t.stop()
	t.sweeper.Wait()
	return append(t.plain.take(), t.pinned.take()...)
}

// Locked represents a table while its lock is held. Only Do makes one.
type Locked Table

// Do runs f while it holds the lock, so that a handle and what it stands for change in one step. f
// does not block, calls no method of Table, and keeps no reference to the Locked.
func (t *Table) Do(f func(*Locked)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f((*Locked)(t))
}

// Idle returns how long a handle waits for its client.
func (t *Table) Idle() time.Duration { return t.cfg.Idle }

// Len returns the number of handles, those included that cannot be continued.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.things)
}

// Counts returns the number of open handles by kind.
func (t *Table) Counts() map[Kind]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := map[Kind]int{}
	for _, thing := range t.things {
		if h := thing.handle(); h.counted {
			counts[h.Kind]++
		}
	}
	return counts
}

// Usage returns how many handles are open, and how many calls were refused because of that.
func (t *Table) Usage() admission.Usage { return t.open.Usage() }

// HasRoom returns the error of a principal that may not open one more handle: a *LimitError if it
// has its share, of those that can still be opened and cannot be evicted, and an *admission.Error
// if others have the room. Expired handles, and those of the principal for which gone reports true,
// are ended first. Calls that settle their handles later do not count each other: together they may
// exceed the limit by their number.
func (l *Locked) HasRoom(p admission.Principal, gone func(Thing) bool) error {
	if l.open.Refusal(p, 0) == nil {
		return nil
	}
	now := time.Now()
	l.removeExpired(now)
	evictable, left := int64(0), time.Duration(0)
	for _, h := range l.idle(p) {
		switch {
		case gone(h.thing):
			l.doom(h)
		case h.thing.IsEvictable():
			evictable++
		default:
			left = shorter(left, h.expires.Sub(now))
		}
	}
	refusal := l.open.Refusal(p, evictable)
	if refusal == nil {
		return nil
	}
	l.open.Refused(refusal.Cause)
	if refusal.Cause == admission.OwnShare {
		most := int(l.open.Held(p) - evictable)
		return &LimitError{Principal: p.Name, Max: most, RetryAfter: left}
	}
	if first := l.waiting.first(); first != nil {
		refusal.RetryAfter = first.expires.Sub(now)
	}
	return refusal
}

// shorter returns the shorter of two times, of which 0 is none.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}

// Evict makes room for one more open handle of a principal: it evicts the least recently used ones.
func (l *Locked) Evict(p admission.Principal) {
	if l.open.Refusal(p, 0) == nil {
		return
	}
	for _, h := range l.idle(p) {
		if l.open.Refusal(p, 0) == nil {
			return
		}
		if h.thing.IsEvictable() {
			pinned := h.settled.Pinned
			l.end(h.thing.Evict(l), pinned)
		}
	}
}

// idle returns the open handles of a principal on which no call works, the least recently used ones
// first.
func (l *Locked) idle(p admission.Principal) []*Handle {
	var idle []*Handle
	for _, h := range l.owned[p] {
		if h.work == nil {
			idle = append(idle, h)
		}
	}
	slices.SortFunc(idle, func(a, b *Handle) int { return cmp.Compare(a.settlement, b.settlement) })
	return idle
}

// Get returns the thing with that id; nil: there is none.
func (l *Locked) Get(id ID) Thing { return l.things[id] }

// All returns all things of one type. Those that it yields may be removed.
func All[T Thing](l *Locked) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, thing := range l.things {
			if of, ok := thing.(T); ok && !yield(of) {
				return
			}
		}
	}
}

// Refusing reports whether Refuse was called.
func (l *Locked) Refusing() bool { return l.refusing }

// Refusing does what Locked.Refusing does, for callers without the lock.
func (t *Table) Refusing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refusing
}

// Expired reports whether a handle is not in the table, or its time is up.
func (t *Table) Expired(id ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	thing := t.things[id]
	return thing == nil || thing.handle().Expired(time.Now())
}

// Begin begins the caller's work on a thing. The context that it returns ends with ctx, and
// with the work. A thing that is not in the table yet is put there.
func (l *Locked) Begin(
	ctx context.Context, thing Thing, endless bool,
) (context.Context, *Work) {
	l.adopt(thing)
	l.Hold(thing, newWork(ctx, endless))
	h := thing.handle()
	h.lastUse = time.Now()
	return &h.work.ctx, h.work
}

// adopt puts a thing into the table that is not there yet.
func (l *Locked) adopt(thing Thing) {
	if h := thing.handle(); h.thing == nil {
		h.thing = thing
		l.things[h.ID] = thing
	}
}

// Hold sets the work on a thing, and leaves the time of its last use as it is.
func (l *Locked) Hold(thing Thing, w *Work) {
	h := thing.handle()
	h.unqueue()
	h.work = w
}

// NewWork returns a work that is not a call's, for Hold: nothing hears that it is canceled. Several
// things may share it.
func NewWork() *Work { return &Work{done: make(chan struct{})} }

// Settle puts a thing back among those that wait. No call works on it any more, and it was
// not removed. If the table is full, another thing ends. A thing that is not in the table yet is
// put there.
func (l *Locked) Settle(thing Thing, s Settled) {
	l.adopt(thing)
	h := thing.handle()
	h.unqueue()
	h.work = nil
	l.settlements++
	h.settled, h.settlement = s, l.settlements
	h.lastUse = time.Now()
	h.expires = h.lastUse.Add(orDefault(s.Idle, l.cfg.Idle))
	if s.Continues {
		l.waiting.add(h)
	} else {
		l.over.add(h)
	}
	l.count(h, s.Open)
	l.expect(h.expires)
	l.makeRoom(h)
}

// EndWork ends the work on a thing that was removed meanwhile. The caller ends the thing,
// and calls Finish.
func (l *Locked) EndWork(thing Thing) { thing.handle().work = nil }

// Remove takes a thing out of the table. If a call works on it, Remove cancels and
// returns that work, and that call ends the thing. Otherwise it returns nil, and the caller ends
// the thing.
func (l *Locked) Remove(thing Thing, cause error) *Work {
	h := thing.handle()
	h.removed = true
	h.unqueue()
	delete(l.things, h.ID)
	l.count(h, false)
	thing.Removed()
	if h.work != nil {
		h.work.Cancel(cause)
	}
	return h.work
}

// RemoveAll removes the things of one type for which match reports true. The caller ends idle; the
// calls of works end the others. match is called with the lock held.
func RemoveAll[T Thing](t *Table, cause error, match func(T) bool) (idle []T, works []*Work) {
	t.Do(func(l *Locked) {
		for thing := range All[T](l) {
			if !match(thing) {
				continue
			}
			if w := l.Remove(thing, cause); w != nil {
				works = append(works, w)
			} else {
				idle = append(idle, thing)
			}
		}
	})
	return idle, works
}

// count counts a handle among the open ones of its principal, or no longer.
func (l *Locked) count(h *Handle, open bool) {
	switch {
	case open == h.counted:
		return
	case open:
		l.open.Add(h.Owner)
		l.owned.add(h)
	default:
		l.open.Remove(h.Owner)
		l.owned.remove(h)
	}
	h.counted = open
}

// makeRoom ends things while there are too many. Those that cannot be continued end first.
// One that can be continued ends only for another that can.
func (l *Locked) makeRoom(but *Handle) {
	for len(l.things) > l.cfg.Max {
		first := l.over.first()
		if first == nil { // then but can be continued, too: otherwise it would be over
			first = l.waiting.first()
		}
		if first == nil || first == but {
			return
		}
		l.doom(first)
	}
}
