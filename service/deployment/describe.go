package deployment

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// describe returns a topology as clients see it.
func describe(t description.Topology) *mooringv1.TopologyDescription {
	d := &mooringv1.TopologyDescription{
		Kind: t.Kind.String(), SetName: known(valid(t.SetName)),
		CompatibilityError:           known(rpcerr.Text(t.CompatibilityError)),
		LogicalSessionTimeoutMinutes: t.LogicalSessionTimeoutMinutes,
		Servers:                      make([]*mooringv1.ServerDescription, len(t.Servers)),
	}
	for i, s := range t.Servers {
		d.Servers[i] = describeServer(s)
	}
	return d
}

func describeServer(s *description.Server) *mooringv1.ServerDescription {
	d := &mooringv1.ServerDescription{
		Address: valid(string(s.Address)), Kind: s.Kind.String(),
		LastError: known(rpcerr.Text(s.LastError)),
		SetName:   known(valid(s.SetName)), SetVersion: s.SetVersion,
		ElectionId: known(hex(s.ElectionID)), Primary: known(valid(string(s.Primary))),
		Hosts: addresses(s.Hosts), Passives: addresses(s.Passives),
		Arbiters: addresses(s.Arbiters), Tags: tags(s.Tags),
		MaxBsonObjectSize:            known(s.MaxBSONObjectSize),
		MaxMessageSizeBytes:          known(s.MaxMessageSize),
		MaxWriteBatchSize:            known(s.MaxWriteBatchSize),
		LogicalSessionTimeoutMinutes: s.LogicalSessionTimeoutMinutes,
		AverageRttMicros:             known(s.AverageRTT.Microseconds()),
		MinRttMicros:                 known(s.MinRTT.Microseconds()),
		LastUpdateTime:               timestamp(s.LastUpdateTime),
		LastWriteDate:                timestamp(s.LastWriteDate),
	}
	if s.MaxBSONObjectSize > 0 {
		// The server has answered a hello. Its oldest wire version may be 0.
		d.MinWireVersion, d.MaxWireVersion = &s.MinWireVersion, &s.MaxWireVersion
	}
	if v := s.TopologyVersion; v != nil {
		d.TopologyVersion = &mooringv1.TopologyVersion{
			ProcessId: v.ProcessID.Hex(), Counter: v.Counter,
		}
	}
	return d
}

// known returns a pointer to v, or nil for the zero value: the server has not reported it.
func known[T comparable](v T) *T {
	var unset T
	if v == unset {
		return nil
	}
	return &v
}

// valid returns s as valid UTF-8, which a proto string needs. Texts of servers are not checked
// before.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func hex(id bson.ObjectID) string {
	if id.IsZero() {
		return ""
	}
	return id.Hex()
}

func addresses(list []address.Address) []string {
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = valid(string(a))
	}
	return texts
}

func tags(set description.TagSet) map[string]string {
	m := make(map[string]string, len(set))
	for _, t := range set {
		m[valid(t.Name)] = valid(t.Value)
	}
	return m
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t.Truncate(time.Millisecond))
}
