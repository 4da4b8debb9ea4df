package operation_test

import (
	"context"
	"testing"

	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/selection"
)

// deployed selects the first server that suits, as a topology would.
type deployed struct {
	fake
	topology description.Topology
}

func (d *deployed) Select(_ context.Context, sel selection.Selector) (operation.Server, error) {
	found, err := sel.Select(d.topology, d.topology.Servers)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	d.kind, d.description = d.topology.Kind, *found[0]
	return d, nil
}

// SEL-021: $out and $merge go by the read preference, unless an available server is too old for
// that. What is sent is what was used.
func TestOutputGoesByReadPreference(t *testing.T) {
	type servers = []*description.Server
	server := func(kind description.ServerKind, wire int32) *description.Server {
		return &description.Server{Kind: kind, MaxWireVersion: wire}
	}
	const (
		primary, secondary = description.ServerRSPrimary, description.ServerRSSecondary
		mongos             = description.ServerMongos
	)
	tests := []struct {
		name    string
		kind    description.Kind
		servers servers
		want    description.ServerKind
		sent    string // the mode
	}{
		{"5.0", description.KindReplicaSetWithPrimary, servers{server(primary, 13), server(secondary, 13)}, secondary, "secondary"},
		{"4.4", description.KindReplicaSetWithPrimary, servers{server(primary, 9), server(secondary, 9)}, primary, ""},
		{"an old secondary", description.KindReplicaSetWithPrimary, servers{server(primary, 13), server(secondary, 13), server(secondary, 12)}, primary, ""},
		{"an unknown server", description.KindReplicaSetWithPrimary, servers{server(primary, 13), server(secondary, 13), server(description.ServerUnknown, 0)}, secondary, "secondary"},
		{"no primary", description.KindReplicaSetNoPrimary, servers{server(secondary, 21)}, secondary, "secondary"},
		{"mongos 5.0", description.KindSharded, servers{server(mongos, 13)}, mongos, "secondary"},
		{"mongos 4.4 beside 5.0", description.KindSharded, servers{server(mongos, 13), server(mongos, 9)}, mongos, ""},
		{"load balancer", description.KindLoadBalanced, servers{server(description.ServerLoadBalancer, 0)}, description.ServerLoadBalancer, "secondary"},
		{"standalone", description.KindSingle, servers{server(description.ServerStandalone, 21)}, description.ServerStandalone, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := &deployed{topology: description.Topology{Kind: tt.kind, Servers: tt.servers}}
			_, err := (&operation.Runner{Deployment: d}).Run(t.Context(), &operation.Operation{
				Database: "db", Command: command{}, Kind: operation.Output,
				ReadPreference: &selection.ReadPreference{Mode: selection.Secondary},
			})
			if err != nil || d.description.Kind != tt.want {
				t.Errorf("Run() = %v on a %v, want a %v", err, d.description.Kind, tt.want)
			}
			var mode string
			if v, ok := d.sent[0].Body.Lookup("$readPreference"); ok {
				rp, _ := v.Document()
				m, _ := rp.Lookup("mode")
				mode, _ = m.Str()
			}
			if mode != tt.sent {
				t.Errorf("sent the mode %q, want %q", mode, tt.sent)
			}
		})
	}
}
