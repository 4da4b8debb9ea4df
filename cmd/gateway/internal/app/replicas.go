package app

import (
	"log/slog"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/seal"
	"github.com/mooringdb/mooring/service/stream"
)

// replicas are the other gateways with the same keys, and the listener on which this one answers them.
var replicas = fx.Module("replicas", fx.Provide(newTransport))

// newTransport returns the way to the other replicas; nil: this is the only one.
func newTransport(cfg *config.Config, log *slog.Logger, ring *seal.Ring, streams *stream.Streams, failed onFailure, lookup lookupHost) *replica.Transport {
	if cfg.Replica.Address == "" {
		return nil
	}
	return replica.New(replica.Config{
		Keys: ring, Deployment: cfg.Deployment(), Address: cfg.Replica.Address, Advertise: cfg.Replica.Advertise, Others: cfg.Replica.Peers,
		StallTimeout: cfg.Cursors.Idle, Streams: streams, Log: log, Failed: failed, LookupHost: lookup,
	})
}

// replicaAddress returns where the transport listens, once it does.
func replicaAddress(t *replica.Transport) func() string {
	if t == nil {
		return func() string { return "" }
	}
	return t.Address
}
