package app

import (
	"log/slog"

	"go.uber.org/fx"
	"google.golang.org/grpc/health"

	"github.com/mooringdb/mooring/cmd/gateway/internal/build"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/cmd/gateway/internal/login"
	"github.com/mooringdb/mooring/cmd/gateway/internal/metrics"
	"github.com/mooringdb/mooring/cmd/gateway/internal/ready"
	"github.com/mooringdb/mooring/core/event"
)

// observation provides the listeners of the driver's events: the log and the readiness.
var observation = fx.Module("observation",
	fx.Provide(health.NewServer, newReady, newLogin, newMetrics, newSink),
)

func newReady(server *health.Server) *ready.State { return ready.New(server, serviceNames...) }

func newLogin(cfg *config.Config, log *slog.Logger, state *ready.State) *login.Login {
	l := login.New(cfg, log, state.Changed)
	state.SetLogin(l.Err)
	return l
}

func newMetrics() *metrics.Metrics { return metrics.New(build.Version()) }

func newSink(log *slog.Logger, state *ready.State, l *login.Login) *event.Sink {
	panicked := func(value any, stack []byte) {
		log.Error("a listener panicked", "panic", value, "stack", string(stack))
	}
	return event.Join(panicked, logging.Sink(log), logging.Specified(log), state.Sink(), l.Sink())
}
