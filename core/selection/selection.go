// Package selection chooses servers (Server Selection, Max Staleness): which ones suit an operation, which of those are
// near, and which one of them it gets. Everything here is pure; waiting for a suitable server is package topology's.
package selection

import (
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/description"
)

// Selector finds the servers that suit an operation.
type Selector interface {
	// Select returns those of the candidates that suit, in their order; it changes neither argument. An error means that
	// no change of the topology could help.
	Select(t description.Topology, candidates []*description.Server) ([]*description.Server, error)

	// String says what for, in errors and logs, as in "no servers are suitable for writes".
	String() string
}

// Write selects the servers that take writes.
func Write() Selector { return write{} }

type write struct{}

func (write) String() string { return "writes" }

func (write) Select(t description.Topology, candidates []*description.Server) ([]*description.Server, error) {
	if t.Kind.IsReplicaSet() {
		return ofKind(candidates, description.ServerRSPrimary), nil
	}
	return outsideReplicaSet(t.Kind, candidates), nil
}

// Read selects the servers that the read preference allows; nil is primary. rp must not change afterwards.
func Read(rp *ReadPreference) Selector { return read{rp} }

type read struct{ preference *ReadPreference }

func (r read) String() string { return "reads with read preference " + r.preference.String() }

func (r read) Select(t description.Topology, candidates []*description.Server) ([]*description.Server, error) {
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

// readers are the modes' algorithms.
var readers = [numModes]func(*ReadPreference, description.Topology, []*description.Server) []*description.Server{
	Primary:   onlyPrimary,
	Secondary: secondaries,
	PrimaryPreferred: func(rp *ReadPreference, t description.Topology, c []*description.Server) []*description.Server {
		return either(onlyPrimary(rp, t, c), func() []*description.Server { return secondaries(rp, t, c) })
	},
	SecondaryPreferred: func(rp *ReadPreference, t description.Topology, c []*description.Server) []*description.Server {
		return either(secondaries(rp, t, c), func() []*description.Server { return onlyPrimary(rp, t, c) })
	},
	Nearest: func(rp *ReadPreference, t description.Topology, c []*description.Server) []*description.Server {
		return rp.narrow(t, filter(c, func(s *description.Server) bool {
			return s.Kind == description.ServerRSPrimary || s.Kind == description.ServerRSSecondary
		}))
	},
}

func onlyPrimary(_ *ReadPreference, _ description.Topology, c []*description.Server) []*description.Server {
	return ofKind(c, description.ServerRSPrimary)
}

func secondaries(rp *ReadPreference, t description.Topology, c []*description.Server) []*description.Server {
	return rp.narrow(t, ofKind(c, description.ServerRSSecondary))
}

func either(first []*description.Server, second func() []*description.Server) []*description.Server {
	if len(first) > 0 {
		return first
	}
	return second()
}

// outsideReplicaSet: every server that there is suits every operation; read preferences are the mongos's business.
func outsideReplicaSet(kind description.Kind, candidates []*description.Server) []*description.Server {
	switch kind {
	case description.KindSingle, description.KindLoadBalanced:
		return filter(candidates, (*description.Server).IsAvailable)
	case description.KindSharded:
		return ofKind(candidates, description.ServerMongos)
	default:
		return nil
	}
}

// Address selects one server, whatever it is: the one that holds a cursor.
func Address(addr address.Address) Selector { return byAddress(addr) }

type byAddress address.Address

func (a byAddress) String() string { return "commands to " + string(a) }

func (a byAddress) Select(_ description.Topology, candidates []*description.Server) ([]*description.Server, error) {
	return filter(candidates, func(s *description.Server) bool {
		return s.Address == address.Address(a) && s.IsAvailable()
	}), nil
}

// Func is a Selector made of a function. Its name is what String gives.
func Func(name string, choose func(description.Topology, []*description.Server) []*description.Server) Selector {
	return custom{name, choose}
}

type custom struct {
	name   string
	choose func(description.Topology, []*description.Server) []*description.Server
}

func (c custom) String() string { return c.name }

func (c custom) Select(t description.Topology, candidates []*description.Server) ([]*description.Server, error) {
	return c.choose(t, candidates), nil
}

// narrow leaves the servers that are fresh enough and, of them, those that match the first tag set that any matches.
func (rp *ReadPreference) narrow(t description.Topology, candidates []*description.Server) []*description.Server {
	if rp.limitsStaleness() {
		candidates = rp.fresh(t, candidates)
	}
	if !rp.hasTags() {
		return candidates
	}
	for _, want := range rp.TagSets {
		match := filter(candidates, func(s *description.Server) bool { return s.Tags.ContainsAll(want) })
		if len(match) > 0 {
			return match
		}
	}
	return nil
}

// fresh leaves the servers whose estimated staleness is within the limit. Only secondaries can be stale.
func (rp *ReadPreference) fresh(t description.Topology, candidates []*description.Server) []*description.Server {
	estimate := staleness(t)
	return filter(candidates, func(s *description.Server) bool {
		if s.Kind != description.ServerRSSecondary {
			return true
		}
		return !s.LastWriteDate.IsZero() && estimate(s)+t.HeartbeatInterval <= rp.maxStaleness()
	})
}

// staleness estimates how far a secondary is behind: behind the primary, or without one, behind the secondary that
// has the newest write.
func staleness(t description.Topology) func(*description.Server) time.Duration {
	if p := t.Primary(); p != nil {
		lag := p.LastUpdateTime.Sub(p.LastWriteDate)
		return func(s *description.Server) time.Duration { return s.LastUpdateTime.Sub(s.LastWriteDate) - lag }
	}
	var newest time.Time
	for _, s := range t.Servers {
		if s.Kind == description.ServerRSSecondary && s.LastWriteDate.After(newest) {
			newest = s.LastWriteDate
		}
	}
	return func(s *description.Server) time.Duration { return newest.Sub(s.LastWriteDate) }
}

// InWindow leaves the servers that answer about as fast as the fastest: within threshold of its average.
func InWindow(suitable []*description.Server, threshold time.Duration) []*description.Server {
	if len(suitable) < 2 {
		return suitable
	}
	least := suitable[0].AverageRTT
	for _, s := range suitable[1:] {
		least = min(least, s.AverageRTT)
	}
	return filter(suitable, func(s *description.Server) bool { return s.AverageRTT <= least+threshold })
}

// Choose picks one of the servers, nil of none: of two different ones, drawn by random (a number below n), the one
// with the fewer operations. That spreads load without herding all callers onto the idlest server.
func Choose(
	servers []*description.Server, operations func(*description.Server) int64, random func(n int) int,
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

// filter never changes servers, and returns them as they are where all stay: the common case costs no memory.
func filter(servers []*description.Server, keep func(*description.Server) bool) []*description.Server {
	for i, s := range servers {
		if !keep(s) {
			return filterFrom(servers, i, keep)
		}
	}
	return servers
}

func filterFrom(servers []*description.Server, first int, keep func(*description.Server) bool) []*description.Server {
	kept := append(make([]*description.Server, 0, len(servers)-1), servers[:first]...)
	for _, s := range servers[first+1:] {
		if keep(s) {
			kept = append(kept, s)
		}
	}
	return kept
}
