// Package selection chooses servers (Server Selection, Max Staleness): first those that suit an
// operation, then the near ones, then one. Everything here is pure. Package topology waits for a
// suitable server.
package selection

import (
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/description"
)

// Selector finds the servers that suit an operation.
type Selector interface {
	// Select returns the candidates that suit, in their order. It changes neither argument. An
	// error means that no change of the topology could help.
	Select(t description.Topology, candidates []*description.Server) ([]*description.Server, error)

	// String names the purpose in errors and logs, as in "no servers are suitable for writes".
	String() string
}

// Write returns a Selector of the servers that accept writes.
func Write() Selector { return write{} }

type write struct{}

func (write) String() string { return "writes" }

func (write) Select(
	t description.Topology, candidates []*description.Server,
) ([]*description.Server, error) {
	if t.Kind.IsReplicaSet() {
		return ofKind(candidates, description.ServerRSPrimary), nil
	}
	return outsideReplicaSet(t.Kind, candidates), nil
}

// Read returns a Selector of the servers that the read preference allows; nil is primary. The
// caller must not change rp afterwards.
func Read(rp *ReadPreference) Selector { return read{rp} }

type read struct{ preference *ReadPreference }

func (r read) String() string { return "reads with read preference " + r.preference.String() }

func (r read) Select(
	t description.Topology, candidates []*description.Server,
) ([]*description.Server, error) {
	if !t.Kind.IsReplicaSet() {
		return outsideReplicaSet(t.Kind, candidates), nil
	}
	if err := r.preference.Validate(); err != nil {
		return nil, err
	}
	if err := r.preference.checkStaleness(t.HeartbeatInterval); err != nil {
		return nil, err
	}
	return readers[r.preference.mode()](r.preference, t, candidates), nil
}

// readers has the algorithm of each mode.
var readers = [numModes]reader{
	Primary:            onlyPrimary,
	Secondary:          secondaries,
	PrimaryPreferred:   either(onlyPrimary, secondaries),
	SecondaryPreferred: either(secondaries, onlyPrimary),
	Nearest:            members,
}

// reader selects among candidates for a mode.
type reader func(
	rp *ReadPreference, t description.Topology, candidates []*description.Server,
) []*description.Server

func onlyPrimary(
	_ *ReadPreference, _ description.Topology, c []*description.Server,
) []*description.Server {
	return ofKind(c, description.ServerRSPrimary)
}

func secondaries(
	rp *ReadPreference, t description.Topology, c []*description.Server,
) []*description.Server {
	return rp.narrow(t, ofKind(c, description.ServerRSSecondary))
}

func members(
	rp *ReadPreference, t description.Topology, c []*description.Server,
) []*description.Server {
	return rp.narrow(t, filter(c, func(s *description.Server) bool {
		return s.Kind == description.ServerRSPrimary || s.Kind == description.ServerRSSecondary
	}))
}

// either returns a reader that selects as first does or, if that finds none, as second does.
func either(first, second reader) reader {
	return func(
		rp *ReadPreference, t description.Topology, c []*description.Server,
	) []*description.Server {
		if found := first(rp, t, c); len(found) > 0 {
			return found
		}
		return second(rp, t, c)
	}
}

// outsideReplicaSet returns every available server: outside of replica sets all suit every
// operation, and a mongos applies the read preference itself.
func outsideReplicaSet(
	kind description.Kind, candidates []*description.Server,
) []*description.Server {
	switch kind {
	case description.KindSingle, description.KindLoadBalanced:
		return filter(candidates, (*description.Server).IsAvailable)
	case description.KindSharded:
		return ofKind(candidates, description.ServerMongos)
	default:
		return nil
	}
}

// Address returns a Selector of one server of any kind, such as the server that holds a cursor.
func Address(addr address.Address) Selector { return byAddress(addr) }

type byAddress address.Address

func (a byAddress) String() string { return "commands to " + string(a) }

func (a byAddress) Select(
	_ description.Topology, candidates []*description.Server,
) ([]*description.Server, error) {
	return filter(candidates, func(s *description.Server) bool {
		return s.Address == address.Address(a) && s.IsAvailable()
	}), nil
}

