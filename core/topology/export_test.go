package topology

import (
	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/description"
)

// IsOfCredential is what the pool of a server asks.
var IsOfCredential = isOfCredential

// Apply is what a monitor does with the outcome of a check.
func (t *Topology) Apply(s *description.Server) {
	current, _ := t.snapshot.Load()
	if srv := current.server(s.Address); srv != nil {
		t.apply(srv, s, nil)
	}
}

// CancelCheck is what an application's network error does to the monitor of a server.
func (t *Topology) CancelCheck(addr address.Address) {
	current, _ := t.snapshot.Load()
	if srv := current.server(addr); srv != nil {
		srv.monitor.cancelCheck()
	}
}
