package selection

import (
	"slices"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/description"
)

// Deprioritize returns a Selector that selects as sel does, but among the servers at other
// addresses than these. If none of those suits, it selects among all servers. It applies the whole
// of sel to each list, so that a read with primaryPreferred goes to a secondary before it goes to
// a deprioritized primary (Server Selection, "Server Selection Algorithm").
func Deprioritize(sel Selector, servers ...address.Address) Selector {
	if len(servers) == 0 {
		return sel
	}
	return deprioritize{sel, servers}
}

type deprioritize struct {
	Selector
	last []address.Address
}

func (d deprioritize) Select(
	t description.Topology, candidates []*description.Server,
) ([]*description.Server, error) {
	others := filter(candidates, func(s *description.Server) bool {
		return !slices.Contains(d.last, s.Address)
	})
	if found, err := d.Selector.Select(t, others); err != nil || len(found) > 0 {
		return found, err
	}
	return d.Selector.Select(t, candidates)
}

// HasReadable reports whether a server is known that a read with that preference could go to
// (spec: hasReadableServer).
func HasReadable(t description.Topology, rp *ReadPreference) bool { return has(Read(rp), t) }

// HasWritable reports whether a server is known that a write could go to (spec:
// hasWritableServer).
func HasWritable(t description.Topology) bool { return has(Write(), t) }

func has(sel Selector, t description.Topology) bool {
	found, err := sel.Select(t, t.Servers)
	return err == nil && len(found) > 0
}

// For returns a Selector that selects as sel does and names its operation, for the events of the
// selection. id is the same for all commands of one operation.
func For(sel Selector, operation string, id int64) Selector {
	return forOperation{sel, operation, id}
}

type forOperation struct {
	Selector
	operation string
	id        int64
}

// Operation returns what For was given for sel, or zero values.
func Operation(sel Selector) (name string, id int64) {
	if f, ok := sel.(forOperation); ok {
		return f.operation, f.id
	}
	return "", 0
}
