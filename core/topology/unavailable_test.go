package topology_test

import (
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestCancellationOfAStreamIsNotLost breaks an application's connection 200 times, while the
// server's next reply comes at about the same moment. The monitor closes its connection each time
// (SMON-037).
func TestCancellationOfAStreamIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{Discard: true},
			fakemongo.Primary)
		host := cluster.Host(0)
		topo := start(t, watched(cluster))
		defer stop(t, topo)
		for i := range 200 {
			s := mustSelect(t, topo, selection.Write())
			if err := ping(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
			synctest.Wait()
			before := host.AcceptedConnections()
			host.Handle("ping",
				fakemongo.Times(1, fakemongo.Always(fakemongo.Drop()), host.Default))
			go host.SetTags("n", strconv.Itoa(i))
			if err := ping(t.Context(), s); !mongoerr.IsNetwork(err) {
				t.Fatalf("ping = %v", err)
			}
			pass(11 * time.Second)
			synctest.Wait()
			if n := host.AcceptedConnections() - before; n != 2 {
				t.Fatalf("attempt %d: %d new connections, want two: the monitor's, and the one "+
					"that measures RTT beside it", i, n)
			}
		}
	})
}

// TestReplyBeforeAFailureIsNoNews checks that a check whose reply came before an application's
// network error, and is applied after it, changes nothing: it says how the server was before that.
func TestReplyBeforeAFailureIsNoNews(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := fakemongo.NewServer(t, nil)
		var hold atomic.Bool
		replied, release := make(chan struct{}), make(chan struct{})
		cfg := standalone(server)
		cfg.Sink = &event.Sink{ServerHeartbeatSucceeded: func(event.ServerHeartbeatSucceeded) {
			if hold.CompareAndSwap(true, false) {
				close(replied)
				<-release
			}
		}}
		topo := start(t, cfg)
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		c, err := s.CheckOut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		hold.Store(true)
		<-replied
		go s.CheckIn(c,
			&mongoerr.NetworkError{Address: "a:27017", Op: "read", Err: errors.New("reset")})
		synctest.Wait()
		unknown := topo.Description().Servers[0]
		if unknown.IsAvailable() {
			t.Fatalf("the server is %v", unknown)
		}
		close(release)
		synctest.Wait()
		if now := topo.Description().Servers[0]; now != unknown {
			t.Errorf("the reply to an earlier check made the server %v", now)
		}
		began := time.Now()
		mustSelect(t, topo, selection.Write()) // which asks for a check
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("the server was known again after %v, want the least interval", took)
		}
	})
}

// TestOldHandshakeIsNoCheck checks that the hello of a connection that was begun before its pool
// was cleared changes nothing: it says how the server was before that.
func TestOldHandshakeIsNoCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := fakemongo.NewServer(t, nil)
		topo := start(t, standalone(server))
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		first, err := s.CheckOut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Second) // the monitor rests
		server.Handle("isMaster", func(cmd *fakemongo.Command) fakemongo.Reply {
			return server.Default(cmd).After(2 * time.Second)
		})
		go func() { _ = ping(t.Context(), s) }() // on a new connection
		pass(time.Second)
		s.CheckIn(first,
			&mongoerr.NetworkError{Address: "a:27017", Op: "read", Err: errors.New("reset")})
		unknown := topo.Description().Servers[0]
		if unknown.IsAvailable() {
			t.Fatalf("the server is %v", unknown)
		}
		pass(2 * time.Second)
		synctest.Wait()
		if now := topo.Description().Servers[0]; now != unknown {
			t.Errorf("an old connection's hello made the server %v", now)
		}
	})
}

// TestOlderHandshakeRevertsNothing checks a server before 4.4, whose hellos are not in an order
// that they tell themselves: that of a connection which was begun before the newest check, or
// before an error that does not clear the pool, is no news.
func TestOlderHandshakeRevertsNothing(t *testing.T) {
	for name, checked := range map[string]bool{"before a check": true, "before an error": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server := fakemongo.NewServer(t,
					fakemongo.Handlers{"hello": member("primary", "a:27017")})
				cfg := standalone(server)
				cfg.DirectConnection, cfg.ReplicaSet = false, "rs"
				topo := start(t, cfg)
				defer stop(t, topo)
				s := mustSelect(t, topo, selection.Write())
				first, err := s.CheckOut(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				pass(time.Second) // the monitor rests
				server.Handle("isMaster", func(cmd *fakemongo.Command) fakemongo.Reply {
					return member("primary", "a:27017")(cmd).After(2 * time.Second)
				})
				// on a new connection
				go func() { _ = ping(t.Context(), mustSelect(t, topo, selection.Write())) }()
				pass(time.Second)
				server.Handle("hello", member("secondary", "a:27017"))
				if !checked {
					server.Handle("hello", fakemongo.Always(fakemongo.Hang()))
				}
				s.CheckIn(first, &mongoerr.CommandError{Code: 10107, Address: "a:27017"})
				synctest.Wait()
				newest := topo.Description().Servers[0]
				want := description.ServerUnknown
				if checked {
					want = description.ServerRSSecondary
				}
				if newest.Kind != want {
					t.Fatalf("the server is %v, want %v", newest, want)
				}
				pass(2 * time.Second)
				synctest.Wait()
				if now := topo.Description().Servers[0]; now.Kind != newest.Kind {
					t.Errorf("an older hello made the server %v", now)
				}
			})
		})
	}
}

