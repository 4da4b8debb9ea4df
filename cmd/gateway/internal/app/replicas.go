package app

import (
	"log/slog"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/stream"
)

// replicas are the other gateways with the same keys, and the listener on which this one answers them.
var replicas = fx.Module("replicas", fx.Provide(newNode))

// newNode makes this gateway's place among its replicas; nil: it is the only one.
func newNode(cfg *config.Config, log *slog.Logger, ring *handle.KeyRing, streams *stream.Streams, failed onFailure) *replica.Node {
	if cfg.Replica.Address == "" {
		return nil
	}
	return replica.New(replica.Config{
		Keys: ring, Deployment: cfg.Deployment(), Address: cfg.Replica.Address, Advertise: cfg.Replica.Advertise, Peers: cfg.Replica.Peers,
		StallTimeout: cfg.Cursors.Idle, Streams: streams, Log: log, Failed: failed,
	})
}

// replicaAddress is where the node listens, once it does.
func replicaAddress(n *replica.Node) func() string {
	if n == nil {
		return func() string { return "" }
	}
	return n.Address
}
