package topology_test

import (
	"context"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestOperationsCountFromSelection checks that a selection counts for its server at once, before
// there is a connection, and until it ends in any way (SEL-045, TRAP-18).
func TestOperationsCountFromSelection(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, end := range map[string]func(*testing.T, topology.Server){
		"released": func(_ *testing.T, s topology.Server) { s.Release() },
		"check-out fails": func(t *testing.T, s topology.Server) {
			if _, err := s.CheckOut(ended); err == nil {
				t.Error("a check-out succeeded whose context has ended")
			}
		},
		"checked in": func(t *testing.T, s topology.Server) {
			if err := ping(t.Context(), s); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Mongos,
					fakemongo.Mongos)
				cfg := watched(cluster)
				// the first, but for a second with fewer operations
				cfg.Rand = func(int) int { return 0 }
				topo := start(t, cfg)
				defer stop(t, topo)
				pass(time.Second)
				choose := func(want address.Address) topology.Server {
					s := mustSelect(t, topo, selection.Write())
					if s.Address() != want {
						t.Errorf("selected %v, want %v", s.Address(), want)
					}
					return s
				}
				first, second := choose("a:27017"), choose("b:27017")
				third := choose("a:27017")
				fourth := choose("b:27017")
				end(t, second)
				fifth := choose("b:27017")
				for _, s := range []topology.Server{first, third, fourth, fifth} {
					end(t, s)
				}
				choose("a:27017").Release()
			})
		})
	}
}
