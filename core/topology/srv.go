package topology

import (
	"context"
	"math/rand/v2"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/seedlist"
)

// poll looks the SRV records up until ctx ends, or until the deployment is of a kind that reports
// its servers itself (Polling SRV Records).
func (t *Topology) poll(ctx context.Context) {
	p := *t.cfg.SRV
	p.Wanted = func() bool { return isPolled(t.Description().Kind) }
	p.Found = t.rescan
	p.Problem = func(err error) {
		emit(t,
			func(s *event.Sink) func(event.SeedlistProblem) { return s.SeedlistProblem },
			event.SeedlistProblem{TopologyID: t.id, Host: p.Config.SRVHost, Err: err})
		t.outbox.Deliver()
	}
	p.Run(ctx)
}

func isPolled(kind description.Kind) bool {
	return kind == description.KindUnknown || kind == description.KindSharded
}

// rescan makes the servers those that the SRV records name. Servers that stay are not touched.
func (t *Topology) rescan(hosts []address.Address) {
	t.mu.Lock()
	current, _ := t.snapshot.Load()
	if t.state != stateRunning || !isPolled(current.topology.Kind) {
		t.mu.Unlock()
		return
	}
	change := &change{topology: t}
	known := make([]address.Address, 0, len(current.servers))
	for _, s := range current.servers {
		known = append(known, s.address)
	}
	limit := 0
	if most := t.cfg.SRV.Config.SRVMaxHosts; most != nil {
		limit = int(*most)
	}
	add, remove := seedlist.Changes(known, hosts, limit, rand.Shuffle)
	if len(add)+len(remove) > 0 {
		change.publishLocked(current, current.topology.Rescanned(add, remove), "")
	}
	change.unlock()
}
