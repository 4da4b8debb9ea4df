// Package keyfile keeps the handle keys of a running gateway as their file has them, so that keys are changed without a restart.
package keyfile

import (
	"context"
	"crypto/sha256"
	"log/slog"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
	"github.com/mooringdb/mooring/service/seal"
)

// Config of a Watcher.
type Config struct {
	// Path is the file; empty: there is none, and nothing is ever read.
	Path string
	// Sum is config.SumHandleKeys of the text whose keys count at the start.
	Sum [sha256.Size]byte
	// Replace puts the keys of a file that has changed in the place of those that count.
	Replace func(keys ...seal.Key) error
	Log     *slog.Logger
}

// Watcher reads the file again when it has changed. A file that cannot be used is an error in the log, once for each
// change of it, and the keys stay as they are.
type Watcher struct {
	cfg   Config
	files *watch.Watcher
	bad   string // what is wrong with the file, and has been said; of the goroutine that watches
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

// Start begins to look. ctx is for its values only; Close ends it.
func (w *Watcher) Start(ctx context.Context) error { return w.files.Start(ctx) }

// Close ends it.
func (w *Watcher) Close(ctx context.Context) error { return w.files.Close(ctx) }

// Reload looks at the file now, and says what it found even if that is nothing new.
func (w *Watcher) Reload() {
	if !w.files.Reload() {
		w.cfg.Log.Info("nothing to reload: the handle keys are in no file of their own")
	}
}

// changed uses the keys of a file. asked says that they are wanted, and that a word about them is waited for.
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
		w.cfg.Log.Error("the handle keys cannot be read: the old ones stay", "file", w.cfg.Path, "err", err)
	}
}
