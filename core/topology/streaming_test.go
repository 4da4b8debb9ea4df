package topology_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// watched is a topology of all of a cluster's hosts.
func watched(c *fakemongo.Cluster) topology.Config {
	return topology.Config{Seeds: c.Seeds(), Conn: conn.Config{Dialer: c.Dial}}
}

// beats is a sink that writes down heartbeats, with whether they are awaited.
func beats(j *journal) *event.Sink {
	awaited := map[bool]string{true: " awaited", false: ""}
	return &event.Sink{
		ServerHeartbeatStarted: func(e event.ServerHeartbeatStarted) {
			j.add("%s started%s", e.Address.Host(), awaited[e.Awaited])
		},
		ServerHeartbeatSucceeded: func(e event.ServerHeartbeatSucceeded) {
			j.add("%s succeeded%s after %v", e.Address.Host(), awaited[e.Awaited], e.Duration)
		},
		ServerHeartbeatFailed: func(e event.ServerHeartbeatFailed) {
			j.add("%s failed%s after %v", e.Address.Host(), awaited[e.Awaited], e.Duration)
		},
		ServerDescriptionChanged: func(e event.ServerDescriptionChanged) {
			j.add("%s %v → %v", e.Address.Host(), e.Previous.Kind, e.New.Kind)
		},
		PoolReady:   func(e event.PoolReady) { j.add("%s pool ready", e.Address.Host()) },
		PoolCleared: func(e event.PoolCleared) { j.add("%s pool cleared", e.Address.Host()) },
	}
}

// TestStreamingOrderOfEvents checks that a streaming monitor announces each reply that it waits
// for, and does not pause between them.
func TestStreamingOrderOfEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		cfg := watched(cluster)
		cfg.Sink = beats(&j)
		topo := start(t, cfg)
		defer stop(t, topo)
		synctest.Wait()
		j.expect(t, "a started", "a succeeded after 0s", "a Unknown → RSPrimary", "a pool ready",
			"a started awaited")
		pass(10*time.Second + time.Millisecond)
		j.expect(t, "a succeeded awaited after 10s", "a started awaited")
		pass(2*time.Second - time.Millisecond)
		cluster.StepDown()
		synctest.Wait()
		j.expect(t, "a succeeded awaited after 2s", "a RSPrimary → RSSecondary",
			"a started awaited")
		// RTT's second sample is a hello, too
		if n := len(cluster.Host(0).Commands("hello")); n != 1+1 {
			t.Errorf("%d hellos after the handshakes, want 2: one for the stream, one for RTT", n)
		}
	})
}

func TestNewPrimaryIsKnownAtOnce(t *testing.T) {
	for name, polling := range map[string]bool{"streaming": false, "polling": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
					fakemongo.Secondary, fakemongo.Secondary)
				cfg := watched(cluster)
				cfg.Polling = polling
				topo := start(t, cfg)
				defer stop(t, topo)
				mustSelect(t, topo, selection.Write())
				pass(3 * time.Second)
				begin := time.Now()
				cluster.Elect(cluster.Host(1))
				for topo.Description().Primary() == nil ||
					topo.Description().Primary().Address != "b:27017" {
					_, changed := topo.Watch()
					<-changed
				}
				took := time.Since(begin)
				if !polling && took != 0 || polling && (took == 0 || took > 10*time.Second) {
					t.Errorf("the new primary was known after %v", took)
				}
			})
		})
	}
}

// TestCancelCheck checks that an application's network error ends the stream, which would notice
// only later. The canceled check does not mark the server unknown, or clear its pool, a second
// time, and is not repeated at once (SMON-037).
func TestCancelCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		cfg := watched(cluster)
		cfg.Sink = beats(&j)
		topo := start(t, cfg)
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		// a reply without news has been seen, which answers any request for a check
		pass(13 * time.Second)
		synctest.Wait()
		j.take()
		host := cluster.Host(0)
		host.Handle("ping", fakemongo.Times(1, fakemongo.Always(fakemongo.Drop()), host.Default))
		if err := ping(t.Context(), s); !mongoerr.IsNetwork(err) {
			t.Fatalf("ping = %v", err)
		}
		synctest.Wait()
		j.expect(t, "a RSPrimary → Unknown", "a pool cleared", "a failed awaited after 3s")
		if n := host.Streams(); n != 0 {
			t.Errorf("%d streams go on", n)
		}
		pass(9 * time.Second)
		j.expect(t)
		pass(time.Second + time.Millisecond)
		j.expect(t, "a started", "a succeeded after 0s", "a Unknown → RSPrimary", "a pool ready",
			"a started awaited")
	})
}

