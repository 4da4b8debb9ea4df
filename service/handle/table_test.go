package handle_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/handle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// thing is what the tests keep in a table.
type thing struct {
	handle.Handle
	database string
	removed  int           // times; the table's lock guards it
	ended    chan struct{} // closed by End
	block    chan struct{} // if not nil, End blocks until it is closed

	evictable bool
	evicted   *thing // what Evict has returned
}

func newThing(n byte, principal string) *thing {
	return &thing{
		Handle: handle.Handle{
			ID: handle.ID{n}, Kind: handle.KindCursor, Principal: principal, Opened: handle.Now(),
			Owner: owner(principal),
		},
		ended: make(chan struct{}),
	}
}

func owner(name string) admission.Principal {
	return admission.PrincipalOf(name, netip.MustParseAddr("192.0.2.1"))
}

func (t *thing) Describe(i *handle.Info) { i.Database = t.database }
func (t *thing) IsEvictable() bool       { return t.evictable }
func (t *thing) Removed()                { t.removed++ }

func (t *thing) Evict(l *handle.Locked) handle.Thing {
	l.Settle(t, handle.Settled{})
	ending := newThing(0, t.Principal)
	t.evicted = ending
	return ending
}

func (t *thing) End(context.Context) {
	if t.block != nil {
		<-t.block
	}
	close(t.ended)
}

func (t *thing) hasEnded() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// start returns a table that runs until the test ends.
func start(t *testing.T, cfg handle.Config) *handle.Table {
	t.Helper()
	table := handle.New(cfg)
	table.Start(t.Context())
	t.Cleanup(func() { table.Stop() })
	return table
}

// pass lets time pass in a synctest bubble.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // time is fake

var waiting = handle.Settled{Open: true, Continues: true}

func settle(table *handle.Table, things ...*thing) { settleAs(table, waiting, things...) }

func settleAs(table *handle.Table, s handle.Settled, things ...*thing) {
	table.Do(func(l *handle.Locked) {
		for _, th := range things {
			l.Settle(th, s)
		}
	})
}

func begin(
	t *testing.T, table *handle.Table, th *thing, endless bool,
) (ctx context.Context, w *handle.Work) {
	t.Helper()
	table.Do(func(l *handle.Locked) { ctx, w = l.Begin(t.Context(), th, endless) })
	return ctx, w
}

// ids lists the first bytes of the ids that a table knows.
func ids(table *handle.Table) (all []byte) {
	table.Do(func(l *handle.Locked) {
		for th := range handle.All[*thing](l) {
			all = append(all, th.ID[0])
		}
	})
	slices.Sort(all)
	return all
}

func TestKillIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := start(t, handle.Config{})
		open, over := newThing(1, "ann"), newThing(2, "ann")
		settle(table, open)
		settleAs(table, handle.Settled{Continues: true}, over)
		for _, test := range []struct{ name, id string }{
			{"empty", ""},
			{"short", open.ID.String()[:30]},
			{"long", open.ID.String() + "00"},
			{"not hexadecimal", strings.Repeat("x", 32)},
			{"unknown", handle.ID{9}.String()},
			{"not open", over.ID.String()},
		} {
			if err := table.Kill(t.Context(), test.id); !errors.Is(err, handle.ErrNotFound) {
				t.Errorf("Kill of an id that is %s: %v, want ErrNotFound", test.name, err)
			}
		}
		err := table.Kill(t.Context(), open.ID.String())
		if err != nil || !open.hasEnded() || open.removed != 1 {
			t.Errorf("Kill = %v, ended %v, removed %d times", err, open.hasEnded(), open.removed)
		}
		if err := table.Kill(t.Context(), open.ID.String()); !errors.Is(err, handle.ErrNotFound) {
			t.Errorf("Kill again = %v, want ErrNotFound", err)
		}
		if got := ids(table); !slices.Equal(got, []byte{2}) {
			t.Errorf("the table has %v, want only 2", got)
		}
	})
}

