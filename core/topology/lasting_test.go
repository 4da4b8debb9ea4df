package topology_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestLastingDNSFailureIsPublishedOnce has DNS fail for the same reason at each check, over
// another local port each time. The description changes once.
func TestLastingDNSFailureIsPublishedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		var lookups atomic.Int64
		topo := start(t, topology.Config{
			Seeds: []address.Address{"a:27017"}, Sink: j.sink(),
			Conn: conn.Config{Dialer: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
					Err: fmt.Sprintf("read udp 10.0.0.5:%d->10.0.0.2:53: i/o timeout",
						40000+lookups.Add(1)),
					Name: "a", Server: "10.0.0.2:53", IsTimeout: true,
				}}
			}},
		})
		defer stop(t, topo)
		pass(time.Minute)
		changes := 0
		for _, line := range j.take() {
			if line == "a Unknown → Unknown" {
				changes++
			}
		}
		if n := lookups.Load(); n < 5 || changes != 1 {
			t.Errorf("%d failures published %d changes, want 1", n, changes)
		}
	})
}

// closing is a connection that calls a function when it is closed.
type closing struct {
	net.Conn
	f func()
}

func (c closing) Close() error {
	c.f()
	return c.Conn.Close()
}

// TestCancellationAsACheckBegins cancels the monitor's check while the check that begins gives up
// its old connection. The cancellation ends that check.
func TestCancellationAsACheckBegins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var topo *topology.Topology
		var cancel atomic.Bool
		var j journal
		server := fakemongo.NewServer(t, nil)
		cfg := standalone(server)
		cfg.Sink = &event.Sink{
			ServerHeartbeatSucceeded: func(event.ServerHeartbeatSucceeded) { j.add("ok") },
			ServerHeartbeatFailed: func(e event.ServerHeartbeatFailed) {
				j.add("%v", contains(e.Err, "canceled"))
			},
		}
		cfg.Conn.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := server.Dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return closing{c, func() {
				if cancel.CompareAndSwap(true, false) {
					topo.CancelCheck("a:27017")
				}
			}}, nil
		}
		topo = start(t, cfg)
		defer stop(t, topo)
		mustSelect(t, topo, selection.Write())
		settle(&j)

		cancel.Store(true)
		// no check is running: the next one begins with a new connection
		topo.CancelCheck("a:27017")
		pass(10*time.Second + time.Millisecond)
		j.expect(t, "true")
		pass(10 * time.Second)
		j.expect(t, "ok")
	})
}

// TestSeedGivenTwice checks that a seed given twice, in other letters, is one: a standalone is
// what the client is connected to, not a foreign server among several seeds.
func TestSeedGivenTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		uri, err := connstring.Parse("mongodb://a,A")
		if err != nil {
			t.Fatal(err)
		}
		cfg := standalone(fakemongo.NewServer(t, nil))
		cfg.Seeds = uri.Hosts
		topo := start(t, cfg)
		defer stop(t, topo)
		mustSelect(t, topo, selection.Write())
		if d := topo.Description(); d.Kind != description.KindSingle || len(d.Servers) != 1 {
			t.Errorf("topology = %v", d)
		}
	})
}