// Func returns a Selector that is made of a function. Its String returns name.
func Func(
	name string, choose func(description.Topology, []*description.Server) []*description.Server,
) Selector {
	return custom{name, choose}
}

type custom struct {
	name   string
	choose func(description.Topology, []*description.Server) []*description.Server
}

func (c custom) String() string { return c.name }

func (c custom) Select(
	t description.Topology, candidates []*description.Server,
) ([]*description.Server, error) {
	return c.choose(t, candidates), nil
}

// narrow returns the servers that are fresh enough and, of them, those that match the first tag
// set that any of them matches.
func (rp *ReadPreference) narrow(
	t description.Topology, candidates []*description.Server,
) []*description.Server {
	if rp.limitsStaleness() {
		candidates = rp.fresh(t, candidates)
	}
	if !rp.hasTags() {
		return candidates
	}
	for _, want := range rp.TagSets {
		match := filter(candidates, func(s *description.Server) bool {
			return s.Tags.ContainsAll(want)
		})
		if len(match) > 0 {
			return match
		}
	}
	return nil
}

// fresh returns the servers whose estimated staleness is within the limit. Only secondaries can be
// stale.
func (rp *ReadPreference) fresh(
	t description.Topology, candidates []*description.Server,
) []*description.Server {
	estimate := staleness(t)
	return filter(candidates, func(s *description.Server) bool {
		if s.Kind != description.ServerRSSecondary {
			return true
		}
		return !s.LastWriteDate.IsZero() && estimate(s)+t.HeartbeatInterval <= rp.maxStaleness()
	})
}

// staleness returns a function that estimates how far a secondary is behind the primary or,
// without a primary, behind the secondary with the newest write.
func staleness(t description.Topology) func(*description.Server) time.Duration {
	if p := t.Primary(); p != nil {
		lag := p.LastUpdateTime.Sub(p.LastWriteDate)
		return func(s *description.Server) time.Duration {
			return s.LastUpdateTime.Sub(s.LastWriteDate) - lag
		}
	}
	var newest time.Time
	for _, s := range t.Servers {
		if s.Kind == description.ServerRSSecondary && s.LastWriteDate.After(newest) {
			newest = s.LastWriteDate
		}
	}
	return func(s *description.Server) time.Duration { return newest.Sub(s.LastWriteDate) }
}

// InWindow returns the servers whose average round-trip time is within threshold of the least.
func InWindow(suitable []*description.Server, threshold time.Duration) []*description.Server {
	if len(suitable) < 2 {
		return suitable
	}
	least := suitable[0].AverageRTT
	for _, s := range suitable[1:] {
		least = min(least, s.AverageRTT)
	}
	return filter(suitable, func(s *description.Server) bool {
		return s.AverageRTT <= least+threshold
	})
}

// Choose returns one of the servers, or nil of none. It draws two different servers with random,
// which returns a number below n, and returns the one with fewer operations. So load spreads, and
// callers do not all go to the idlest server at once.
func Choose(
	servers []*description.Server, operations func(*description.Server) int64,
	random func(n int) int,
) *description.Server {
	switch len(servers) {
	case 0:
		return nil
	case 1:
		return servers[0]
	}
	i, j := random(len(servers)), random(len(servers)-1)
	if j >= i {
		j++
	}
	if operations(servers[j]) < operations(servers[i]) {
		return servers[j]
	}
	return servers[i]
}

func ofKind(servers []*description.Server, kind description.ServerKind) []*description.Server {
	return filter(servers, func(s *description.Server) bool { return s.Kind == kind })
}

// filter returns the servers to keep and never changes its argument. If all are kept, it returns
// servers itself and allocates nothing.
func filter(
	servers []*description.Server, keep func(*description.Server) bool,
) []*description.Server {
	for i, s := range servers {
		if !keep(s) {
			return filterFrom(servers, i, keep)
		}
	}
	return servers
}

func filterFrom(
	servers []*description.Server, first int, keep func(*description.Server) bool,
) []*description.Server {
	kept := append(make([]*description.Server, 0, len(servers)-1), servers[:first]...)
	for _, s := range servers[first+1:] {
		if keep(s) {
			kept = append(kept, s)
		}
	}
	return kept
}
