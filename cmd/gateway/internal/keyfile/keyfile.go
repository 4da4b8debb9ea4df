// Package keyfile keeps the keys and certificates of a running gateway up to date with their files,
// so that they can change without a restart.
package keyfile

import (
	"context"
	"log/slog"

	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
)

// Config says which files to watch, and what to do with their texts.
type Config struct {
	// Source names the files in metrics, in constant words.
	Source string
	// Paths names the files; if there are none, nothing is read.
	Paths []string
	// Sum is watch.Sum of the texts in use at the start.
	Sum string
	// Use replaces what is in use by what the texts of files that have changed say. It returns
	// the number that is logged as Messages.Count. After an error the old ones stay in use, and it
	// is called again at each interval until it succeeds.
	Use func(texts []string) (int, error)
	Messages
	Log *slog.Logger
}

// Messages holds what is logged, in constant words.
type Messages struct {
	Read    string // the files were read and are in use
	Count   string // the name of the number that Use returns, such as keys
	Failed  string // they cannot be used
	Nothing string // a reload is asked for, and there are no files
}

// Watcher reads the files again when they have changed. Files that cannot be used are logged as an
// error, once for each change.
type Watcher struct {
	cfg   Config
	files *watch.Watcher
	bad   string // the last logged problem; belongs to the watching goroutine
}

// New returns a watcher.
func New(cfg Config) *Watcher {
	w := &Watcher{cfg: cfg}
	w.files = watch.New(cfg.Paths, cfg.Sum, w.changed)
	return w
}

// Start begins to watch. It uses only the values of ctx; Close ends the watching.
func (w *Watcher) Start(ctx context.Context) error { return w.files.Start(ctx) }

// Close stops the watcher and waits for its goroutine.
func (w *Watcher) Close(ctx context.Context) error { return w.files.Close(ctx) }

// Source returns the name of the files in metrics.
func (w *Watcher) Source() string { return w.cfg.Source }

// Outcome says whether the texts of the files are in use. It reports false if there are no files.
func (w *Watcher) Outcome() (watch.Outcome, bool) { return w.files.Outcome() }

// Reload reads the files now, and logs the result even if nothing has changed.
func (w *Watcher) Reload() {
	if !w.files.Reload() && w.cfg.Nothing != "" {
		w.log(slog.LevelInfo, w.cfg.Nothing)
	}
}

// changed uses the texts of the files, and reports whether they can be used. If asked is set, it
// logs the result in any case.
func (w *Watcher) changed(texts []string, err error, asked bool) (used bool) {
	n := 0
	if err == nil {
		n, err = w.cfg.Use(texts)
	}
	file := slog.String("file", w.cfg.Paths[0])
	switch {
	case err == nil:
		w.bad = ""
		w.log(slog.LevelInfo, w.cfg.Read, file, slog.Int(w.cfg.Count, n))
	case err.Error() != w.bad || asked:
		w.bad = err.Error()
		w.log(slog.LevelError, w.cfg.Failed, file, slog.Any("err", err))
	}
	return err == nil
}

func (w *Watcher) log(level slog.Level, message string, attrs ...slog.Attr) {
	//nolint:sloglint // Messages are constant
	w.cfg.Log.LogAttrs(context.Background(), level, message, attrs...)
}
