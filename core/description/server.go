// Package description describes a deployment as immutable values. Server is one server, as one
// hello described it; Topology is all of them. Apply folds the outcome of a check into a
// Topology, and Fail an application's error (Server Discovery and Monitoring). Everything here is
// pure: no clock, no lock, no goroutine, no I/O.
package description

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
)

// Server describes one server as one hello described it. A value that is published is never
// changed, so pointers to it may be shared. The zero value of a field means that the server did not
// state it.
type Server struct {
	Address   address.Address
	Kind      ServerKind
	LastError error // why it is unknown

	SetName                   string
	SetVersion                *int64
	ElectionID                bson.ObjectID
	Me, Primary               address.Address
	Hosts, Passives, Arbiters []address.Address // sets: sorted, without duplicates
	Tags                      TagSet

	MinWireVersion, MaxWireVersion int32
	MaxBSONObjectSize              int32
	MaxMessageSize                 int32
	MaxWriteBatchSize              int32
	LogicalSessionTimeoutMinutes   *int64
	TopologyVersion                *TopologyVersion
	HelloOK                        bool
	IsCryptd                       bool
	ServiceID                      bson.ObjectID // set behind a load balancer
	// ConnectionID is the server's number of the connection that had the hello.
	ConnectionID int64

	// What follows says when and how fast, not what: it takes no part in equality.

	AverageRTT, MinRTT time.Duration
	LastUpdateTime     time.Time
	LastWriteDate      time.Time
	// OpTime is lastWrite.opTime, whose type depends on the version of the server; zero if absent.
	OpTime bson.Value
}

// Unknown returns a server of which only an error is known, if err is not nil.
func Unknown(addr address.Address, err error) *Server {
	return &Server{Address: addr, LastError: err}
}

// LoadBalancer returns the description of a load balancer, of which only the address is known.
func LoadBalancer(addr address.Address) *Server {
	return &Server{Address: addr, Kind: ServerLoadBalancer}
}

// IsAvailable reports whether the last check of the server succeeded (spec: "available").
func (s *Server) IsAvailable() bool { return s.Kind != ServerUnknown }

// SupportsSessions reports whether commands to the server may carry an lsid.
func (s *Server) SupportsSessions() bool {
	return s.Kind == ServerLoadBalancer || s.LogicalSessionTimeoutMinutes != nil
}

// Equal reports whether the descriptions are equal as the specification compares them. A change to
// an equal description is not an event.
func (s *Server) Equal(o *Server) bool {
	return s.Address == o.Address && s.Kind == o.Kind &&
		errorText(s.LastError) == errorText(o.LastError) &&
		s.MinWireVersion == o.MinWireVersion && s.MaxWireVersion == o.MaxWireVersion &&
		s.Me == o.Me &&
		slices.Equal(s.Hosts, o.Hosts) && slices.Equal(s.Passives, o.Passives) &&
		slices.Equal(s.Arbiters, o.Arbiters) &&
		slices.Equal(s.Tags, o.Tags) && s.SetName == o.SetName &&
		equalPointers(s.SetVersion, o.SetVersion) &&
		s.ElectionID == o.ElectionID && s.Primary == o.Primary &&
		equalPointers(s.LogicalSessionTimeoutMinutes, o.LogicalSessionTimeoutMinutes) &&
		equalPointers(s.TopologyVersion, o.TopologyVersion) && s.IsCryptd == o.IsCryptd
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func equalPointers[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// String returns one line for logs and error messages.
func (s *Server) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", s.Address, s.Kind)
	if s.AverageRTT > 0 {
		fmt.Fprintf(&b, ", rtt %v", s.AverageRTT.Round(time.Microsecond))
	}
	if len(s.Tags) > 0 {
		fmt.Fprintf(&b, ", tags %v", s.Tags)
	}
	if s.LastError != nil {
		fmt.Fprintf(&b, ", last error: %v", s.LastError)
	}
	return b.String()
}

// members returns all hosts of the replica set that the server reported.
func (s *Server) members() []address.Address {
	return slices.Concat(s.Hosts, s.Passives, s.Arbiters)
}

// TopologyVersion counts the changes of one process of a server.
type TopologyVersion struct {
	ProcessID bson.ObjectID
	Counter   int64
}

// Compare returns -1 if next is newer than v or may be, 0 if they are the same, and 1 if next is
// older. Without a version on either side, or after a restart of the server, next counts as newer.
func (v *TopologyVersion) Compare(next *TopologyVersion) int {
	switch {
	case v == nil || next == nil || v.ProcessID != next.ProcessID, v.Counter < next.Counter:
		return -1
	case v.Counter > next.Counter:
		return 1
	}
	return 0
}

// Tag holds one name and value of a server's tags or of a tag set in a read preference.
type Tag struct{ Name, Value string }

// TagSet holds a set of tags, sorted by name.
type TagSet []Tag

// NewTagSet returns the set of the tags.
func NewTagSet(tags ...Tag) TagSet {
	set := TagSet(slices.Clone(tags))
	slices.SortFunc(set, func(a, b Tag) int { return strings.Compare(a.Name, b.Name) })
	return set
}

// ContainsAll reports whether every tag of want is in the set. The empty want is in every set.
func (t TagSet) ContainsAll(want TagSet) bool {
	for _, tag := range want {
		if !slices.Contains(t, tag) {
			return false
		}
	}
	return true
}

// String returns {a: b, c: d}.
func (t TagSet) String() string {
	parts := make([]string, len(t))
	for i, tag := range t {
		parts[i] = tag.Name + ": " + tag.Value
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func compareElectionIDs(a, b bson.ObjectID) int { return bytes.Compare(a[:], b[:]) }