// Kill cancels the work on a thing, and returns when that work has ended. The call that worked
// ends the thing, not Kill.
func TestKillWaitsForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := start(t, handle.Config{})
		th := newThing(1, "ann")
		settle(table, th)
		ctx, w := begin(t, table, th, false)
		killed := make(chan error, 1)
		go func() { killed <- table.Kill(context.Background(), th.ID.String()) }()
		synctest.Wait()
		if cause := context.Cause(ctx); !errors.Is(cause, handle.ErrKilled) || len(killed) != 0 {
			t.Fatalf("the work's cause is %v, Kill returned %v", cause, len(killed) != 0)
		}
		table.Do(func(l *handle.Locked) {
			if !th.IsRemoved() || !th.Working() {
				t.Errorf("removed %v, working %v; want both", th.IsRemoved(), th.Working())
			}
			l.EndWork(th)
		})
		w.Finish()
		if err := <-killed; err != nil || th.hasEnded() {
			t.Errorf("Kill = %v, ended by it %v", err, th.hasEnded())
		}
	})
}

func TestHasRoom(t *testing.T) {
	const idle = time.Minute
	notOpen := handle.Settled{Continues: true}
	gone := func(handle.Thing) bool { return true }
	kept := func(handle.Thing) bool { return false }
	for _, test := range []struct {
		name      string
		limit     int
		principal string
		settled   handle.Settled
		working   bool // a call works on both
		expired   bool
		gone      func(handle.Thing) bool
		refused   bool
	}{
		{name: "at the limit", limit: 2, principal: "ann", settled: waiting, gone: kept, refused: true},
		{name: "below the limit", limit: 3, principal: "ann", settled: waiting, gone: kept},
		{name: "no limit", limit: -1, principal: "ann", settled: waiting, gone: kept},
		{name: "another principal", limit: 2, principal: "ben", settled: waiting, gone: kept},
		{name: "a client without a name", limit: 2, settled: waiting, gone: kept},
		{name: "not open", limit: 2, principal: "ann", settled: notOpen, gone: kept},
		{name: "expired", limit: 2, principal: "ann", settled: waiting, gone: kept, expired: true},
		{name: "gone", limit: 2, principal: "ann", settled: waiting, gone: gone},
		{
			name: "gone, and working", limit: 2, principal: "ann", settled: waiting, gone: gone,
			working: true, expired: true, refused: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// It is not started, so only HasRoom removes what has expired.
				table := handle.New(handle.Config{Idle: idle, MaxPerPrincipal: test.limit})
				things := []*thing{newThing(1, "ann"), newThing(2, "ann")}
				settleAs(table, test.settled, things...)
				if test.working {
					for _, th := range things {
						_, w := begin(t, table, th, false)
						defer w.Finish()
					}
				}
				if test.expired {
					pass(idle)
				}
				err := hasRoom(table, test.principal, test.gone)
				limit, refused := errors.AsType[*handle.LimitError](err)
				if refused != test.refused || !refused && err != nil {
					t.Fatalf("HasRoom = %v, want refused %v", err, test.refused)
				}
				if !refused {
					return
				}
				want := handle.LimitError{Principal: "ann", Max: test.limit, RetryAfter: idle}
				if test.working { // they expire when they do
					want.RetryAfter = 0
				}
				if *limit != want {
					t.Errorf("HasRoom = %+v, want %+v", *limit, want)
				}
			})
		})
	}
}

func hasRoom(table *handle.Table, principal string, gone func(handle.Thing) bool) (err error) {
	table.Do(func(l *handle.Locked) { err = l.HasRoom(owner(principal), gone) })
	return err
}

// TestHasRoomByAddress checks that clients without names have the limit of principals, each address
// for itself, and get the time after which one of its own handles expires.
func TestHasRoomByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := handle.New(handle.Config{Idle: time.Minute, MaxPerPrincipal: 2})
		settleAs(table, waiting, newThing(1, ""), newThing(2, ""), newThing(3, "ann"))
		pass(time.Second)
		want := handle.LimitError{Max: 2, RetryAfter: 59 * time.Second}
		limit, refused := errors.AsType[*handle.LimitError](hasRoom(table, "", notGone))
		if !refused || *limit != want {
			t.Errorf("HasRoom = %+v, want %+v", limit, want)
		}
		other := admission.PrincipalOf("", netip.MustParseAddr("192.0.2.2"))
		table.Do(func(l *handle.Locked) {
			if err := l.HasRoom(other, notGone); err != nil {
				t.Errorf("HasRoom of another address = %v", err)
			}
		})
		if u := table.Usage(); u.Held != 3 || u.Refused[admission.OwnShare] != 1 {
			t.Errorf("Usage() = %+v, want 3 held, and 1 refused", u)
		}
	})
}

