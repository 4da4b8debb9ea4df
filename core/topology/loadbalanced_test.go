package topology_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/event/eventlog"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func behindBalancer(b *fakemongo.Balanced) topology.Config {
	return topology.Config{
		Seeds: []address.Address{b.Address()}, LoadBalanced: true,
		Conn: conn.Config{Dialer: b.Dial},
	}
}

// TestLoadBalancedEvents expects the specified events, in their order, and no others: a load
// balancer is not monitored (LB-004 to LB-006). Its pool is ready without a check (LB-008).
func TestLoadBalancedEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		balanced := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Strict: true})
		cfg := behindBalancer(balanced)
		cfg.Sink = j.sink()
		topo := start(t, cfg)
		j.expect(t, "topology opening", "topology Unknown/0 → LoadBalanced/1", "balancer opening",
			"balancer pool created",
			"balancer Unknown → LoadBalancer", "topology LoadBalanced/1 → LoadBalanced/1",
			"balancer pool ready")
		pass(time.Minute)
		for _, s := range balanced.Services() {
			if n := s.AcceptedConnections(); n != 0 {
				t.Errorf("%d connections without an operation", n)
			}
		}
		for _, sel := range []selection.Selector{ // LB-010
			selection.Write(), selection.Read(nil), selection.Read(&selection.ReadPreference{Mode: selection.Secondary}),
			selection.Deprioritize(selection.Write(), "balancer:27017"),
		} {
			s := mustSelect(t, topo, sel)
			if s.TopologyKind() != description.KindLoadBalanced ||
				s.Description().Kind != description.ServerLoadBalancer {
				t.Errorf("selected %v in %v", s.Description(), s.TopologyKind())
			}
			if err := ping(t.Context(), s); err != nil {
				t.Error(err)
			}
		}
		j.expect(t)
		stop(t, topo)
		j.expect(t, "balancer pool closed", "balancer closed",
			"topology LoadBalanced/1 → Unknown/0", "topology closed")
	})
}

// TestLoadBalancedLog checks the log messages of the same events (LB-007).
func TestLoadBalancedLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var got []string
		cfg := behindBalancer(fakemongo.NewBalanced(t, fakemongo.BalancedConfig{}))
		cfg.Sink = eventlog.Sink(eventlog.Config{
			Components: []eventlog.Component{eventlog.Topology},
			Write:      func(m eventlog.Message) { got = append(got, m.Message) },
		})
		topo := start(t, cfg)
		stop(t, topo)
		if want := []string{
			"Starting topology monitoring", "Topology description changed", "Starting server monitoring", "Topology description changed",
			"Stopped server monitoring", "Topology description changed", "Stopped topology monitoring",
		}; !slices.Equal(got, want) {
			t.Errorf("messages: %q, want %q", got, want)
		}
	})
}

// services is two connections behind a load balancer, one to each of two services, both in use.
type services struct {
	balanced *fakemongo.Balanced
	topology *topology.Topology
	server   topology.Server
	conns    [2]*pool.Conn[*conn.Conn] // to the service of the same number
	journal  journal
}

func startServices(t *testing.T) *services {
	t.Helper()
	s := &services{balanced: fakemongo.NewBalanced(t, fakemongo.BalancedConfig{})}
	cfg := behindBalancer(s.balanced)
	cfg.Sink = &event.Sink{
		TopologyDescriptionChanged: func(event.TopologyDescriptionChanged) {
			s.journal.add("topology changed")
		},
		ServerDescriptionChanged: func(event.ServerDescriptionChanged) {
			s.journal.add("server changed")
		},
		PoolCleared: func(e event.PoolCleared) {
			s.journal.add("cleared %s", s.name(e.ServiceID))
		},
		ConnectionClosed: func(e event.ConnectionClosed) {
			s.journal.add("closed %d: %s", e.ConnectionID, e.Reason)
		},
	}
	topo := start(t, cfg)
	t.Cleanup(func() { stop(t, topo) })
	s.topology = topo
	for i := range s.conns {
		s.server = mustSelect(t, topo, selection.Write())
		c, err := s.server.CheckOut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.Service() != s.balanced.Service(i).ID() {
			t.Fatalf("connection %d leads to %x", i, c.Service())
		}
		s.conns[i] = c
	}
	s.journal.take()
	return s
}

func (s *services) name(id pool.ServiceID) string {
	for i, service := range s.balanced.Services() {
		if service.ID() == id {
			return fmt.Sprint("service ", i)
		}
	}
	return fmt.Sprintf("%x", id)
}

// TestLoadBalancedErrors checks that errors after the handshake clear the connections to the same
// service, where the specification wants that, and change nothing in the description (LB-051,
// LB-052).
func TestLoadBalancedErrors(t *testing.T) {
	network := func(err error) error { return &mongoerr.NetworkError{Op: "read", Err: err} }
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"network error":       {network(io.ErrUnexpectedEOF), []string{"cleared service 0", "closed 1: stale"}},
		"shutdown":            {&mongoerr.CommandError{Code: 91}, []string{"cleared service 0", "closed 1: stale"}},
		"network timeout":     {network(timeoutError{}), nil},
		"not primary":         {&mongoerr.CommandError{Code: 10107}, nil},
		"any other error":     {&mongoerr.CommandError{Code: 11000}, nil},
		"the end of the call": {network(context.Canceled), nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := startServices(t)
				s.server.CheckIn(s.conns[0], test.err)
				s.server.CheckIn(s.conns[1], nil)
				synctest.Wait()
				s.journal.expect(t, test.want...)
			})
		})
	}
}

