// Package keyfile keeps the handle keys of a running gateway as their file has them, so that keys are changed without a restart.
package keyfile

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/service/handle"
)

// every is how often the file is looked at. It is compared by its text: a mounted Secret changes behind a symbolic link.
const every = 5 * time.Second

// Config of a Watcher.
type Config struct {
	// Path is the file; empty: there is none, and nothing is ever read.
	Path string
	// Replace puts the keys of a file that has changed in the place of those that count.
	Replace func(keys ...handle.Key) error
	Log     *slog.Logger
}

// Watcher reads the file again when it has changed. A file that cannot be used is an error in the log, once for each change of it, and the
// keys stay as they are.
//
// One goroutine, between Start and Close, owns the fields below the configuration.
type Watcher struct {
	cfg     Config
	now     chan struct{} // asks to look now
	stop    context.CancelFunc
	running sync.WaitGroup

	seen [sha256.Size]byte // of the text that was read last
	bad  string            // what is wrong with the file, and has been said
}

// New returns a watcher. The keys that count are those of the file as it is now.
func New(cfg Config) *Watcher {
	w := &Watcher{cfg: cfg, now: make(chan struct{}, 1), stop: func() {}}
	if text, err := os.ReadFile(cfg.Path); err == nil && cfg.Path != "" {
		w.seen = sha256.Sum256(text)
	}
	return w
}

// Start begins to look. ctx is for its values only; Close ends it.
func (w *Watcher) Start(ctx context.Context) error {
	if w.cfg.Path == "" {
		return nil
	}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.running.Go(func() { w.run(ctx) })
	return nil
}

// Close ends it.
func (w *Watcher) Close(context.Context) error {
	w.stop()
	w.running.Wait()
	return nil
}

// Reload looks at the file now, and says what it found even if that is nothing new.
func (w *Watcher) Reload() {
	if w.cfg.Path == "" {
		w.cfg.Log.Info("nothing to reload: the handle keys are in no file of their own")
		return
	}
	select {
	case w.now <- struct{}{}:
	default: // it is about to
	}
}

func (w *Watcher) run(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.look(false)
		case <-w.now:
			w.look(true)
		}
	}
}

// look reads the file. asked: somebody waits for a word about it.
func (w *Watcher) look(asked bool) {
	text, err := os.ReadFile(w.cfg.Path)
	sum := sha256.Sum256(text)
	if err == nil && sum == w.seen && !asked {
		return
	}
	w.seen = sum
	var keys []handle.Key
	if err == nil {
		keys, err = config.ParseHandleKeys(text)
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
