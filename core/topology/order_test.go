package topology_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestPoolEventsFollowTheirReasons checks that the sink gets a pool's events after the change of
// the description that caused them, also if the sink is slow and several servers change at once
// (EVT-008).
func TestPoolEventsFollowTheirReasons(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary, fakemongo.Secondary)
		cfg := watched(cluster)
		sink := j.sink()
		sink.ConnectionClosed = func(e event.ConnectionClosed) {
			j.add("%s pool: %s", e.Address.Host(), e.Reason)
		}
		changed := sink.ServerDescriptionChanged
		sink.ServerDescriptionChanged = func(e event.ServerDescriptionChanged) {
			pass(100 * time.Millisecond) // slow
			changed(e)
		}
		cfg.Sink = sink
		topo := start(t, cfg)
		pass(time.Second)
		for _, mode := range []selection.Mode{
			selection.Primary, selection.Secondary, selection.Nearest,
		} {
			for range 8 {
				if err := ping(t.Context(),
					mustSelect(t, topo,
						selection.Read(&selection.ReadPreference{Mode: mode}))); err != nil {
					t.Error(err)
				}
			}
		}
		for range 3 {
			for _, h := range cluster.Hosts() {
				h.SetDown(true)
			}
			pass(5 * time.Second)
			for _, h := range cluster.Hosts() {
				h.SetDown(false)
			}
			pass(15 * time.Second)
		}
		stop(t, topo)
		expectReasons(t, j.take())
	})
}

// expectReasons checks that each pool is ready only under a server that was found, and cleared,
// and its connections closed, only under one that is gone.
func expectReasons(t *testing.T, lines []string) {
	t.Helper()
	found := map[string]bool{}
	cleared := 0
	for i, line := range lines {
		host, fact, _ := strings.Cut(line, " ")
		wrong := false
		switch {
		case strings.Contains(fact, " → Unknown"):
			found[host] = false
		case strings.HasPrefix(fact, "Unknown → ") && host != "topology":
			found[host] = true
		case fact == "pool ready":
			wrong = !found[host]
		case strings.HasPrefix(fact, "pool cleared"), fact == "pool: stale":
			cleared++
			wrong = found[host]
		}
		if wrong {
			t.Errorf("%q comes too early, after:\n\t%s", line, strings.Join(lines[:i], "\n\t"))
			return
		}
	}
	if cleared < 9 {
		t.Errorf("pools were cleared %d times only", cleared)
	}
}

// TestASinkIsNeverCalledTwiceAtOnce checks that the topology's events come one after the other
// (EVT-007), and that a server's change counts without waiting for a listener that is slow with
// another one.
func TestASinkIsNeverCalledTwiceAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var busy sync.Mutex
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary, fakemongo.Secondary)
		cfg := watched(cluster)
		var slow atomic.Bool
		heard := 0
		cfg.Sink = &event.Sink{ServerDescriptionChanged: func(event.ServerDescriptionChanged) {
			if !busy.TryLock() {
				t.Error("called at once")
				return
			}
			defer busy.Unlock()
			heard++
			if slow.Load() {
				pass(time.Minute)
			}
		}}
		topo := start(t, cfg)
		pass(time.Second)
		slow.Store(true)
		for _, h := range cluster.Hosts() {
			h.SetDown(true)
		}
		synctest.Wait()
		for _, s := range topo.Description().Servers {
			if s.Kind != description.ServerUnknown {
				t.Errorf("%v, while the sink hears of another", s)
			}
		}
		stop(t, topo)
		if heard < 6 {
			t.Errorf("%d changes were told before Close returned, want three times there and gone",
				heard)
		}
	})
}

// TestCloseWaitsUntilAllIsTold checks that no event follows the topology's end, not even an event
// that an operation's failure caused (CLOSE-003).
func TestCloseWaitsUntilAllIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		server := fakemongo.NewServer(t, nil)
		cfg := standalone(server)
		sink := j.sink()
		changed := sink.ServerDescriptionChanged
		sink.ServerDescriptionChanged = func(e event.ServerDescriptionChanged) {
			pass(time.Second)
			changed(e)
		}
		cfg.Sink = sink
		topo := start(t, cfg)
		s := mustSelect(t, topo, selection.Write())
		pass(5 * time.Second)
		j.take()
		server.Handle("ping", fakemongo.Always(fakemongo.Drop()))
		go func() { _ = ping(context.Background(), s) }() //nolint:usetesting // it ends by itself
		pass(time.Millisecond)
		stop(t, topo)
		pass(time.Minute)
		j.expect(t, "a Standalone → Unknown", "topology Single/1 → Single/1",
			"a pool cleared, interrupt false",
			"a pool closed", "a closed", "topology Single/1 → Unknown/0", "topology closed")
	})
}

