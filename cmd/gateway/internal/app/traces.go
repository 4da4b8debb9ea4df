package app

import (
	"context"
	"log/slog"
	"time"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/build"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/tracing"
)

// newTracing returns what makes traces; nil if there are none. It is closed after all that has
// spans has stopped.
func newTracing(lc fx.Lifecycle, cfg *config.Config, log *slog.Logger) (*tracing.Tracing, error) {
	t, err := tracing.New(context.Background(), tracing.Config{
		Version: build.Version(), Sampling: cfg.Tracing.Sampling, Log: log,
	})
	if err != nil {
		return nil, err
	}
	lc.Append(fx.Hook{OnStop: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lastSpansTime)
		defer cancel()
		if err := t.Close(ctx); err != nil {
			log.Warn("traces are lost", "err", err)
		}
		return nil
	}})
	return t, nil
}

// lastSpansTime limits how long the last spans may take to reach the collector.
const lastSpansTime = 2 * time.Second