// TestHasRoomInAll checks that the open handles of all principals have a limit, of which each has a
// share: no handle ends for that of another principal.
func TestHasRoomInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := handle.New(handle.Config{Idle: time.Minute, MaxOpen: 10, MaxPerPrincipal: -1})
		opened := map[string]int{}
		open := func(name string) error {
			err := hasRoom(table, name, notGone)
			if err == nil {
				opened[name]++
				settleAs(table, waiting, newThing(byte(len(name)<<4+opened[name]), name))
				pass(time.Second)
			}
			return err
		}
		for range 20 {
			_ = open("a")
		}
		if _, refused := errors.AsType[*handle.LimitError](open("a")); !refused ||
			opened["a"] != 8 {
			t.Errorf("one principal opened %d of 10, and then %v", opened["a"], open("a"))
		}
		for _, name := range []string{"bb", "ccc"} {
			if err := open(name); err != nil {
				t.Errorf("the first handle of another principal: %v", err)
			}
		}
		refused, ok := errors.AsType[*admission.Error](open("dddd"))
		if !ok || refused.Cause != admission.Full || refused.RetryAfter != 50*time.Second {
			t.Errorf("without room: %+v, want it full until the first expires", refused)
		}
		if table.Len() != 10 {
			t.Errorf("%d handles, want 10", table.Len())
		}
	})
}

func notGone(handle.Thing) bool { return false }

// TestEvict checks that room is made with the least recently used handle of the principal that can
// be evicted, and not before it is needed.
func TestEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := handle.New(handle.Config{MaxPerPrincipal: 3})
		table.Start(t.Context())
		var things []*thing
		for n, principal := range []string{"ben", "ann", "ann", "ann"} {
			th := newThing(byte(n+1), principal)
			th.evictable = n != 1
			settleAs(table, waiting, th)
			things = append(things, th)
			pass(time.Second)
		}
		kept := func(handle.Thing) bool { return false }
		if err := hasRoom(table, "ann", kept); err != nil {
			t.Errorf("HasRoom = %v although one can be evicted", err)
		}
		if things[2].evicted != nil {
			t.Error("HasRoom evicts")
		}
		table.Do(func(l *handle.Locked) {
			l.Evict(owner("ann"))
			l.Evict(owner("ann")) // there is room already
		})
		synctest.Wait()
		for n, th := range things {
			if want := n == 2; (th.evicted != nil) != want {
				t.Errorf("thing %d was evicted: %v", n+1, !want)
			}
		}
		if e := things[2].evicted; e == nil || !e.hasEnded() {
			t.Error("what was evicted has not ended")
		}
		table.Stop()
	})
}

// The sweep ends a thing when its time is up, not before, and not while a call works on it.
func TestExpiry(t *testing.T) {
	for _, test := range []struct {
		name    string
		settled handle.Settled
		after   time.Duration
	}{
		{"the table's time", handle.Settled{Open: true, Continues: true}, time.Minute},
		{
			"its own time",
			handle.Settled{Open: true, Continues: true, Idle: 20 * time.Second},
			20 * time.Second,
		},
		{"pinned", handle.Settled{Open: true, Continues: true, Pinned: true}, time.Minute},
		{"cannot be continued", handle.Settled{Open: true}, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := start(t, handle.Config{Idle: time.Minute})
				th := newThing(1, "ann")
				settleAs(table, test.settled, th)
				_, w := begin(t, table, th, false)
				pass(time.Hour)
				if table.Len() != 1 {
					t.Fatal("it expired while a call worked on it")
				}
				settleAs(table, test.settled, th)
				w.Finish()
				pass(test.after - time.Second)
				if th.hasEnded() || table.Len() != 1 {
					t.Fatal("it expired before its time")
				}
				pass(time.Second)
				synctest.Wait()
				if !th.hasEnded() || table.Len() != 0 || th.removed != 1 {
					t.Errorf("ended %v, %d in the table, removed %d times",
						th.hasEnded(), table.Len(), th.removed)
				}
			})
		})
	}
}

