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

// every is how often the file is looked at. It is compared by its text: a mounted Secret changes behind a symbolic link. What has changed
// counts when two looks have found the same: a file that is just being written may have a part of its keys.
const every = 5 * time.Second

// Config of a Watcher.
type Config struct {
	// Path is the file; empty: there is none, and nothing is ever read.
	Path string
	// Sum is config.SumHandleKeys of the text whose keys count at the start.
	Sum [sha256.Size]byte
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

	used finding // what was done about it
	last finding // of the last look
	bad  string  // what is wrong with the file, and has been said
}

// finding is what one look has found.
type finding struct {
	sum [sha256.Size]byte // of the text
	err string            // the file could not be read
}

// New returns a watcher.
func New(cfg Config) *Watcher {
	begin := finding{sum: cfg.Sum}
	return &Watcher{cfg: cfg, now: make(chan struct{}, 1), stop: func() {}, used: begin, last: begin}
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

// look reads the file. asked: somebody says that it is as it should be, and waits for a word about it.
func (w *Watcher) look(asked bool) {
	text, err := os.ReadFile(w.cfg.Path)
	now, before := finding{sum: config.SumHandleKeys(text)}, w.last
	if err != nil {
		now.err = err.Error()
	}
	w.last = now
	if (now == w.used || now != before) && !asked {
		return
	}
	w.used = now
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
