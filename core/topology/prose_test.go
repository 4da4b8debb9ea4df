package topology_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestMonitorsSleepAtLeastMinHeartbeatFrequencyMS is the prose test of that name: after five
// failed hellos an operation has waited for 2 to 3.5 seconds.
func TestMonitorsSleepAtLeastMinHeartbeatFrequencyMS(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Standalone)
		host := cluster.Host(0)
		failing := fakemongo.Always(fakemongo.Error(1234, "Scripted", "fail point"))
		host.Handle("hello", fakemongo.Times(5, failing, host.Default))
		cfg := watched(cluster)
		cfg.ServerSelectionTimeout = 5 * time.Second
		cfg.DirectConnection = true
		begin := time.Now()
		topo := start(t, cfg)
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		if err := ping(t.Context(), s); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 2*time.Second || took > 3500*time.Millisecond {
			t.Errorf("ping succeeded after %v, want 2s to 3.5s", took)
		}
	})
}

// TestConnectionPoolManagement is the prose test of that name: a pool is ready after the first
// successful check, cleared by a failed one, and ready again after the next success.
func TestConnectionPoolManagement(t *testing.T) {
	for name, polled := range map[string]bool{"streaming": false, "polling": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var j journal
				cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{Polled: polled},
					fakemongo.Primary)
				cfg := watched(cluster)
				cfg.HeartbeatInterval = 500 * time.Millisecond
				cfg.Sink = &event.Sink{
					ServerHeartbeatSucceeded: func(event.ServerHeartbeatSucceeded) {
						j.add("succeeded")
					},
					ServerHeartbeatFailed: func(event.ServerHeartbeatFailed) { j.add("failed") },
					PoolReady:             func(event.PoolReady) { j.add("ready") },
					PoolCleared:           func(event.PoolCleared) { j.add("cleared") },
				}
				topo := start(t, cfg)
				defer stop(t, topo)
				pass(100 * time.Millisecond)
				synctest.Wait()
				if got := j.take(); !slices.Equal(got, []string{"succeeded", "ready"}) {
					t.Errorf("at first: %v", got)
				}
				cluster.Host(0).
					Lie(fakemongo.Always(fakemongo.Error(1234, "Scripted", "fail point")))
				pass(time.Second)
				cluster.Host(0).Lie(nil)
				pass(3 * time.Second)
				got := slices.Compact(j.take())
				if text := strings.Join(got, " "); !strings.HasPrefix(text, "failed cleared ") ||
					!strings.Contains(text, "succeeded ready") {
					t.Errorf("after failures: %v", got)
				}
			})
		})
	}
}

// TestAverageIsResetByADisconnect is the prose test "RTT is reset when a server becomes
// unavailable" (SMON-053).
func TestAverageIsResetByADisconnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		host := cluster.Host(0)
		host.Slow(100 * time.Millisecond)
		topo := start(t, watched(cluster))
		defer stop(t, topo)
		pass(time.Minute)
		if rtt := topo.Description().Servers[0].AverageRTT; rtt != 100*time.Millisecond {
			t.Errorf("the average is %v, want 100ms", rtt)
		}
		host.SetDown(true)
		synctest.Wait()
		if s := topo.Description().Servers[0]; s.Kind != description.ServerUnknown ||
			s.AverageRTT != 0 {
			t.Errorf("the server that is down is %v", s)
		}
		host.Slow(20 * time.Millisecond)
		host.SetDown(false)
		pass(11 * time.Second)
		if rtt := topo.Description().Servers[0].AverageRTT; rtt != 20*time.Millisecond {
			t.Errorf("the average is %v, want that of new samples, 20ms", rtt)
		}
	})
}

// TestNegativeRoundTripTimesAreRefused is the prose test of that name (SEL-051).
func TestNegativeRoundTripTimesAreRefused(t *testing.T) {
	rtt := description.RTT{}.Add(10 * time.Millisecond).Add(-time.Second)
	if rtt.Average() != 10*time.Millisecond || rtt.Min() != 0 {
		t.Errorf("average %v, minimum %v, want 10ms and none", rtt.Average(), rtt.Min())
	}
}
