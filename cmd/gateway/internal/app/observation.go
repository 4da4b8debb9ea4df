package app

import (
	"log/slog"

	"go.uber.org/fx"
	"google.golang.org/grpc/health"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/debugging"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/cmd/gateway/internal/ready"
	"github.com/mooringdb/mooring/cmd/gateway/internal/sink"
	"github.com/mooringdb/mooring/core/event"
)

// observation is who hears of the driver's facts: the log, the readiness and the counts of the debug port.
var observation = fx.Module("observation",
	fx.Provide(health.NewServer, newReady, newPools, newSink),
)

func newReady(server *health.Server) *ready.State { return ready.New(server, serviceNames...) }

func newPools() *debugging.Pools { return &debugging.Pools{} }

func newSink(cfg *config.Config, log *slog.Logger, state *ready.State, pools *debugging.Pools) *event.Sink {
	sinks := []*event.Sink{logging.Sink(log), logging.Specified(log), state.Sink()}
	if cfg.DebugAddress != "" { // else nobody sees the counts, and every check-out would pay for them
		sinks = append(sinks, pools.Sink())
	}
	return sink.Join(sinks...)
}
