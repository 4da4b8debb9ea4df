package topology_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestNoServersAreLeft removes the last server where no other server can become known. The sink is
// warned, and a selection fails at once and says why (SDAM-037).
func TestNoServersAreLeft(t *testing.T) {
	for name, test := range map[string]struct {
		config func(*fakemongo.Cluster) topology.Config
		want   string
	}{
		"no seeds": {
			func(*fakemongo.Cluster) topology.Config { return topology.Config{} },
			"no servers are configured",
		},
		"wrong replicaSet": {
			func(c *fakemongo.Cluster) topology.Config {
				cfg := watched(c)
				cfg.Seeds, cfg.ReplicaSet = cfg.Seeds[:1], "rs1"
				return cfg
			},
			`no server is left: a:27017 is a member of replica set "rs", not of "rs1"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var j journal
				cfg := test.config(fakemongo.NewCluster(t, fakemongo.ClusterConfig{},
					fakemongo.Primary, fakemongo.Secondary))
				cfg.Sink = &event.Sink{NoServers: func(e event.NoServers) { j.add("%v", e.Err) }}
				topo := start(t, cfg)
				defer stop(t, topo)
				for range 2 { // while the last server is being removed, and later
					begin := time.Now()
					_, err := topo.Select(t.Context(), selection.Write())
					if e, ok := errors.AsType[*mongoerr.SelectionError](err); !ok || e.Err == nil ||
						e.Err.Error() != test.want {
						t.Errorf("Select = %v, want %s", err, test.want)
					}
					if took := time.Since(begin); took != 0 {
						t.Errorf("Select took %v", took)
					}
					synctest.Wait()
				}
				j.expect(t, test.want)
			})
		})
	}
}

// TestNoServersUntilTheRecordsChange checks that selection waits if SRV records may bring new
// servers.
func TestNoServersUntilTheRecordsChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startPolled(t, fakemongo.Standalone, "") // two standalone servers are not a deployment
		defer stop(t, p.topo)
		_, err := p.topo.Select(t.Context(), selection.Write())
		if want := "server selection timed out after 30s: no server is left: "; err == nil ||
			!contains(err, want) {
			t.Errorf("Select = %v, want %s", err, want)
		}
		p.records.set(nil, "c:27017")
		p.cluster.Host(2).SetRole(fakemongo.Mongos)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			s, err := p.topo.Select(ctx, selection.Write())
			if err == nil {
				if s.Address() != "c.example.com:27017" {
					t.Errorf("selected %v", s.Address())
				}
				return
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestRemainingTimeOfASelection checks that the context may end a selection before
// serverSelectionTimeoutMS does (SEL-084).
func TestRemainingTimeOfASelection(t *testing.T) {
	for name, test := range map[string]struct{ timeout, deadline, want time.Duration }{
		"no deadline":       {5 * time.Second, 0, 5 * time.Second},
		"a later deadline":  {5 * time.Second, time.Minute, 5 * time.Second},
		"an earlier one":    {5 * time.Second, 2 * time.Second, 2 * time.Second},
		"one that has gone": {5 * time.Second, -time.Second, 0},
		"no waiting at all": {-1, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var remaining []time.Duration
				topo := start(t, topology.Config{
					Seeds: []address.Address{"a:27017"}, ServerSelectionTimeout: test.timeout,
					Conn: unreachableConn,
					Sink: &event.Sink{ServerSelectionWaiting: func(e event.ServerSelectionWaiting) {
						remaining = append(remaining, e.Remaining)
					}},
				})
				defer stop(t, topo)
				ctx := t.Context()
				if test.deadline != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithDeadline(ctx, time.Now().Add(test.deadline))
					defer cancel()
				}
				if _, err := topo.Select(ctx, selection.Write()); err == nil {
					t.Error("selected a server that cannot be reached")
				}
				if len(remaining) != 1 || remaining[0] != test.want {
					t.Errorf("remaining: %v, want %v, once", remaining, test.want)
				}
			})
		})
	}
}

// TestClosingAgainWaitsForTheEnd calls Close twice. The second call returns only after the first
// (CLOSE-003).
func TestClosingAgainWaitsForTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cfg := standalone(fakemongo.NewServer(t, nil))
		cfg.Sink = &event.Sink{ServerClosed: func(event.ServerClosed) {
			pass(time.Second)
			j.add("closed")
		}}
		topo := start(t, cfg)
		pass(time.Second)
		go stop(t, topo)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := topo.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close with a short time = %v", err)
		}
		stop(t, topo)
		j.expect(t, "closed")
	})
}