// TestStateChangeErrorsWithVersions checks that an error changes nothing if the stream has already
// reported its topologyVersion.
func TestStateChangeErrorsWithVersions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary)
		cfg := watched(cluster)
		topo := start(t, cfg)
		defer stop(t, topo)
		primary := mustSelect(t, topo, selection.Write())
		pass(time.Second)
		cluster.Elect(cluster.Host(1))
		synctest.Wait()
		cluster.Host(0).Handle("ping", cluster.Host(0).WriteHandler())
		if err := ping(t.Context(), primary); !mongoerr.IsNotWritablePrimary(err) {
			t.Fatalf("ping = %v", err)
		}
		j.take()
		if s := topo.Description().Server("a:27017"); s.Kind != description.ServerRSSecondary {
			t.Errorf("an error as old as the description made the server %v", s)
		}
	})
}

func TestStreamTimesOut(t *testing.T) {
	for name, timeout := range map[string]time.Duration{
		"connectTimeoutMS and the interval": time.Second, "never": -1,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var j journal
				cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
				cfg := watched(cluster)
				cfg.Sink = beats(&j)
				cfg.Conn.ConnectTimeout = timeout
				topo := start(t, cfg)
				defer stop(t, topo)
				synctest.Wait()
				j.take()
				cluster.Host(0).Hang(true)
				pass(11*time.Second + time.Millisecond)
				synctest.Wait()
				if timeout < 0 {
					j.expect(t)
					return
				}
				j.expect(t, "a failed awaited after 11s", "a RSPrimary → Unknown", "a pool cleared",
					"a started")
			})
		})
	}
}

// TestRestartIsNoticed checks that a restart ends the stream, and that the monitor checks again
// without a pause.
func TestRestartIsNoticed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		cfg := watched(cluster)
		cfg.Sink = beats(&j)
		topo := start(t, cfg)
		defer stop(t, topo)
		pass(time.Second)
		synctest.Wait()
		j.take()
		cluster.Host(0).SetDown(true)
		synctest.Wait()
		j.expect(t, "a failed awaited after 1s", "a RSPrimary → Unknown", "a pool cleared",
			"a started", "a failed after 0s", "a Unknown → Unknown")
		cluster.Host(0).SetDown(false)
		pass(10*time.Second + time.Millisecond)
		j.expect(t, "a started", "a succeeded after 0s", "a Unknown → RSPrimary", "a pool ready",
			"a started awaited")
	})
}

// TestNoRTTOfAServerThatIsDown checks that a server that does not stream has no connection that
// measures the round-trip time, and that none is attempted (SMON-050).
func TestNoRTTOfAServerThatIsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		host := cluster.Host(0)
		cfg := watched(cluster)
		var dials atomic.Int32
		cfg.Conn.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return cluster.Dial(ctx, network, addr)
		}
		topo := start(t, cfg)
		defer stop(t, topo)
		pass(5 * time.Second)
		host.SetDown(true)
		pass(time.Second)
		dials.Store(0)
		pass(time.Minute)
		if n := dials.Load(); n != 6 {
			t.Errorf("%d attempts to connect in a minute, want 6: the checks", n)
		}
		host.SetDown(false)
		pass(20 * time.Second)
		synctest.Wait()
		if n := host.OpenConnections(); n != 2 {
			t.Errorf("%d connections while streaming again, want 2: monitor and RTT", n)
		}
	})
}

// TestFallBackToPolling checks that a reply without topologyVersion ends streaming, and closes the
// connection that measures the round-trip time.
func TestFallBackToPolling(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		host := cluster.Host(0)
		cfg := watched(cluster)
		cfg.Sink = beats(&j)
		topo := start(t, cfg)
		defer stop(t, topo)
		pass(time.Second)
		synctest.Wait()
		if n := host.OpenConnections(); n != 2 {
			t.Errorf("%d connections while streaming, want 2: monitor and RTT", n)
		}
		j.take()
		host.Lie(member("secondary", "a:27017"))
		synctest.Wait()
		j.expect(t, "a failed awaited after 1s", "a RSPrimary → Unknown", "a pool cleared",
			"a started", "a succeeded after 0s", "a Unknown → RSSecondary", "a pool ready")
		if n := host.OpenConnections(); n != 1 {
			t.Errorf("%d connections while polling, want 1", n)
		}
		pass(10*time.Second + time.Millisecond)
		j.expect(t, "a started", "a succeeded after 0s")
		host.Lie(nil)
		synctest.Wait()
		pass(10 * time.Second)
		if n := host.OpenConnections(); n != 2 {
			t.Errorf("%d connections after streaming began again, want 2", n)
		}
	})
}

