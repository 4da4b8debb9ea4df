package description

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
)

// The wire versions that this driver speaks: MongoDB 3.6 to 8.2.
const (
	minWireVersion       = 6
	minWireVersionServer = "3.6"
	maxWireVersion       = 27

	wireVersionMongoDB42 = 8
	wireVersionMongoDB60 = 17
)

// Topology describes the deployment as its servers described it. A value that is published is never
// changed.
type Topology struct {
	Kind          Kind
	SetName       string
	MaxElectionID bson.ObjectID // zero: none yet
	MaxSetVersion *int64
	Servers       []*Server // sorted by address, each address once
	// CompatibilityError is the error of every operation; nil if all servers are compatible.
	CompatibilityError error
	// LogicalSessionTimeoutMinutes is the least of all data-bearing servers; nil: no sessions.
	LogicalSessionTimeoutMinutes *int64
	HeartbeatInterval            time.Duration // a setting; maximum staleness is reckoned with it
	seeds                        int           // how many were configured
	lastRemoval                  error         // why the server that went last was removed
}

// Settings has what the user configured about discovery.
type Settings struct {
	Seeds             []address.Address
	SetName           string // replicaSet
	Direct            bool   // directConnection
	LoadBalanced      bool
	HeartbeatInterval time.Duration
}

// New returns the topology before any server has answered: all seeds, unknown. A seed that is
// given twice is one server.
func New(s Settings) (Topology, error) {
	switch {
	case s.Direct && len(s.Seeds) > 1:
		return Topology{}, errors.New("a direct connection needs exactly one host")
	case s.LoadBalanced && len(s.Seeds) != 1:
		return Topology{}, errors.New("load balanced mode needs exactly one host")
	case s.LoadBalanced && (s.Direct || s.SetName != ""):
		return Topology{}, errors.New("load balanced mode cannot be used with a direct " +
			"connection or a replica set name")
	}
	t := Topology{
		Kind: initialKind(s), SetName: s.SetName,
		HeartbeatInterval: s.HeartbeatInterval,
	}
	for _, seed := range s.Seeds {
		t.add(seed)
	}
	t.seeds = len(t.Servers) // a seed that is given twice is one
	return t, nil
}

func initialKind(s Settings) Kind {
	switch {
	case s.LoadBalanced:
		return KindLoadBalanced
	case s.Direct:
		return KindSingle
	case s.SetName != "":
		return KindReplicaSetNoPrimary
	}
	return KindUnknown
}

// Server returns the server with that address, or nil.
func (t Topology) Server(addr address.Address) *Server {
	if i, ok := t.find(addr); ok {
		return t.Servers[i]
	}
	return nil
}

// Primary returns the primary of a replica set, or nil.
func (t Topology) Primary() *Server {
	i := slices.IndexFunc(t.Servers, func(s *Server) bool { return s.Kind == ServerRSPrimary })
	if i < 0 {
		return nil
	}
	return t.Servers[i]
}

// Deserted returns why the topology has no server, or nil if it has one. Only another lookup of
// SRV records could add a server then. The reason takes no part in equality.
func (t Topology) Deserted() error {
	switch {
	case len(t.Servers) > 0:
		return nil
	case t.lastRemoval == nil:
		return errors.New("no servers are configured")
	}
	return fmt.Errorf("no server is left: %w", t.lastRemoval)
}

// IsUsable reports whether connections to the server may be pooled: it serves documents, or the
// user configured a direct connection to it.
func (t Topology) IsUsable(addr address.Address) bool {
	s := t.Server(addr)
	return s != nil && (s.Kind.IsDataBearing() || t.Kind == KindSingle && s.IsAvailable())
}

// Equal reports whether the topologies are equal as the specification compares them. A change to
// an equal topology is not an event.
func (t Topology) Equal(o Topology) bool {
	return t.Kind == o.Kind && t.SetName == o.SetName && t.MaxElectionID == o.MaxElectionID &&
		equalPointers(t.MaxSetVersion, o.MaxSetVersion) &&
		equalPointers(t.LogicalSessionTimeoutMinutes, o.LogicalSessionTimeoutMinutes) &&
		errorText(t.CompatibilityError) == errorText(o.CompatibilityError) &&
		slices.EqualFunc(t.Servers, o.Servers,
			func(a, b *Server) bool { return a == b || a.Equal(b) })
}

// String returns one line for logs and error messages.
func (t Topology) String() string {
	servers := make([]string, len(t.Servers))
	for i, s := range t.Servers {
		servers[i] = s.String()
	}
	kind := t.Kind.String()
	if t.SetName != "" {
		kind += " " + t.SetName
	}
	return kind + " [" + strings.Join(servers, "; ") + "]"
}

// Change holds one server before and after: Previous is nil for a server that was added, Current
// for one that was removed.
type Change struct{ Previous, Current *Server }

