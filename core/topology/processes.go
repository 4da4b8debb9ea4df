package topology

import (
	"slices"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
)

// maxProcesses is the number of processes of one address that are remembered.
const maxProcesses = 64

// processes remembers which processes answered at one address. topology.mu guards it.
type processes struct {
	seen []bson.ObjectID // in the order of their first answer; the last one answered last
	told bool
}

// several takes note of the process that answered. It returns true once: when a process answers
// again after another one did. A restart alone brings no old process back.
func (p *processes) several(v *description.TopologyVersion) bool {
	if v == nil || p.told || len(p.seen) > 0 && p.seen[len(p.seen)-1] == v.ProcessID {
		return false
	}
	if slices.Contains(p.seen, v.ProcessID) {
		p.told = true
		return true
	}
	p.seen = append(p.seen, v.ProcessID)
	if len(p.seen) > maxProcesses {
		p.seen = p.seen[1:]
	}
	return false
}

// noteProcess queues an event if the hello shows that several processes answer at the address.
func (t *Topology) noteProcess(srv *server, hello *description.Server) {
	if srv.processes.several(hello.TopologyVersion) {
		emit(t,
			func(s *event.Sink) func(event.SeveralProcesses) { return s.SeveralProcesses },
			event.SeveralProcesses{TopologyID: t.id, Address: srv.address})
	}
}