func TestPollingModeNeverStreams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		cfg := watched(cluster)
		cfg.Polling = true
		topo := start(t, cfg)
		defer stop(t, topo)
		pass(25 * time.Second)
		host := cluster.Host(0)
		if n := host.AcceptedConnections(); n != 1 {
			t.Errorf("%d connections, want the monitor's", n)
		}
		for _, cmd := range host.Commands("hello") {
			if _, has := cmd.Body.Lookup("topologyVersion"); has {
				t.Errorf("sent %v", cmd.Body)
			}
		}
		if _, average := topo.Description(), topo.Description().Servers[0].MinRTT; average != 0 {
			t.Errorf("minimum %v over an instant network", average)
		}
	})
}

// TestMonitorHellos checks that the fields of a connection's first hello are not repeated in later
// ones, except helloOk (SMON-003).
func TestMonitorHellos(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		topo := start(t, watched(cluster))
		defer stop(t, topo)
		pass(25 * time.Second)
		greeted := map[int]bool{} // connections
		for _, cmd := range cluster.Host(0).Commands() {
			first := !greeted[cmd.Connection]
			greeted[cmd.Connection] = true
			for key, want := range map[string]bool{
				"helloOk": true, "client": first, "compression": first, "backpressure": first, "saslSupportedMechs": false,
			} {
				if _, has := cmd.Body.Lookup(key); has != want {
					t.Errorf("%s %v has %s: %v, want %v", cmd.Name, cmd.Body, key, has, want)
				}
			}
		}
		if v := cluster.Host(0).Violation(); v != "" {
			t.Error(v)
		}
	})
}

// TestHeartbeatsNameTheirConnection checks the ids in the events of a monitor's checks: its own
// count of connections from the first one on, and the server's id as soon as a hello has told it.
func TestHeartbeatsNameTheirConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		cfg := watched(cluster)
		cfg.Sink = &event.Sink{
			ServerHeartbeatStarted: func(e event.ServerHeartbeatStarted) {
				j.add("started %d, server knows: %t", e.ConnectionID, e.ServerConnectionID > 0)
			},
			ServerHeartbeatSucceeded: func(e event.ServerHeartbeatSucceeded) {
				j.add("succeeded %d, server knows: %t", e.ConnectionID, e.ServerConnectionID > 0)
			},
		}
		topo := start(t, cfg)
		defer stop(t, topo)
		synctest.Wait()
		want := []string{
			"started 1, server knows: false", "succeeded 1, server knows: true", "started 1, server knows: true",
		}
		if got := j.take(); !slices.Equal(got, want) {
			t.Errorf("heartbeats = %q, want %q", got, want)
		}
	})
}

// TestHeartbeatBeforeSocket is the prose test "heartbeat events before the socket is opened".
func TestHeartbeatBeforeSocket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		topo := start(t, topology.Config{
			Seeds: []address.Address{"a:27017"},
			Conn: conn.Config{Dialer: func(context.Context, string, string) (net.Conn, error) {
				j.add("client connected")
				client, server := net.Pipe()
				go func() {
					defer server.Close()
					if _, err := server.Read(make([]byte, 16)); err == nil {
						j.add("client hello received")
					}
				}()
				return client, nil
			}},
			Sink: &event.Sink{
				ServerHeartbeatStarted: func(event.ServerHeartbeatStarted) {
					j.add("serverHeartbeatStartedEvent")
				},
				ServerHeartbeatFailed: func(event.ServerHeartbeatFailed) {
					j.add("serverHeartbeatFailedEvent")
				},
			},
		})
		defer stop(t, topo)
		synctest.Wait()
		j.expect(t, "serverHeartbeatStartedEvent", "client connected", "client hello received",
			"serverHeartbeatFailedEvent")
	})
}

