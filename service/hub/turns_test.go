package hub

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
)

// wake has many subscribers wait for an event and writes one. Each calls sent when it has the
// event, and waits for the next one when that has returned. After the test all have had it.
func wake(t *testing.T, many int, test func(f *fixture, have *atomic.Int64, sent chan struct{})) {
	t.Helper()
	run(t, nil, func(f *fixture) {
		var have atomic.Int64
		sent := make(chan struct{})
		var running sync.WaitGroup
		for i := range many {
			filter := Filter{}
			if i%2 == 0 { // turns are those of all filters
				filter = Filter{Text: "all", Match: func(bson.Raw) bool { return true }}
			}
			s := f.subscribe(filter, nil)
			running.Go(func() {
				f.expect(f.read(s, 1), 0, 1)
				have.Add(1)
				<-sent
				f.leave(s)
			})
		}
		synctest.Wait()
		f.log.write(1, 10)
		synctest.Wait()
		test(f, &have, sent)
		running.Wait()
		if have.Load() != int64(many) {
			t.Errorf("%d of %d subscribers have the event", have.Load(), many)
		}
	})
}

// TestTurns wakes few subscribers at a time. Those that are done let the next ones go on.
func TestTurns(t *testing.T) {
	const many = 5*atOnce + 3
	wake(t, many, func(_ *fixture, have *atomic.Int64, sent chan struct{}) {
		for n := range many {
			left := have.Load() - int64(n)
			if left > atOnce || left <= 0 && have.Load() < many {
				t.Fatalf("%d subscribers have the event when %d have sent it", have.Load(), n)
			}
			sent <- struct{}{}
			synctest.Wait()
		}
	})
}

// TestStuckTurns has clients that read nothing hold others up for a moment only, and when they go
// on, not more subscribers than before take events at a time.
func TestStuckTurns(t *testing.T) {
	const many = 5 * atOnce
	wake(t, many, func(f *fixture, have *atomic.Int64, sent chan struct{}) {
		time.Sleep(2*stuckAfter + stuckAfter/2) //nolint:forbidigo // time is fake
		synctest.Wait()
		if got := have.Load(); got != 3*atOnce {
			t.Fatalf("%d subscribers have the event after two waits, want %d", got, 3*atOnce)
		}
		for range 2 * atOnce { // at least so many of an earlier round
			sent <- struct{}{}
		}
		synctest.Wait()
		if got := have.Load(); got > 4*atOnce {
			t.Fatalf("%d subscribers have the event", got)
		}
		close(sent)
	})
}

// TestTurnsOfThoseThatGo gives the turns of subscribers that leave to others, also if they leave
// while they wait for one.
func TestTurnsOfThoseThatGo(t *testing.T) {
	run(t, nil, func(f *fixture) {
		all := make([]*Subscription, 4*atOnce)
		for i := range all {
			all[i] = f.subscribe(Filter{}, nil)
		}
		f.log.write(1, 10)
		synctest.Wait()
		for _, s := range all[:atOnce] {
			f.expect(f.read(s, 1), 0, 1)
		}
		late := make(chan []int)
		for _, s := range all[3*atOnce:] {
			go func() {
				numbers := f.read(s, 1)
				f.leave(s)
				late <- numbers
			}()
		}
		synctest.Wait()
		for _, s := range all[:3*atOnce] {
			f.leave(s)
		}
		begun := time.Now()
		for range all[3*atOnce:] {
			f.expect(<-late, 0, 1)
		}
		if waited := time.Since(begun); waited > 0 {
			t.Errorf("the others wait for %v", waited)
		}
	})
}

// TestTurnsOfAConnection wakes the subscribers of a connection one after the other, whatever their
// order and filters are.
func TestTurnsOfAConnection(t *testing.T) {
	run(t, nil, func(f *fixture) {
		var have [3]atomic.Int64 // by connection
		sent := make(chan struct{})
		var running sync.WaitGroup
		for i := range 3 * atOnce {
			near := i % 3
			filter := Filter{}
			if i%2 == 0 {
				filter = Filter{Text: "all", Match: func(bson.Raw) bool { return true }}
			}
			s, err := f.hub.Subscribe(f.t.Context(), Key{Collection: "c"}, filter, nil,
				Reader{uint64(near), nil, f.account}, f.log.Open)
			if err != nil {
				f.t.Fatal(err)
			}
			running.Go(func() {
				f.expect(f.read(s, 1), 0, 1)
				have[near].Add(1)
				<-sent
				f.leave(s)
			})
		}
		synctest.Wait()
		f.log.write(1, 10)
		for near := range have {
			synctest.Wait()
			if n := have[near].Load(); n < atOnce {
				t.Errorf("%d subscribers of connection %d have the event", n, near)
			}
			if near == 0 && have[1].Load()+have[2].Load() > 0 {
				t.Error("subscribers of another connection have the event first")
			}
			for range atOnce {
				sent <- struct{}{}
			}
		}
		running.Wait()
	})
}
