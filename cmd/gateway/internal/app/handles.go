package app

import (
	"context"
	"log/slog"
	"time"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/keyfile"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/replica"
)

// handles are the cursors that outlive a request.
var handles = fx.Module("handles", fx.Provide(newKeyRing, newRegistry, newKeyWatcher))

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

// newKeyWatcher keeps the ring as its file is.
func newKeyWatcher(lc fx.Lifecycle, cfg *config.Config, ring *handle.KeyRing, node *replica.Node, log *slog.Logger) *keyfile.Watcher {
	w := keyfile.New(keyfile.Config{Path: cfg.HandleKeysFile, Sum: cfg.HandleKeysSum, Log: log, Replace: func(keys ...handle.Key) error {
		err := ring.Replace(keys...)
		if node != nil {
			node.KeysChanged()
		}
		return err
	}})
	lc.Append(fx.Hook{OnStart: w.Start, OnStop: w.Close})
	return w
}

// handOverTime is what the registry has to hand its cursors to another replica, out of the time that there is after the drain.
const handOverTime = 4 * time.Second

func newRegistry(lc fx.Lifecycle, cfg *config.Config, ring *handle.KeyRing, c *client.Client, node *replica.Node, log *slog.Logger) *handle.Registry {
	r := handle.New(handle.Config{
		Keys: ring, Deployment: cfg.Deployment(),
		Idle: cfg.Cursors.Idle, PageMemory: noneIsNegative(int(cfg.Cursors.PageMemory)), PageBytes: int(cfg.Pages.MaxSize),
		MaxPerPrincipal: noneIsNegative(cfg.Cursors.MaxPerPrincipal),
		Continue:        func(s cursor.State) handle.Cursor { return c.ContinueCursor(s) },
	})
	if node == nil {
		lc.Append(fx.Hook{OnStart: r.Start, OnStop: r.Close})
		return r
	}
	// Stopped in reverse: the ports have drained, others are still answered while the cursors move, then nobody is.
	lc.Append(fx.Hook{OnStop: r.Close})
	lc.Append(fx.Hook{OnStart: node.Bind, OnStop: node.Close})
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			r.SetPeers(node)
			r.SetAddress(node.Advertised())
			if err := r.Start(ctx); err != nil {
				return err
			}
			node.Serve(r) //nolint:contextcheck // it serves until Close, not until the start is over
			return nil
		},
		OnStop: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, handOverTime)
			defer cancel()
			if err := r.Drain(ctx); err != nil {
				log.Warn("not all cursors were handed over", "err", err)
			}
			return nil
		},
	})
	return r
}

// noneIsNegative is for fields where 0 would be the default.
func noneIsNegative(n int) int {
	if n == 0 {
		return -1
	}
	return n
}