// TestHeartbeatsArePaired checks that each start of a check has one end, also if the check was
// canceled or ended by Close (EVT-005), and that no event follows the topology's end.
func TestHeartbeatsArePaired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary, fakemongo.Secondary)
		var mu sync.Mutex
		open := map[address.Address]int{}
		closed := false
		count := func(addr address.Address, n int) {
			mu.Lock()
			defer mu.Unlock()
			open[addr] += n
			if open[addr] < 0 || open[addr] > 1 || closed {
				t.Errorf("%d checks of %s are running, topology closed: %v", open[addr], addr,
					closed)
			}
		}
		cfg := watched(cluster)
		cfg.Sink = &event.Sink{
			ServerHeartbeatStarted: func(e event.ServerHeartbeatStarted) { count(e.Address, +1) },
			ServerHeartbeatSucceeded: func(e event.ServerHeartbeatSucceeded) {
				count(e.Address, -1)
			},
			ServerHeartbeatFailed: func(e event.ServerHeartbeatFailed) { count(e.Address, -1) },
			TopologyClosed: func(event.TopologyClosed) {
				mu.Lock()
				defer mu.Unlock()
				closed = true
			},
		}
		topo := start(t, cfg)
		pass(time.Second)
		cluster.Host(0).CutConnections()
		pass(time.Second)
		cluster.Host(1).SetDown(true)
		pass(time.Second)
		begin := time.Now()
		stop(t, topo)
		if took := time.Since(begin); took != 0 {
			t.Errorf("Close took %v", took)
		}
		for addr, n := range open {
			if n != 0 {
				t.Errorf("%d checks of %s never ended", n, addr)
			}
		}
		if !closed {
			t.Error("the topology's end was not told")
		}
		for _, host := range cluster.Hosts() {
			if n := host.OpenConnections(); n != 0 {
				synctest.Wait()
				if n = host.OpenConnections(); n != 0 {
					t.Errorf("%d connections to %s are left", n, host.Address())
				}
			}
		}
	})
}

// TestRTT is the prose test "RTT tests": while a server streams, its round-trip time follows a
// connection of its own; it is kept with each reply, and a change of it is not an event.
func TestRTT(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		host := cluster.Host(0)
		cfg := watched(cluster)
		cfg.HeartbeatInterval = 500 * time.Millisecond
		cfg.Conn.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return host.Dial(ctx, network, addr)
		}
		cfg.Sink = &event.Sink{
			ServerDescriptionChanged: func(e event.ServerDescriptionChanged) {
				j.add("%v → %v", e.Previous.Kind, e.New.Kind)
			},
			CommandStarted: func(e event.CommandStarted) { j.add("command %s", e.Name) },
		}
		topo := start(t, cfg)
		defer stop(t, topo)
		pass(2 * time.Second)
		j.expect(t, "Unknown → RSPrimary")
		host.Slow(500 * time.Millisecond)
		pass(time.Minute)
		if rtt := topo.Description().Servers[0].AverageRTT; rtt < 250*time.Millisecond ||
			rtt > 500*time.Millisecond {
			t.Errorf("the average is %v, want over 250ms", rtt)
		}
		if least := topo.Description().Servers[0].MinRTT; least != 500*time.Millisecond {
			t.Errorf("the minimum of the last ten is %v, want 500ms", least)
		}
		j.expect(t)
		host.Slow(0)
		pass(time.Minute)
		if s := topo.Description().Servers[0]; s.AverageRTT > time.Millisecond || s.MinRTT != 0 {
			t.Errorf("the average is %v and the minimum %v after a minute of fast answers",
				s.AverageRTT, s.MinRTT)
		}
	})
}

// TestRTTConnectionChangesNothing breaks the connection that measures the round-trip time. It is
// made anew after an interval, without an event.
func TestRTTConnectionChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		host := cluster.Host(0)
		var mu sync.Mutex
		var dialed []net.Conn
		cfg := watched(cluster)
		cfg.Conn.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := host.Dial(ctx, network, addr)
			mu.Lock()
			defer mu.Unlock()
			dialed = append(dialed, nc)
			return nc, err
		}
		cfg.Sink = beats(&j)
		topo := start(t, cfg)
		defer stop(t, topo)
		pass(time.Second)
		synctest.Wait()
		mu.Lock()
		if len(dialed) != 2 {
			t.Fatalf("%d connections, want 2", len(dialed))
		}
		_ = dialed[1].Close() // the second is RTT's
		mu.Unlock()
		pass(10 * time.Second) // its next sample fails
		pass(10 * time.Second) // and then it dials
		synctest.Wait()
		if len(dialed) != 3 || host.OpenConnections() != 2 {
			t.Errorf("%d connections were made and %d are open, want 3 and 2", len(dialed),
				host.OpenConnections())
		}
		for _, line := range j.take() {
			if strings.Contains(line, "failed") || strings.Contains(line, "→ Unknown") {
				t.Errorf("told: %s", line)
			}
		}
	})
}

