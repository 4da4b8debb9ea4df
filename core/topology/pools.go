package topology

import (
	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/pool"
)

// PoolStats counts what the pool of one server has.
type PoolStats struct {
	Address address.Address
	pool.Stats
	Services []pool.ServiceStats // behind a load balancer: those that connections lead to
}

// Pools are the pools that there are, by address. A server that was never of use has none.
func (t *Topology) Pools() []PoolStats {
	s, _ := t.snapshot.Load()
	var all []PoolStats
	for _, srv := range s.servers {
		if p := srv.pool.Load(); p != nil {
			all = append(all, PoolStats{Address: srv.address, Stats: p.Stats(), Services: p.Services()})
		}
	}
	return all
}
