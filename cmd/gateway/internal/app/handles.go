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
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/seal"
	"github.com/mooringdb/mooring/service/session"
)

// handles provides the cursors that outlive a request.
var handles = fx.Module("handles", fx.Provide(newKeyRing, newPager, newHandleKeys, newKeyWatcher))

func newKeyRing(cfg *config.Config, log *slog.Logger) (*seal.Ring, error) {
	ring, err := seal.NewRing(cfg.HandleKeys...)
	if err != nil {
		return nil, &config.Error{Option: "handle.keys", Problem: err.Error()}
	}
	if ring.Ephemeral() {
		log.Warn("no handle key is configured: cursor tokens end with this process, and no "+
			"other replica can open them",
			"option", "handle.keys")
	}
	return ring, nil
}

// handleKeys replaces the keys of the ring. Only the goroutine that watches the
// keys calls replace.
type handleKeys struct {
	ring      *seal.Ring
	transport *replica.Transport // nil: there are no other replicas
	log       *slog.Logger
	life      time.Duration            // of the tokens that live longest
	sealed    map[seal.KeyID]time.Time // until when keys sealed tokens that do so no more
}

func newHandleKeys(cfg *config.Config, ring *seal.Ring, transport *replica.Transport,
	log *slog.Logger,
) *handleKeys {
	return &handleKeys{
		ring: ring, transport: transport, log: log, sealed: map[seal.KeyID]time.Time{},
		life: max(cfg.Cursors.Idle, session.Life, changestream.TicketLife),
	}
}

// replace replaces the keys, and warns of tokens that end too early.
func (h *handleKeys) replace(keys []seal.Key) error {
	before := h.ring.SealerID()
	if err := h.ring.Replace(keys...); err != nil {
		return &config.Error{Option: "handle.keys", Problem: err.Error()}
	}
	if h.transport != nil {
		h.transport.KeysChanged()
	}
	now := time.Now()
	if h.ring.SealerID() != before {
		h.sealed[before] = now
	}
	for id, until := range h.sealed {
		if h.ring.Has(id) {
			continue
		}
		delete(h.sealed, id)
		if end := until.Add(h.life); now.Before(end) {
			h.log.Warn("a handle key was removed while clients may have tokens of it: their "+
				"cursors, sessions, transactions and change streams end",
				"longest", end.Sub(now))
		}
	}
	return nil
}

// newKeyWatcher keeps the ring up to date with its file.
func newKeyWatcher(
	lc fx.Lifecycle, cfg *config.Config, ring *handleKeys, log *slog.Logger,
) *keyfile.Watcher {
	var paths []string
	if path := cfg.HandleKeysFile; path != "" {
		paths = []string{path}
	}
	w := keyfile.New(keyfile.Config{
		Source: "handle_keys", Paths: paths, Sum: string(cfg.HandleKeysSum[:]), Log: log,
		Messages: keyfile.Messages{
			Read: "handle keys read", Count: "keys",
			Failed:  "the handle keys cannot be read: keeping the old ones",
			Nothing: "there is no file of handle keys to reload",
		},
		Use: func(texts []string) (int, error) {
			if err := cfg.CheckSecretFile(paths[0]); err != nil {
				return 0, err
			}
			keys, err := config.ParseHandleKeys([]byte(texts[0]))
			if err == nil {
				err = ring.replace(keys)
			}
			return len(keys), err
		},
	})
	lc.Append(fx.Hook{OnStart: w.Start, OnStop: w.Close})
	return w
}

// handOverTime limits how long the pager hands its cursors to other replicas, of the time after
// the drain.
const handOverTime = 4 * time.Second

// meetTime is how long the gateway waits for other replicas before it serves clients.
const meetTime = time.Second

func newPager(lc fx.Lifecycle, cfg *config.Config, ring *seal.Ring, c *client.Client,
	transport *replica.Transport, admitted *admission.Admission, sizes *batch.Sizes,
	log *slog.Logger,
) *paging.Pager {
	p := paging.New(paging.Config{
		Admission: admitted,
		Keys:      ring, Deployment: cfg.Deployment(),
		Idle: cfg.Cursors.Idle, UnreadIdle: cfg.Cursors.UnreadIdle,
		PageMemory:      pageMemory(cfg.Cursors.PageMemory, admitted.Bytes().Limit),
		PageBytes:       int(cfg.Pages.MaxSize),
		Sizes:           sizes,
		MaxPerPrincipal: noneIsNegative(cfg.Cursors.MaxPerPrincipal),
		Continue:        func(s cursor.State) paging.Cursor { return c.ContinueCursor(s) },
	})
	admitted.AddReclaim(p.Reclaim)
	if transport == nil {
		lc.Append(fx.Hook{OnStart: p.Start, OnStop: p.Close})
		return p
	}
	// They stop in reverse order: the ports have drained; other replicas are answered while the
	// cursors move, and not after it.
	lc.Append(fx.Hook{OnStop: p.Close})
	lc.Append(fx.Hook{OnStart: transport.Bind, OnStop: transport.Close})
	lc.Append(fx.Hook{
		OnStart: func(ctx context.Context) error {
			p.SetReplicas(transport)
			p.SetAddress(transport.Advertised())
			if err := p.Start(ctx); err != nil {
				return err
			}
			transport.Serve(p) //nolint:contextcheck // serves until Close
			ctx, cancel := context.WithTimeout(ctx, meetTime)
			defer cancel()
			transport.Met(ctx)
			return nil
		},
		OnStop: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, handOverTime)
			defer cancel()
			if err := p.Drain(ctx); err != nil {
				log.Warn("not all cursors were handed over", "err", err)
			}
			return nil
		},
	})
	return p
}

// pageMemory returns the memory for what cursors keep between two calls: at most half of the
// budget, so that there is always room for the calls that read it.
func pageMemory(configured, budget int64) int {
	if budget > 0 {
		configured = min(configured, budget/2)
	}
	return noneIsNegative(int(configured))
}

// noneIsNegative converts 0 to -1, for fields whose zero value means the default.
func noneIsNegative(n int) int {
	if n == 0 {
		return -1
	}
	return n
}