// The sweep ends each thing at its time, in whatever order the things came.
func TestExpiryInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := start(t, handle.Config{Idle: time.Hour})
		begun := time.Now()
		idles := []time.Duration{30, 60, 10, 20, 20, 5}
		var things []*thing
		for i, idle := range idles {
			synctest.Wait() // the sweep has seen those before
			th := newThing(byte(i), "ann")
			settleAs(table,
				handle.Settled{Open: true, Continues: i%2 == 0, Idle: idle * time.Second}, th)
			things = append(things, th)
		}
		for range 70 {
			synctest.Wait()
			for i, th := range things {
				if want := time.Since(begun) >= idles[i]*time.Second; th.hasEnded() != want {
					t.Errorf("after %s thing %d has ended: %v, want %v", time.Since(begun), i,
						th.hasEnded(), want)
				}
			}
			pass(time.Second)
		}
		late := newThing(9, "ann") // after a time without things
		settleAs(table, handle.Settled{Open: true, Idle: time.Second}, late)
		pass(time.Second)
		if synctest.Wait(); !late.hasEnded() {
			t.Error("a thing that came late has not ended")
		}
	})
}

// A thing that is not open has nothing to end when its time is up.
func TestExpiryOfWhatIsNotOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := start(t, handle.Config{Idle: time.Minute})
		th := newThing(1, "ann")
		settleAs(table, handle.Settled{}, th)
		pass(time.Hour)
		synctest.Wait()
		if th.hasEnded() || th.removed != 1 {
			t.Errorf("ended %v, removed %d times", th.hasEnded(), th.removed)
		}
	})
}

// Pinned things are ended beside the others, even if a server answers none of the others.
func TestPinnedDoNotWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := start(t, handle.Config{Idle: time.Minute})
		block := make(chan struct{})
		for n := range byte(20) {
			th := newThing(n, "ann")
			th.block = block
			settle(table, th)
		}
		pinned := newThing(99, "ann")
		settleAs(table, handle.Settled{Open: true, Continues: true, Pinned: true}, pinned)
		pass(2 * time.Minute)
		synctest.Wait()
		if !pinned.hasEnded() {
			t.Error("a pinned thing waits behind others")
		}
		close(block)
	})
}

// If the table is full, what cannot be continued goes first, then what expires first.
func TestMakesRoom(t *testing.T) {
	over := handle.Settled{Open: true}
	soon := handle.Settled{Open: true, Continues: true, Idle: time.Second}
	for _, test := range []struct {
		name    string
		settled []handle.Settled // of things 1, 2, …
		want    []byte
	}{
		{"enough", []handle.Settled{waiting, waiting}, []byte{1, 2}},
		{"the one settled first", []handle.Settled{waiting, waiting, waiting}, []byte{2, 3}},
		{"the one that expires first", []handle.Settled{waiting, soon, waiting}, []byte{1, 3}},
		{"the one that is over", []handle.Settled{soon, over, waiting}, []byte{1, 3}},
		{"for one that is over", []handle.Settled{waiting, over, over}, []byte{1, 3}},
		{"none for one that is over", []handle.Settled{waiting, waiting, over}, []byte{1, 2, 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := handle.New(handle.Config{Max: 2})
				for i, s := range test.settled {
					settleAs(table, s, newThing(byte(i+1), "ann"))
				}
				if got := ids(table); !slices.Equal(got, test.want) {
					t.Errorf("the table has %v, want %v", got, test.want)
				}
			})
		})
	}
}

// Stop loses nothing: each removed thing was ended, or is among what Stop returns.
func TestStopLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := handle.New(handle.Config{Max: 1})
		block := make(chan struct{})
		var removed []*thing
		for n := range byte(20) {
			th := newThing(n, "ann")
			th.block = block
			removed = append(removed, th)
			settle(table, th)
		}
		removed = removed[:19] // the last one stays
		table.Start(t.Context())
		synctest.Wait()
		stopped := make(chan []handle.Thing, 1)
		go func() { stopped <- table.Stop() }()
		synctest.Wait()
		close(block)
		rest := <-stopped
		for _, th := range removed {
			if returned := slices.Contains(rest, handle.Thing(th)); returned == th.hasEnded() {
				t.Errorf("thing %d: ended %v, returned %v", th.ID[0], th.hasEnded(), returned)
			}
		}
	})
}

