package app

import (
	"log/slog"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/event"
)

// deployment is the client of the MongoDB deployment.
var deployment = fx.Module("deployment", fx.Provide(newClient))

func newClient(lc fx.Lifecycle, cfg *config.Config, log *slog.Logger, sink *event.Sink) (*client.Client, error) {
	c, err := client.New(cfg.MongoDB, client.Options{Sink: sink, MaxPinnedShare: cfg.Cursors.MaxPinned})
	if err != nil {
		return nil, &config.Error{Option: "uri", Problem: err.Error()}
	}
	for _, w := range c.Warnings() {
		log.Warn("connection string", "option", w.Option, "problem", w.Problem)
	}
	lc.Append(fx.Hook{
		OnStart: c.Start,
		OnStop:  c.Close,
	})
	return c, nil
}
