package app

import (
	"log/slog"

	"go.uber.org/fx"
	"google.golang.org/grpc/health"

	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/cmd/gateway/internal/ready"
	"github.com/mooringdb/mooring/core/event"
)

// observation is who hears of the driver's facts: the log and the readiness.
var observation = fx.Module("observation",
	fx.Provide(health.NewServer, newReady, newSink),
)

func newReady(server *health.Server) *ready.State { return ready.New(server, serviceNames...) }

func newSink(log *slog.Logger, state *ready.State) *event.Sink {
	panicked := func(value any, stack []byte) {
		log.Error("a listener panicked", "panic", value, "stack", string(stack))
	}
	return event.Join(panicked, logging.Sink(log), logging.Specified(log), state.Sink())
}
