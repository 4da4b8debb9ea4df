package topology_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// member is the hello of a member of the replica set "rs"; role is the field that says what it is.
func member(role string, hosts ...string) fakemongo.Handler {
	return func(cmd *fakemongo.Command) fakemongo.Reply {
		return fakemongo.OK(func(b *bson.Builder) {
			b.Bool("helloOk", true).Int32("maxWireVersion", 21).
				Int32("logicalSessionTimeoutMinutes", 30)
			b.Bool("isWritablePrimary", role == "primary").Bool("secondary", role == "secondary")
			b.String("setName", "rs").Int32("setVersion", 1)
			b.OpenArray("hosts")
			for _, host := range hosts {
				b.String("", host)
			}
			b.Close()
		})
	}
}

func TestReplicaSetWithAnElection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hosts := []string{"a:27017", "b:27017", "c:27017"}
		d := deployment{}
		for i, host := range hosts {
			role := []string{"primary", "secondary", "secondary"}[i]
			d[address.Address(host)] = fakemongo.NewServer(t,
				fakemongo.Handlers{"hello": member(role, hosts...)})
		}
		topo := start(t, topology.Config{
			Seeds: []address.Address{"b:27017"}, ReplicaSet: "rs",
			Conn: conn.Config{Dialer: d.dial},
		})
		defer stop(t, topo)
		primary := mustSelect(t, topo, selection.Write())
		if primary.Address() != "a:27017" {
			t.Errorf("selected %v for a write", primary.Address())
		}
		pass(time.Second)
		if got := len(topo.Description().Servers); got != 3 {
			t.Errorf("%d servers known, want 3", got)
		}

		d["a:27017"].Handle("hello", member("secondary", hosts...))
		d["a:27017"].Handle("ping",
			fakemongo.Always(fakemongo.Error(10107, "NotWritablePrimary", "not primary")))
		d["b:27017"].Handle("hello", member("primary", hosts...))
		if err := ping(t.Context(), primary); !mongoerr.IsNotWritablePrimary(err) {
			t.Fatalf("ping = %v", err)
		}
		begin := time.Now()
		if s := mustSelect(t, topo, selection.Write()); s.Address() != "b:27017" {
			t.Errorf("selected %v after the election", s.Address())
		}
		if took := time.Since(begin); took > minHeartbeat {
			t.Errorf("found the new primary after %v", took)
		}
		s := mustSelect(t, topo,
			selection.Read(&selection.ReadPreference{Mode: selection.Secondary}))
		if err := ping(t.Context(), s); s.Address() == "c:27017" && err != nil {
			t.Error(err)
		}
	})
}

const minHeartbeat = 500 * time.Millisecond

func TestRemovedServerIsEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		both := []string{"a:27017", "b:27017"}
		d := deployment{
			"a:27017": fakemongo.NewServer(t,
				fakemongo.Handlers{"hello": member("primary", both...)}),
			"b:27017": fakemongo.NewServer(t,
				fakemongo.Handlers{"hello": member("secondary", both...)}),
		}
		topo := start(t, topology.Config{
			Seeds: []address.Address{"a:27017"}, ReplicaSet: "rs",
			Conn: conn.Config{Dialer: d.dial}, Sink: j.sink(),
		})
		defer stop(t, topo)
		b := mustSelect(t, topo,
			selection.Read(&selection.ReadPreference{Mode: selection.Secondary}))
		if err := ping(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		d["a:27017"].Handle("hello", member("primary", "a:27017"))
		pass(11 * time.Second)
		synctest.Wait()
		if n := d["b:27017"].OpenConnections(); n != 0 {
			t.Errorf("%d connections to the removed server", n)
		}
		if got := j.take(); !slices.Contains(got, "b closed") ||
			!slices.Contains(got, "b pool closed") {
			t.Errorf("events = %v", got)
		}
		if err := ping(t.Context(), b); err == nil {
			t.Error("an operation on the removed server succeeded")
		}
	})
}

// TestManyOperationsThroughFailures runs 16 callers through drops, step-downs and restarts, and
// counts what is left.
func TestManyOperationsThroughFailures(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hosts := []string{"a:27017", "b:27017", "c:27017"}
		d := deployment{}
		for i, host := range hosts {
			role := []string{"primary", "secondary", "secondary"}[i]
			d[address.Address(host)] = fakemongo.NewServer(t,
				fakemongo.Handlers{"hello": member(role, hosts...)})
		}
		var j journal
		topo := start(t, topology.Config{
			Seeds: []address.Address{"a:27017"}, ReplicaSet: "rs",
			Conn: conn.Config{Dialer: d.dial}, Sink: j.sink(),
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		var succeeded, failed atomic.Int64
		for range 16 {
			wg.Go(func() {
				for ctx.Err() == nil {
					s, err := topo.Select(ctx, selection.Write())
					if err == nil {
						err = ping(ctx, s)
					}
					if err == nil {
						succeeded.Add(1)
					} else {
						failed.Add(1)
					}
					pass(10 * time.Millisecond)
				}
			})
		}
		random := rand.New(rand.NewPCG(1, 1))
		primary := 0
		for ctx.Err() == nil {
			pass(time.Duration(random.IntN(3000)) * time.Millisecond)
			old, next := d[address.Address(hosts[primary])], random.IntN(len(hosts))
			old.Handle("hello", member("secondary", hosts...))
			old.Handle("ping",
				fakemongo.Always(fakemongo.Error(10107, "NotWritablePrimary", "not primary")))
			if random.IntN(2) == 0 {
				old.CutConnections()
			}
			primary = next
			d[address.Address(hosts[next])].Handle("hello", member("primary", hosts...))
			d[address.Address(hosts[next])].Handle("ping", nil)
		}
		wg.Wait()
		// no selection waits any more: the next check finds the last election
		pass(11 * time.Second)
		if got := mustSelect(t, topo, selection.Write()).
			Address(); got != address.Address(hosts[primary]) {
			t.Errorf("the primary is %v, want %v", got, hosts[primary])
		}
		if s, f := succeeded.Load(), failed.Load(); s < 10*f {
			t.Errorf("%d operations succeeded and %d failed", s, f)
		}
		stop(t, topo)
		synctest.Wait()
		for addr, server := range d {
			if n := server.OpenConnections(); n != 0 {
				t.Errorf("%d connections to %v are left", n, addr)
			}
		}
		if got := j.take(); got[len(got)-1] != "topology closed" {
			t.Errorf("the last event is %q", got[len(got)-1])
		}
	})
}

// TestCheckOfARemovedServer checks that a removed server causes no event after its end, except the
// end of each check that has begun, once (EVT-005).
func TestCheckOfARemovedServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary, fakemongo.Secondary)
		cfg := watched(cluster)
		cfg.Sink = j.sink()
		topo := start(t, cfg)
		pass(time.Second)
		cluster.Remove(cluster.Host(2)) // which streams: there is always a check
		synctest.Wait()
		pass(time.Minute)
		stop(t, topo)
		var checks, ends int
		lines := j.take()
		for i, line := range lines {
			switch line {
			case "c check":
				checks++
			case "c check ok", "c check failed":
				ends++
			}
			if line == "c closed" && slices.ContainsFunc(lines[i+1:], func(l string) bool {
				return strings.HasPrefix(l, "c check")
			}) {
				t.Errorf("a check is told of after the server's end:\n\t%s",
					strings.Join(lines, "\n\t"))
			}
		}
		if checks != ends || checks == 0 || !slices.Contains(lines, "c closed") {
			t.Errorf("%d checks began and %d ended:\n\t%s", checks, ends,
				strings.Join(lines, "\n\t"))
		}
	})
}