// TestManyTopologiesEnd leaves nothing behind, whatever a monitor was doing when it was stopped.
func TestManyTopologiesEnd(t *testing.T) {
	for i := range 40 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
					fakemongo.Secondary)
				cluster.Host(1).Hang(i%2 == 0)
				topo := start(t, watched(cluster))
				pass(time.Duration(i) * 333 * time.Millisecond)
				if _, err := topo.Select(t.Context(), selection.Write()); err != nil &&
					!errors.Is(err, topology.ErrClosed) {
					t.Error(err)
				}
				stop(t, topo)
				synctest.Wait()
				open := slices.Collect(func(yield func(int) bool) {
					for _, h := range cluster.Hosts() {
						if !yield(h.OpenConnections()) {
							return
						}
					}
				})
				if open[0] != 0 {
					t.Errorf("connections left: %v", open)
				}
			})
		})
	}
}

// redirect dials hosts of a cluster by other names.
func redirect(
	c *fakemongo.Cluster, names map[string]string,
) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if name, ok := names[addr]; ok {
			addr = name
		}
		return c.Dial(ctx, network, addr)
	}
}

// TestApplicationHandshakesAreChecks checks that the hello of a new connection of the pool counts
// as a check: it shows a change before the monitor does.
func TestApplicationHandshakesAreChecks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{Polled: true}, fakemongo.Primary,
			fakemongo.Secondary)
		topo := start(t, watched(cluster))
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		pass(3 * time.Second)
		cluster.Elect(cluster.Host(1))
		if err := ping(t.Context(), s); err != nil { // on a connection that is made for it
			t.Fatal(err)
		}
		if s := topo.Description().Server("a:27017"); s.Kind != description.ServerRSSecondary {
			t.Errorf("the old primary is %v", s)
		}
	})
}

// TestServerSelector is the prose test "application-provided server selector".
func TestServerSelector(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary, fakemongo.Secondary)
		cfg := watched(cluster)
		cfg.ServerSelector = func(suitable []*description.Server) []*description.Server {
			return suitable[len(suitable)-1:] // they are sorted: the greatest address
		}
		topo := start(t, cfg)
		defer stop(t, topo)
		pass(time.Second)
		for range 10 {
			s := mustSelect(t, topo,
				selection.Read(&selection.ReadPreference{Mode: selection.Nearest}))
			if s.Address() != "c:27017" {
				t.Errorf("selected %v", s.Address())
			}
		}
	})
}

func TestSelectionEventsNameTheOperation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary)
		cfg := watched(cluster)
		cfg.ServerSelectionTimeout = time.Second
		cfg.Conn.Dialer = func(ctx context.Context, network, at string) (net.Conn, error) {
			pass(time.Millisecond) // so that the first selection has to wait
			return cluster.Dial(ctx, network, at)
		}
		line := func(what string, s event.Selection) {
			j.add("%s %s %d: %s", what, s.Operation, s.OperationID, s.Selector)
		}
		cfg.Sink = &event.Sink{
			ServerSelectionStarted: func(e event.ServerSelectionStarted) {
				line("started", e.Selection)
			},
			ServerSelectionWaiting: func(e event.ServerSelectionWaiting) {
				line("waiting", e.Selection)
			},
			ServerSelectionSucceeded: func(e event.ServerSelectionSucceeded) {
				line("succeeded", e.Selection)
			},
			ServerSelectionFailed: func(e event.ServerSelectionFailed) {
				line("failed", e.Selection)
			},
		}
		topo := start(t, cfg)
		defer stop(t, topo)
		mustSelect(t, topo, selection.For(selection.Write(), "insert", 7))
		rp := &selection.ReadPreference{Mode: selection.Secondary}
		if _, err := topo.Select(t.Context(),
			selection.For(selection.Read(rp), "find", 8)); err == nil {
			t.Error("selected a secondary of a set without one")
		}
		j.expect(t, "started insert 7: writes", "waiting insert 7: writes",
			"succeeded insert 7: writes",
			"started find 8: reads with read preference secondary",
			"waiting find 8: reads with read preference secondary",
			"failed find 8: reads with read preference secondary")
	})
}
