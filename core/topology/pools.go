package topology

import (
	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/pool"
)

// PoolStats counts the connections of the pool of one server.
type PoolStats struct {
	Address address.Address
	pool.Stats
	Services []pool.ServiceStats // behind a load balancer: those that connections lead to
}

// Pools returns the pools by address. A server that never was usable has none.
func (t *Topology) Pools() []PoolStats {
	s, _ := t.snapshot.Load()
	var all []PoolStats
	for _, srv := range s.servers {
		if p := srv.pool.Load(); p != nil {
			all = append(all, PoolStats{
				Address: srv.address, Stats: p.Stats(),
				Services: p.Services(),
			})
		}
	}
	return all
}
