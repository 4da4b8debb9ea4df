// Package keyfile keeps the handle keys of a running gateway up to date with their file, so that
// keys can change without a restart.
package keyfile

import (
	"context"
	"crypto/sha256"
	"log/slog"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
	"github.com/mooringdb/mooring/service/seal"
)

// Config says which file to watch, and what to do with its keys.
type Config struct {
	// Path names the file; if it is empty, nothing is read.
	Path string
	// Sum is config.SumHandleKeys of the text of the keys in use at the start.
	Sum [sha256.Size]byte
	// Replace replaces the keys in use by those of a file that has changed.
	Replace func(keys ...seal.Key) error
	Log     *slog.Logger
}

// Watcher reads the file again when it has changed. A file that cannot be used is logged as an
// error, once for each change of the file, and the keys stay as they are.
type Watcher struct {
	cfg   Config
	files *watch.Watcher
	bad   string // the last logged problem; belongs to the watching goroutine
}

// New returns a watcher.
func New(cfg Config) *Watcher {
	w := &Watcher{cfg: cfg}
	var paths []string
	if cfg.Path != "" {
		paths = []string{cfg.Path}
	}
	w.files = watch.New(paths, string(cfg.Sum[:]), w.changed)
	return w
}

// Start begins to watch. It uses only the values of ctx; Close ends the watching.
func (w *Watcher) Start(ctx context.Context) error { return w.files.Start(ctx) }

// Close stops the watcher and waits for its goroutine.
func (w *Watcher) Close(ctx context.Context) error { return w.files.Close(ctx) }

// Reload reads the file now, and logs the result even if nothing has changed.
func (w *Watcher) Reload() {
	if !w.files.Reload() {
		w.cfg.Log.Info("nothing to reload: the handle keys are in no file of their own")
	}
}

// changed uses the keys of a file. If asked is set, it logs the result in any case.
func (w *Watcher) changed(texts []string, err error, asked bool) {
	var keys []seal.Key
	if err == nil {
		keys, err = config.ParseHandleKeys([]byte(texts[0]))
	}
	if err == nil {
		err = w.cfg.Replace(keys...)
	}
	switch {
	case err == nil:
		w.bad = ""
		w.cfg.Log.Info("handle keys read", "file", w.cfg.Path, "keys", len(keys))
	case err.Error() != w.bad || asked:
		w.bad = err.Error()
		w.cfg.Log.Error("the handle keys cannot be read: the old ones stay", "file", w.cfg.Path,
			"err", err)
	}
}
