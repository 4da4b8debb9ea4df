package app

import (
	"log/slog"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/tracing"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/seal"
)

// replicas provides the connections to the other gateways with the same keys, and the listener
// for them.
var replicas = fx.Module("replicas", fx.Provide(newTransport))

// newTransport returns the transport to the other replicas; nil if there is no other.
func newTransport(cfg *config.Config, log *slog.Logger, ring *seal.Ring,
	failed onFailure, lookup lookupHost, traces *tracing.Tracing,
) *replica.Transport {
	if cfg.Replica.Address == "" {
		return nil
	}
	c := replica.Config{
		Keys: ring, Deployment: cfg.Deployment(), Address: cfg.Replica.Address,
		Advertise: cfg.Replica.Advertise, Others: cfg.Replica.Peers,
		MaxRequestSize: int(cfg.MaxRequestSize),
		StallTimeout:   cfg.Cursors.Idle, Log: log, Failed: failed,
		LookupHost: lookup, Trace: traces.GRPC(),
	}
	if traces != nil {
		c.Inject = traces.Inject
	}
	return replica.New(c)
}

// replicaAddress returns a function that returns the address of the transport once it listens.
func replicaAddress(t *replica.Transport) func() string {
	if t == nil {
		return func() string { return "" }
	}
	return t.Address
}