// TestRemovedServersEventsComeInOrder checks that a server's pool is closed after the event of its
// end, and that a new server is announced before its monitor begins (EVT-003).
func TestRemovedServersEventsComeInOrder(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			var j journal
			ab := []string{"a:27017", "b:27017"}
			d := deployment{
				"a:27017": fakemongo.NewServer(t,
					fakemongo.Handlers{"hello": member("primary", ab...)}),
				"b:27017": fakemongo.NewServer(t,
					fakemongo.Handlers{"hello": member("secondary", ab...)}),
				"c:27017": fakemongo.NewServer(t,
					fakemongo.Handlers{"hello": member("secondary", "a:27017", "c:27017")}),
			}
			sink := j.sink()
			changed := sink.ServerDescriptionChanged
			sink.ServerDescriptionChanged = func(e event.ServerDescriptionChanged) {
				pass(time.Millisecond)
				changed(e)
			}
			cfg := topology.Config{
				Seeds: []address.Address{"a:27017"}, ReplicaSet: "rs",
				Conn: conn.Config{Dialer: d.dial}, Sink: sink,
			}
			topo := start(t, cfg)
			defer stop(t, topo)
			pass(time.Second)
			synctest.Wait()
			j.take()
			d["a:27017"].Handle("hello", member("primary", "a:27017", "c:27017"))
			pass(9*time.Second + 100*time.Millisecond)
			synctest.Wait()
			lines := j.take()
			last := -1
			for _, line := range []string{
				"a RSPrimary → RSPrimary", "b closed", "c opening", "c check", "c Unknown → RSSecondary",
			} {
				i := slices.Index(lines, line)
				if i <= last {
					t.Fatalf("%q comes at %d, in:\n\t%s", line, i, strings.Join(lines, "\n\t"))
				}
				last = i
			}
			if closed := slices.Index(lines, "b pool closed"); closed < slices.Index(lines,
				"b closed") {
				t.Errorf("the pool of a removed server is closed at %d, in:\n\t%s", closed,
					strings.Join(lines, "\n\t"))
			}
		})
	}
}

// TestNoPoolBeforeTheVerdict checks that a server that turns out not to belong to the deployment
// gets no pool.
func TestNoPoolBeforeTheVerdict(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cfg := standalone(fakemongo.NewServer(t, nil))
		cfg.ReplicaSet = "rs"
		sink := j.sink()
		sink.NoServers = func(e event.NoServers) { j.add("no servers: %v", e.Err) }
		cfg.Sink = sink
		topo := start(t, cfg)
		synctest.Wait()
		j.expect(t, "topology opening", "topology Unknown/0 → ReplicaSetNoPrimary/1", "a opening",
			"a check", "a check ok",
			"a closed", "topology ReplicaSetNoPrimary/1 → ReplicaSetNoPrimary/0",
			"no servers: no server is left: a:27017 is of kind Standalone, which does not belong "+
				"to a deployment of kind ReplicaSetNoPrimary")
		stop(t, topo)
	})
}

// TestCheckWithoutNewsWaitsForNoSink has the sink hang while it hears why a pool became ready. A
// check that finds the server as it is holds nothing back for that pool, and does not wait.
func TestCheckWithoutNewsWaitsForNoSink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hang := make(chan struct{})
		topo := start(t, topology.Config{
			Seeds: []address.Address{"a:27017"}, Conn: unreachableConn,
			Sink: &event.Sink{ServerDescriptionChanged: func(event.ServerDescriptionChanged) {
				<-hang
			}},
		})
		defer stop(t, topo)
		found := func() *description.Server {
			return &description.Server{
				Address: "a:27017", Kind: description.ServerStandalone, MaxWireVersion: 21,
			}
		}
		var applied sync.WaitGroup
		applied.Go(func() { topo.Apply(found()) })
		synctest.Wait()
		done := false
		applied.Go(func() {
			topo.Apply(found())
			done = true
		})
		synctest.Wait()
		if !done {
			t.Error("the second check waits for the sink")
		}
		close(hang)
		applied.Wait()
	})
}