// timeoutError is a deadline that the network has missed.
type timeoutError struct{}

func (timeoutError) Error() string { return "timeout" }
func (timeoutError) Timeout() bool { return true }

// TestLoadBalancedErrorOfAnOldGeneration checks that an error is stale by the generation of its own
// service.
func TestLoadBalancedErrorOfAnOldGeneration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startServices(t)
		broken := &mongoerr.NetworkError{Op: "read", Err: errors.New("reset")}
		s.server.Fail(s.conns[0], broken)
		s.journal.expect(t, "cleared service 0")
		s.server.Fail(s.conns[0], broken)
		s.journal.expect(t) // it is known already
		s.server.Fail(s.conns[1], broken)
		s.journal.expect(t, "cleared service 1") // which the other's clear has not made old
		for _, c := range s.conns {
			s.server.CheckIn(c, nil)
		}
	})
}

// TestLoadBalancedErrorsBeforeHello breaks connections before their hello says which service they
// lead to. No pool is cleared, and the next attempt may lead to another service (LB-050).
func TestLoadBalancedErrorsBeforeHello(t *testing.T) {
	for name, test := range map[string]struct {
		hello fakemongo.Handler
		want  string
	}{
		"network error": {fakemongo.Always(fakemongo.Drop()), "network error on balancer:27017 (hello)"},
		"timeout":       {fakemongo.Always(fakemongo.Hang()), "network error on balancer:27017 (hello)"},
		"command error": {fakemongo.Always(fakemongo.Error(91, "ShutdownInProgress", "bye")), "bye"},
		"no serviceId":  {fakemongo.Always(fakemongo.OK(nil)), "Driver attempted to initialize in load balancing mode, but the server does not support this mode."},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var j journal
				balanced := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{})
				balanced.Service(0).Handle("hello", test.hello)
				cfg := behindBalancer(balanced)
				cfg.Conn.ConnectTimeout = time.Second
				sink := j.sink()
				sink.ConnectionClosed = func(e event.ConnectionClosed) {
					j.add("closed: %s", e.Reason)
				}
				sink.ConnectionCheckOutFailed = func(e event.ConnectionCheckOutFailed) {
					j.add("failed: %s", e.Reason)
				}
				cfg.Sink = sink
				topo := start(t, cfg)
				defer stop(t, topo)
				s := mustSelect(t, topo, selection.Write())
				j.take()
				if err := ping(t.Context(), s); err == nil || !contains(err, test.want) {
					t.Errorf("ping = %v, want %q", err, test.want)
				}
				j.expect(t, "closed: error", "failed: connectionError")
				if err := ping(t.Context(), mustSelect(t, topo, selection.Write())); err != nil {
					t.Errorf("the next attempt = %v", err)
				}
			})
		})
	}
}

// TestPins checks that pinned connections are counted by purpose and bounded, and that the
// statistics have them (LB-030).
func TestPins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := behindBalancer(fakemongo.NewBalanced(t, fakemongo.BalancedConfig{}))
		cfg.Pool.MaxPinned = 1
		topo := start(t, cfg)
		defer stop(t, topo)
		s := mustSelect(t, topo, selection.Write())
		var conns []*pool.Conn[*conn.Conn]
		for range 2 {
			c, err := s.CheckOut(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		if err := s.Pin(conns[0], pool.PurposeCursor); err != nil {
			t.Error(err)
		}
		if e, ok := errors.AsType[*pool.PinLimitError](s.Pin(conns[1], pool.PurposeCursor)); !ok ||
			e.Max != 1 {
			t.Errorf("a second pin = %v, want the limit", e)
		}
		stats := topo.Pools()
		if len(stats) != 1 || stats[0].Address != "balancer:27017" || stats[0].InUse != 2 ||
			stats[0].Cursors != 1 || stats[0].State != pool.StateReady {
			t.Errorf("pools = %+v", stats)
		}
		for _, c := range conns {
			s.CheckIn(c, nil)
		}
		if stats := topo.Pools(); stats[0].Cursors != 0 {
			t.Errorf("after the return: %+v", stats)
		}
	})
}

// TestPoolsTellOfServices checks that the pool's statistics say how many connections lead to each
// service.
func TestPoolsTellOfServices(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := startServices(t)
		want := map[pool.ServiceID]int{s.balanced.Service(0).ID(): 1, s.balanced.Service(1).ID(): 1}
		pools := s.topology.Pools()
		if len(pools) != 1 || len(pools[0].Services) != 2 {
			t.Fatalf("Pools() = %+v, want one with two services", pools)
		}
		for _, service := range pools[0].Services {
			if service.Connections != want[service.Service] {
				t.Errorf("Pools() has %+v", service)
			}
		}
		for _, c := range s.conns {
			s.server.CheckIn(c, nil)
		}
	})
}
