package handle

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"sync"
	"time"
)

// Defaults of Config.
const (
	DefaultIdle            = 10 * time.Minute
	DefaultMax             = 100_000
	DefaultMaxPerPrincipal = 100
)

// Config configures a table. Zero fields mean the defaults.
type Config struct {
	// Idle is how long a handle waits for its client.
	Idle time.Duration
	// Max bounds the handles. One more ends the handle that expires first; handles that cannot be
	// continued end before all others.
	Max int
	// MaxPerPrincipal is how many open handles a principal may have when it opens one more; less
	// than 0 means no limit.
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
	waiting  queue          // those that can be continued
	over     queue          // the others
	open     map[string]int // of each principal
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
	cfg.MaxPerPrincipal = orDefault(cfg.MaxPerPrincipal, DefaultMaxPerPrincipal)
	return &Table{
		cfg: cfg, things: map[ID]Thing{}, open: map[string]int{}, stop: func() {},
		plain: newDoomed(), pinned: newDoomed(), sooner: make(chan struct{}, 1),
	}
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

// HasRoom returns a *LimitError if the principal has as many open handles as it may, of those that
// can still be opened and cannot be evicted: expired ones, and those for which gone reports true,
// are ended first. Without authentication there is no principal, and no limit. Calls that settle
// their handles later do not count each other: together they may exceed the limit by their number.
func (l *Locked) HasRoom(principal string, gone func(Thing) bool) error {
	limit := l.cfg.limitOf(principal)
	if l.open[principal] < limit {
		return nil
	}
	now := time.Now()
	l.removeExpired(now)
	err := &LimitError{Principal: principal, Max: limit}
	open := l.open[principal]
	for _, h := range l.idle(principal) {
		switch left := h.expires.Sub(now); {
		case gone(h.thing):
			l.doom(h)
			open--
		case h.thing.IsEvictable():
			open--
		case err.RetryAfter == 0 || left < err.RetryAfter:
			err.RetryAfter = left
		}
	}
	if open < limit {
		return nil
	}
	return err
}

// Evict makes room for one more open handle of a principal: it evicts the least recently used ones.
func (l *Locked) Evict(principal string) {
	limit := l.cfg.limitOf(principal)
	if l.open[principal] < limit {
		return
	}
	for _, h := range l.idle(principal) {
		if l.open[principal] < limit {
			return
		}
		if h.thing.IsEvictable() {
			pinned := h.settled.Pinned
			l.end(h.thing.Evict(l), pinned)
		}
	}
}

func (c *Config) limitOf(principal string) int {
	if principal == "" || c.MaxPerPrincipal < 0 {
		return math.MaxInt
	}
	return c.MaxPerPrincipal
}

// idle returns the open handles of a principal on which no call works, the least recently used ones
// first.
func (l *Locked) idle(principal string) []*Handle {
	var idle []*Handle
	for _, thing := range l.things {
		if h := thing.handle(); h.Principal == principal && h.counted && h.work == nil {
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
	ctx, cancel := context.WithCancelCause(ctx)
	l.Hold(thing, newWork(cancel, endless))
	h := thing.handle()
	h.lastUse = time.Now()
	return ctx, h.work
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

// NewWork returns a work that cannot be canceled, for Hold. Several things may share it.
func NewWork() *Work { return newWork(func(error) {}, false) }

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
		l.open[h.Principal]++
	default:
		if l.open[h.Principal]--; l.open[h.Principal] == 0 {
			delete(l.open, h.Principal)
		}
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