// Stop returns what was removed and is still to be ended.
func TestStopReturnsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := handle.New(handle.Config{Max: 1})
		settle(table, newThing(1, "ann"), newThing(2, "ann"))
		rest := table.Stop()
		if len(rest) != 1 || rest[0].(*thing).ID[0] != 1 {
			t.Fatalf("Stop = %v, want thing 1", rest)
		}
		handle.EndAll(t.Context(), rest)
		if !rest[0].(*thing).hasEnded() {
			t.Error("EndAll returned before it ended the thing")
		}
	})
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := handle.New(handle.Config{Idle: time.Minute})
		var all []*thing
		for i, principal := range []string{"ann", "ben", "ann", "ann"} {
			if i < 3 { // things 3 and 4 are opened in the same millisecond
				pass(time.Second)
			}
			th := newThing(byte(i+1), principal)
			th.database = []string{"x", "y"}[i%2]
			all = append(all, th)
		}
		slices.Reverse(all)
		settle(table, all...)
		slices.Reverse(all)
		closed := newThing(9, "ann")
		settleAs(table, handle.Settled{Continues: true}, closed)
		pinned := newThing(5, "ben")
		settleAs(table, handle.Settled{Open: true, Pinned: true}, pinned)
		ann, yes := "ann", true
		mark := func(n int) handle.Mark {
			return handle.Mark{Opened: all[n-1].Opened, ID: all[n-1].ID.String()}
		}
		for _, test := range []struct {
			name string
			q    handle.Query
			want string
		}{
			{"no limit is none", handle.Query{}, ""},
			{"all that are open", handle.Query{Limit: 9}, "12345"},
			{"some", handle.Query{Limit: 2}, "12"},
			{"after a mark", handle.Query{Limit: 9, After: mark(2)}, "345"},
			{"after a mark within a millisecond", handle.Query{Limit: 9, After: mark(3)}, "45"},
			{"of a principal", handle.Query{Limit: 9, Principal: &ann}, "134"},
			{"of a database", handle.Query{Limit: 9, Database: "y"}, "24"},
			{"of a collection", handle.Query{Limit: 9, Collection: "none"}, ""},
			{"pinned", handle.Query{Limit: 9, Pinned: &yes}, "5"},
		} {
			var got strings.Builder
			for _, i := range table.List(test.q) {
				got.WriteByte(i.ID[1])
			}
			if got.String() != test.want {
				t.Errorf("%s: List = %q, want %q", test.name, got.String(), test.want)
			}
		}
	})
}

// While a call works on a thing, the list shows it as busy and without an end.
func TestListOfBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := handle.New(handle.Config{Idle: time.Minute})
		th := newThing(1, "ann")
		settle(table, th)
		idle := table.List(handle.Query{Limit: 1})[0]
		if idle.Busy || !idle.Expires.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("idle: busy %v, expires %v", idle.Busy, idle.Expires)
		}
		pass(time.Second)
		_, w := begin(t, table, th, false)
		defer w.Finish()
		busy := table.List(handle.Query{Limit: 1})[0]
		if !busy.Busy || !busy.Expires.IsZero() || !busy.LastUse.Equal(time.Now()) {
			t.Errorf("busy: %+v", busy)
		}
	})
}

func TestRefuse(t *testing.T) {
	table := handle.New(handle.Config{})
	if first, second := table.Refuse(), table.Refuse(); first || !second {
		t.Errorf("Refuse = %v, then %v", first, second)
	}
	table.Do(func(l *handle.Locked) {
		if !l.Refusing() {
			t.Error("Refusing = false")
		}
	})
}

