package operation

import (
	"slices"

	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/selection"
)

// wireVersion50 is the first whose secondaries run $out and $merge.
const wireVersion50 = 13

// output selects for $out and $merge: by the read preference, unless a server is known that is too
// old for these on a secondary. Then it is the primary's (CRUD, "Read Preferences and Server
// Selection" of aggregate). It serves one operation.
type output struct {
	preference *selection.ReadPreference
	used       *selection.ReadPreference // by the last Select
}

func (o *output) String() string { return selection.Read(o.preference).String() }

func (o *output) Select(
	t description.Topology, candidates []*description.Server,
) ([]*description.Server, error) {
	o.used = o.preference
	if t.Kind != description.KindLoadBalanced && slices.ContainsFunc(t.Servers, tooOldForOutput) {
		o.used = nil
	}
	return selection.Read(o.used).Select(t, candidates)
}

func tooOldForOutput(s *description.Server) bool {
	return s.IsAvailable() && s.MaxWireVersion < wireVersion50
}
