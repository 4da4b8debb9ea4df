package handle

import (
	"cmp"
	"context"
	"iter"
	"maps"
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
// One mutex guards its fields, and the fields of the things. Nothing blocks while it is held. The
// table's goroutines end things that have expired, and those for which there was no room.
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
	// settlements counts SettleLocked.
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

// Lock takes the table's lock.
func (t *Table) Lock() { t.mu.Lock() }

// Unlock releases it.
func (t *Table) Unlock() { t.mu.Unlock() }

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

// HasRoomLocked returns a *LimitError if the principal has as many open handles as it may, of those
// that can still be opened and cannot be evicted: expired ones, and those for which gone reports
// true, are ended first. Without authentication there is no principal, and no limit. Calls that
// settle their handles later do not count each other: together they may exceed the limit by their
// number.
func (t *Table) HasRoomLocked(principal string, gone func(Thing) bool) error {
	limit := t.limitOf(principal)
	if t.open[principal] < limit {
		return nil
	}
	now := time.Now()
	t.removeExpiredLocked(now)
	err := &LimitError{Principal: principal, Max: limit}
	open := t.open[principal]
	for _, h := range t.idleLocked(principal) {
		switch left := h.expires.Sub(now); {
		case gone(h.thing):
			t.doomLocked(h)
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

// EvictLocked makes room for one more open handle of a principal: it evicts the least recently used
// ones.
func (t *Table) EvictLocked(principal string) {
	limit := t.limitOf(principal)
	if t.open[principal] < limit {
		return
	}
	for _, h := range t.idleLocked(principal) {
		if t.open[principal] < limit {
			return
		}
		if h.thing.IsEvictable() {
			pinned := h.settled.Pinned
			t.endLocked(h.thing.Evict(), pinned)
		}
	}
}

func (t *Table) limitOf(principal string) int {
	if principal == "" || t.cfg.MaxPerPrincipal < 0 {
		return math.MaxInt
	}
	return t.cfg.MaxPerPrincipal
}

// idleLocked returns the open handles of a principal on which no call works, the least recently
// used ones first.
func (t *Table) idleLocked(principal string) []*Handle {
	var idle []*Handle
	for _, thing := range t.things {
		if h := thing.handle(); h.Principal == principal && h.counted && h.work == nil {
			idle = append(idle, h)
		}
	}
	slices.SortFunc(idle, func(a, b *Handle) int { return cmp.Compare(a.settlement, b.settlement) })
	return idle
}

// GetLocked returns the thing with that id; nil: there is none.
func (t *Table) GetLocked(id ID) Thing { return t.things[id] }

// AllLocked returns all things.
func (t *Table) AllLocked() iter.Seq[Thing] { return maps.Values(t.things) }

// RefusingLocked reports whether Refuse was called.
func (t *Table) RefusingLocked() bool { return t.refusing }

// Refusing does what RefusingLocked does, for callers without the lock.
func (t *Table) Refusing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refusing
}

// BeginLocked begins the caller's work on a thing. The context that it returns ends with ctx, and
// with the work. A thing that is not in the table yet is put there.
func (t *Table) BeginLocked(
	ctx context.Context, thing Thing, endless bool,
) (context.Context, *Work) {
	t.adoptLocked(thing)
	ctx, cancel := context.WithCancelCause(ctx)
	t.HoldLocked(thing, newWork(cancel, endless))
	h := thing.handle()
	h.lastUse = time.Now()
	return ctx, h.work
}

// adoptLocked puts a thing into the table that is not there yet.
func (t *Table) adoptLocked(thing Thing) {
	if h := thing.handle(); h.thing == nil {
		h.thing = thing
		t.things[h.ID] = thing
	}
}

// HoldLocked sets the work on a thing, and leaves the time of its last use as it is.
func (t *Table) HoldLocked(thing Thing, w *Work) {
	h := thing.handle()
	h.unqueue()
	h.work = w
}

// NewWork returns a work that cannot be canceled, for HoldLocked. Several things may share it.
func NewWork() *Work { return newWork(func(error) {}, false) }

// SettleLocked puts a thing back among those that wait. No call works on it any more, and it was
// not removed. If the table is full, another thing ends. A thing that is not in the table yet is
// put there.
func (t *Table) SettleLocked(thing Thing, s Settled) {
	t.adoptLocked(thing)
	h := thing.handle()
	h.unqueue()
	h.work = nil
	t.settlements++
	h.settled, h.settlement = s, t.settlements
	h.lastUse = time.Now()
	h.expires = h.lastUse.Add(orDefault(s.Idle, t.cfg.Idle))
	if s.Continues {
		t.waiting.add(h)
	} else {
		t.over.add(h)
	}
	t.countLocked(h, s.Open)
	t.expectLocked(h.expires)
	t.makeRoomLocked(h)
}

// EndWorkLocked ends the work on a thing that was removed meanwhile. The caller ends the thing,
// and calls Finish.
func (t *Table) EndWorkLocked(thing Thing) { thing.handle().work = nil }

// RemoveLocked takes a thing out of the table. If a call works on it, RemoveLocked cancels and
// returns that work, and that call ends the thing. Otherwise it returns nil, and the caller ends
// the thing.
func (t *Table) RemoveLocked(thing Thing, cause error) *Work {
	h := thing.handle()
	h.removed = true
	h.unqueue()
	delete(t.things, h.ID)
	t.countLocked(h, false)
	thing.Removed()
	if h.work != nil {
		h.work.Cancel(cause)
	}
	return h.work
}

// countLocked counts a handle among the open ones of its principal, or no longer.
func (t *Table) countLocked(h *Handle, open bool) {
	switch {
	case open == h.counted:
		return
	case open:
		t.open[h.Principal]++
	default:
		if t.open[h.Principal]--; t.open[h.Principal] == 0 {
			delete(t.open, h.Principal)
		}
	}
	h.counted = open
}

// makeRoomLocked ends things while there are too many. Those that cannot be continued end first.
// One that can be continued ends only for another that can.
func (t *Table) makeRoomLocked(but *Handle) {
	for len(t.things) > t.cfg.Max {
		first := t.over.first()
		if first == nil { // then but can be continued, too: otherwise it would be over
			first = t.waiting.first()
		}
		if first == nil || first == but {
			return
		}
		t.doomLocked(first)
	}
}
