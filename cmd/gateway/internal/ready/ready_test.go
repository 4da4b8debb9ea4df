package ready_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mooringdb/mooring/cmd/gateway/internal/ready"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
)

const service = "mooring.v1.DocumentService"

func topology(kind description.Kind, servers ...description.ServerKind) description.Topology {
	t := description.Topology{Kind: kind}
	for _, k := range servers {
		t.Servers = append(t.Servers, &description.Server{Kind: k})
	}
	return t
}

func expect(t *testing.T, what string, s *ready.State, h *health.Server, want bool) {
	t.Helper()
	if err := s.Ready(t.Context()); (err == nil) != want {
		t.Errorf("%s: Ready = %v, want ready %v", what, err, want)
	}
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if want {
		status = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range []string{"", service} {
		r, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || r.Status != status {
			t.Errorf("%s: Check(%q) = %v, %v, want %v", what, name, r, err, status)
		}
	}
}

func TestReady(t *testing.T) {
	incompatible := topology(description.KindSingle, description.ServerStandalone)
	incompatible.CompatibilityError = errors.New("too old")
	for _, row := range []struct {
		name     string
		topology description.Topology
		want     bool
	}{
		{"nothing known", topology(description.KindUnknown, description.ServerUnknown), false},
		{"standalone", topology(description.KindSingle, description.ServerStandalone), true},
		{"standalone that is down", topology(description.KindSingle, description.ServerUnknown), false},
		{"direct connection to an arbiter", topology(description.KindSingle, description.ServerRSArbiter), true},
		{"incompatible", incompatible, false},
		{"primary", topology(description.KindReplicaSetWithPrimary, description.ServerUnknown, description.ServerRSPrimary), true},
		{"secondary", topology(description.KindReplicaSetNoPrimary, description.ServerRSSecondary), true},
		{"arbiter", topology(description.KindReplicaSetNoPrimary, description.ServerRSArbiter), false},
		{"mongos", topology(description.KindSharded, description.ServerMongos), true},
		{"load balancer", topology(description.KindLoadBalanced, description.ServerLoadBalancer), true},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := health.NewServer()
			s := ready.New(h, service)
			expect(t, "at the start", s, h, false)
			tell := s.Sink().TopologyDescriptionChanged
			tell(event.TopologyDescriptionChanged{New: row.topology})
			expect(t, "described", s, h, row.want)
			s.Stop()
			expect(t, "stopped", s, h, false)
			tell(event.TopologyDescriptionChanged{New: row.topology})
			expect(t, "described after the stop", s, h, false)
		})
	}
}