// Quiet cancels endless work at once. Other work has 5 s, or two thirds of the time if that is
// less.
func TestQuiet(t *testing.T) {
	for _, test := range []struct {
		name    string
		endless bool
		limit   time.Duration // of Quiet
		takes   time.Duration // until the work ends by itself; 0 is never
		stuck   bool          // it does not end when it is canceled
		after   time.Duration // when Quiet returns
		cause   error         // with which the work was canceled
		err     error
	}{
		{name: "it ends by itself", limit: time.Minute, takes: time.Second, after: time.Second},
		{name: "endless", endless: true, limit: time.Minute, cause: handle.ErrClosing},
		{
			name: "it takes too long", limit: time.Minute, after: 5 * time.Second,
			cause: handle.ErrClosing,
		},
		{
			name: "little time", limit: 3 * time.Second, after: 2 * time.Second,
			cause: handle.ErrClosing,
		},
		{
			name: "stuck", limit: 3 * time.Second, stuck: true, after: 3 * time.Second,
			cause: handle.ErrClosing, err: context.DeadlineExceeded,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := handle.New(handle.Config{})
				th := newThing(1, "ann")
				work, w := begin(t, table, th, test.endless)
				release, done := make(chan struct{}), make(chan error, 1)
				go func() {
					var byItself <-chan time.Time
					if test.takes > 0 {
						byItself = time.After(test.takes)
					}
					select {
					case <-byItself:
						done <- nil
					case <-work.Done():
						done <- context.Cause(work)
					}
					if test.stuck {
						<-release
					}
					settle(table, th)
					w.Finish()
				}()
				ctx, cancel := context.WithTimeout(t.Context(), test.limit)
				defer cancel()
				began := time.Now()
				err := table.Quiet(ctx)
				if took := time.Since(began); !errors.Is(err, test.err) || took != test.after {
					t.Errorf("Quiet = %v after %v, want %v after %v", err, took, test.err,
						test.after)
				}
				if cause := <-done; !errors.Is(cause, test.cause) {
					t.Errorf("the work ended with %v, want %v", cause, test.cause)
				}
				close(release)
			})
		})
	}
}

// If the grace is over, Quiet cancels all work at once. Work that does not end keeps no other from
// being canceled.
func TestQuietCancelsAllWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := handle.New(handle.Config{})
		release := make(chan struct{})
		canceled := make(chan struct{}, 3)
		var all sync.WaitGroup
		for n := range byte(3) {
			th := newThing(n, "ann")
			work, w := begin(t, table, th, false)
			all.Go(func() {
				<-work.Done()
				canceled <- struct{}{}
				<-release
				settle(table, th)
				w.Finish()
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := table.Quiet(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Quiet = %v, want %v", err, context.DeadlineExceeded)
		}
		synctest.Wait()
		if len(canceled) != 3 {
			t.Errorf("Quiet canceled %d works, want all 3", len(canceled))
		}
		close(release)
		_ = table.Quiet(t.Context()) // if it left some, it cancels them now, so that the test ends
		all.Wait()
	})
}

func TestCounts(t *testing.T) {
	table := start(t, handle.Config{})
	for i, kind := range []handle.Kind{
		handle.KindCursor, handle.KindCursor, handle.KindTransaction,
	} {
		x := newThing(byte(i), "p")
		x.Kind = kind
		settle(table, x)
	}
	got := table.Counts()
	if got[handle.KindCursor] != 2 || got[handle.KindTransaction] != 1 || len(got) != 2 {
		t.Errorf("Counts() = %v", got)
	}
}

// TestRemoveAll checks that things of the type go that match, those on which a call works with
// their work canceled, and no others.
func TestRemoveAll(t *testing.T) {
	table := handle.New(handle.Config{})
	idle, busy, other := newThing(1, "ann"), newThing(2, "ann"), newThing(3, "ben")
	settle(table, idle, other)
	ctx, w := begin(t, table, busy, false)
	ann := func(th *thing) bool { return th.Principal == "ann" }
	things, works := handle.RemoveAll(table, handle.ErrClosing, ann)
	if !slices.Equal(things, []*thing{idle}) || !slices.Equal(works, []*handle.Work{w}) {
		t.Errorf("RemoveAll = %v, %v", things, works)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, handle.ErrClosing) {
		t.Errorf("the work's cause is %v, want %v", cause, handle.ErrClosing)
	}
	if got := ids(table); !slices.Equal(got, []byte{3}) {
		t.Errorf("left are %v, want 3", got)
	}
	if !table.Expired(idle.ID) || table.Expired(other.ID) {
		t.Error("Expired = false for what was removed, or true for what was not")
	}
}
