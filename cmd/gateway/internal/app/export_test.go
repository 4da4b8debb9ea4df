package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/mooringdb/mooring/service/seal"
)

// NewWithLookup is New with a resolver for the names of other replicas.
var NewWithLookup = newApp

// ReplaceHandleKeys returns a function that replaces the keys of a ring as a reload does, for
// tokens that live that long.
func ReplaceHandleKeys(
	ring *seal.Ring, life time.Duration, log *slog.Logger,
) func(...seal.Key) error {
	h := &handleKeys{ring: ring, log: log, life: life, sealed: map[seal.KeyID]time.Time{}}
	return func(keys ...seal.Key) error { return h.replace(keys) }
}

// FlushAudit blocks until the lines of the audit log are written.
func (a *App) FlushAudit(ctx context.Context) error { return a.lines.Flush(ctx) }
