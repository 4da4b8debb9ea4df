package topology

import (
	"github.com/mooringdb/mooring/core/description"
)

// Apply is what a monitor does with the outcome of a check.
func (t *Topology) Apply(s *description.Server) {
	current, _ := t.snapshot.Load()
	if srv := current.server(s.Address); srv != nil {
		t.apply(srv, s, nil)
	}
}