// SideEffect returns what the shell has to do about a server that changed because of the
// description of another server, at cause: an old primary that is unknown now is checked at once.
func (c Change) SideEffect(cause address.Address) Effect {
	if c.Previous == nil || c.Current == nil || c.Current.Address == cause ||
		c.Previous.Kind != ServerRSPrimary || c.Current.Kind != ServerUnknown {
		return Effect{}
	}
	return Effect{CheckNow: true, ClearPool: c.Previous.MaxWireVersion < wireVersionMongoDB42}
}

// Changes returns the servers in which the two topologies differ, in the order of their addresses:
// added, removed, or described by another value, which may be an equal one.
func Changes(previous, current Topology) []Change {
	var all []Change
	p, c := previous.Servers, current.Servers
	for len(p) > 0 || len(c) > 0 {
		switch {
		case len(c) == 0 || len(p) > 0 && p[0].Address < c[0].Address:
			all = append(all, Change{Previous: p[0]})
			p = p[1:]
		case len(p) == 0 || c[0].Address < p[0].Address:
			all = append(all, Change{Current: c[0]})
			c = c[1:]
		default:
			if p[0] != c[0] {
				all = append(all, Change{Previous: p[0], Current: c[0]})
			}
			p, c = p[1:], c[1:]
		}
	}
	return all
}

// Rescanned returns the topology after another lookup of the SRV records that name its servers.
// Added servers are unknown.
func (t Topology) Rescanned(added, removed []address.Address) Topology {
	t.Servers = slices.Clone(t.Servers)
	for _, addr := range removed {
		t.remove(addr, fmt.Errorf("%s is no longer in the SRV records", addr))
	}
	for _, addr := range added {
		t.add(addr)
	}
	t.refresh()
	return t
}

// Measured returns the topology with other round-trip times of one server, which is no change for
// events. An unknown server has none.
func (t Topology) Measured(addr address.Address, average, least time.Duration) Topology {
	i, ok := t.find(addr)
	if !ok || !t.Servers[i].IsAvailable() {
		return t
	}
	s := *t.Servers[i]
	s.AverageRTT, s.MinRTT = average, least
	t.Servers = slices.Clone(t.Servers)
	t.Servers[i] = &s
	return t
}

// WithoutServers returns the topology of a closed driver: unknown, without servers.
func (t Topology) WithoutServers() Topology {
	return Topology{HeartbeatInterval: t.HeartbeatInterval, seeds: t.seeds}
}

// The methods below change t; they serve New, Apply and Fail, which own it.

func (t *Topology) find(addr address.Address) (int, bool) {
	return slices.BinarySearchFunc(t.Servers, addr, func(s *Server, addr address.Address) int {
		return strings.Compare(string(s.Address), string(addr))
	})
}

func (t *Topology) add(addr address.Address) {
	if i, ok := t.find(addr); !ok {
		t.Servers = slices.Insert(t.Servers, i, Unknown(addr, nil))
	}
}

func (t *Topology) replace(s *Server) {
	if i, ok := t.find(s.Address); ok {
		t.Servers[i] = s
	}
}

func (t *Topology) remove(addr address.Address, why error) {
	if i, ok := t.find(addr); ok {
		t.Servers = slices.Delete(t.Servers, i, i+1)
		t.lastRemoval = why
	}
}

// refresh computes the fields that follow from the servers.
func (t *Topology) refresh() {
	t.CompatibilityError = nil
	t.LogicalSessionTimeoutMinutes = nil
	sessions := true
	for _, s := range t.Servers {
		if err := s.compatibilityError(); err != nil && t.CompatibilityError == nil {
			t.CompatibilityError = err
		}
		if sessions && s.Kind.IsDataBearing() {
			sessions = s.LogicalSessionTimeoutMinutes != nil
			t.LogicalSessionTimeoutMinutes = lesser(t.LogicalSessionTimeoutMinutes,
				s.LogicalSessionTimeoutMinutes)
		}
	}
	if !sessions {
		t.LogicalSessionTimeoutMinutes = nil
	}
}

func lesser(a, b *int64) *int64 {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}

func (s *Server) compatibilityError() error {
	switch {
	case s.Kind == ServerUnknown || s.Kind == ServerLoadBalancer:
		return nil
	case s.MinWireVersion > maxWireVersion:
		//nolint:revive,staticcheck // the specification's words
		return fmt.Errorf("Server at %s requires wire version %d, but this version of Mooring "+
			"only supports up to %d.",
			s.Address, s.MinWireVersion, maxWireVersion)
	case s.MaxWireVersion < minWireVersion:
		//nolint:revive,staticcheck // the specification's words
		return fmt.Errorf("Server at %s reports wire version %d, but this version of Mooring "+
			"requires at least %d (MongoDB %s).",
			s.Address, s.MaxWireVersion, minWireVersion, minWireVersionServer)
	}
	return nil
}
