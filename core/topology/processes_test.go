package topology_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestSeveralProcessesAtOneAddress connects through a balancer without loadBalanced=true. It is an
// event once, and none for one server, nor for a server that restarts.
func TestSeveralProcessesAtOneAddress(t *testing.T) {
	for name, test := range map[string]struct {
		host func(dials int, restarted bool) int // that the balancer leads a connection to
		want []string
	}{
		"one server": {func(int, bool) int { return 0 }, nil},
		"a restart": {func(_ int, restarted bool) int {
			if restarted {
				return 1
			}
			return 0
		}, nil},
		"a balancer": {func(n int, _ bool) int { return n % 2 }, []string{"several at balancer:27017"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var j journal
				var dials atomic.Int64
				var restarted atomic.Bool
				cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Mongos,
					fakemongo.Mongos)
				topo := start(t, topology.Config{
					Seeds: []address.Address{"balancer:27017"},
					Pool:  topology.PoolConfig{MinSize: 5},
					Conn: conn.Config{Dialer: func(
						ctx context.Context, network, addr string,
					) (net.Conn, error) {
						return cluster.Host(test.host(int(dials.Add(1)), restarted.Load())).
							Dial(ctx, network, addr)
					}},
					Sink: &event.Sink{SeveralProcesses: func(e event.SeveralProcesses) {
						j.add("several at %s", e.Address)
					}},
				})
				defer stop(t, topo)
				mustSelect(t, topo, selection.Write()).Release()
				pass(time.Minute)
				restarted.Store(true)
				cluster.Host(0).CutConnections()
				pass(time.Minute)
				j.expect(t, test.want...)
			})
		})
	}
}