// TestMonitorWithoutTimeLimit checks that connectTimeoutMS=0 limits neither the handshake nor the
// checks after it.
func TestMonitorWithoutTimeLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		server := fakemongo.NewServer(t, nil)
		slow := func(cmd *fakemongo.Command) fakemongo.Reply {
			return server.Default(cmd).After(10 * time.Minute)
		}
		server.Handle("hello", slow)
		server.Handle("isMaster", slow)
		cfg := standalone(server)
		cfg.Conn.ConnectTimeout = -1
		cfg.Sink = beats(&j)
		topo := start(t, cfg)
		defer stop(t, topo)
		pass(10*time.Minute + time.Millisecond)
		j.expect(t, "a started", "a succeeded after 10m0s", "a Unknown → Standalone",
			"a pool ready")
		pass(10*time.Second + 10*time.Minute)
		j.expect(t, "a started", "a succeeded after 10m0s")
	})
}

// TestSocketTimeoutIsNotForMonitors (OPT-030, SMON-004).
func TestSocketTimeoutIsNotForMonitors(t *testing.T) {
	for name, polled := range map[string]bool{"streaming": false, "polling": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var j journal
				cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{Polled: polled},
					fakemongo.Primary)
				host := cluster.Host(0)
				host.Slow(200 * time.Millisecond)
				cfg := watched(cluster)
				cfg.Conn.SocketTimeout = 100 * time.Millisecond
				cfg.Sink = beats(&j)
				topo := start(t, cfg)
				defer stop(t, topo)
				pass(time.Minute)
				synctest.Wait()
				for _, line := range j.take() {
					if line == "a pool cleared" {
						t.Error("a check was cut off")
					}
				}
				host.Handle("ping", fakemongo.Always(fakemongo.Hang()))
				begin := time.Now()
				if err := ping(t.Context(),
					mustSelect(t, topo, selection.Write())); !mongoerr.IsTimeout(err) {
					t.Errorf("ping = %v", err)
				}
				if took := time.Since(begin); took > 400*time.Millisecond { // and the handshake
					t.Errorf("an operation was cut off after %v", took)
				}
			})
		})
	}
}

// TestRoundTripTimeBeginsAnew checks that the average of before a server was unavailable does not
// count any more (SMON-053), and that a server that streams does not count as the fastest until it
// is measured.
func TestRoundTripTimeBeginsAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary)
		host := cluster.Host(0)
		host.Slow(100 * time.Millisecond)
		topo := start(t, watched(cluster))
		defer stop(t, topo)
		pass(35 * time.Second)
		average := func() time.Duration { return topo.Description().Server("a:27017").AverageRTT }
		if rtt := average(); rtt != 100*time.Millisecond {
			t.Fatalf("the average is %v", rtt)
		}
		s := mustSelect(t, topo, selection.Write())
		host.Handle("ping",
			fakemongo.Always(fakemongo.Error(10107, "NotWritablePrimary", "not primary")))
		if err := ping(t.Context(), s); !mongoerr.IsNotWritablePrimary(err) {
			t.Fatalf("ping = %v", err)
		}
		if rtt := average(); rtt != 0 {
			t.Errorf("the average of an unknown server is %v", rtt)
		}
		host.Slow(20 * time.Millisecond)
		host.SetTags("news", "yes") // which the stream tells
		pass(30 * time.Millisecond)
		synctest.Wait()
		if known := topo.Description().
			Server("a:27017"); known.Kind != description.ServerRSPrimary ||
			known.AverageRTT != 100*time.Millisecond {
			t.Errorf("before it was measured again the server is %v", known)
		}
		pass(11 * time.Second)
		if rtt := average(); rtt != 20*time.Millisecond {
			t.Errorf("the average is %v, want that of the samples since: 20ms", rtt)
		}
	})
}

// TestSelectionGoesByTheNewestRoundTripTime checks that selection uses the newest average, also if
// nothing else changes, and that the change causes no event (SMON-056).
func TestSelectionGoesByTheNewestRoundTripTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Mongos,
			fakemongo.Mongos)
		cfg := watched(cluster)
		cfg.HeartbeatInterval = time.Minute // of streamed replies, too
		topo := start(t, cfg)
		defer stop(t, topo)
		pass(time.Second)
		_, changed := topo.Watch()
		cluster.Host(1).Slow(time.Second)
		begin := time.Now()
		for topo.Description().Server("b:27017").AverageRTT == 0 {
			<-changed
			_, changed = topo.Watch()
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("the new round-trip time was known after %v", took)
		}
		for range 20 {
			if s := mustSelect(t, topo, selection.Write()); s.Address() != "a:27017" {
				t.Fatalf("selected the slow %v", s.Description())
			}
		}
	})
}
