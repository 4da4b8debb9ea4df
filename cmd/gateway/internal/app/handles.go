package app

import (
	"log/slog"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/handle"
)

// handles are the cursors that outlive a request.
var handles = fx.Module("handles", fx.Provide(newKeyRing, newRegistry))

func newKeyRing(cfg *config.Config, log *slog.Logger) (*handle.KeyRing, error) {
	ring, err := handle.NewKeyRing(cfg.HandleKeys...)
	if err != nil {
		return nil, &config.Error{Option: "handle.keys", Problem: err.Error()}
	}
	if ring.Ephemeral() {
		log.Warn("no handle key is configured: cursor tokens end with this process, and no other replica can open them",
			"option", "handle.keys")
	}
	return ring, nil
}

func newRegistry(lc fx.Lifecycle, cfg *config.Config, ring *handle.KeyRing, c *client.Client) *handle.Registry {
	memory := int(cfg.Cursors.PageMemory)
	if memory == 0 {
		memory = -1 // none, where 0 would be the default
	}
	r := handle.New(handle.Config{
		Keys: ring, Deployment: cfg.Deployment(),
		Idle: cfg.Cursors.Idle, PageMemory: memory, PageBytes: int(cfg.Pages.MaxSize),
		Continue: func(s cursor.State) handle.Cursor { return c.ContinueCursor(s) },
	})
	lc.Append(fx.Hook{
		OnStart: r.Start,
		OnStop:  r.Close,
	})
	return r
}
