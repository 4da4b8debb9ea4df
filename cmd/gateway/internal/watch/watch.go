// Package watch reads files again when they change, so that keys and passwords can change without
// a restart. It does not interpret the files.
package watch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// every is the interval between two looks at the files. They are compared by their texts, since a
// mounted Secret changes behind a symbolic link. A change counts when two looks have found the
// same, since a file that is being written may have a part of its text.
const every = 5 * time.Second

// Watcher watches files. One goroutine, between Start and Close, owns the fields below the
// configuration.
type Watcher struct {
	paths   []string
	changed func(texts []string, err error, asked bool) (used bool)
	now     chan struct{} // requests a look
	stop    context.CancelFunc
	running sync.WaitGroup
	outcome atomic.Pointer[Outcome] // of the last call of changed

	used finding // what changed was called with; zero if it did not use the texts
	last finding // of the last look
}

// Outcome says whether the texts of the files are in use.
type Outcome struct {
	Used bool      // the newest texts are in use
	At   time.Time // when texts were last read and used
}

// finding holds the result of one look. It has no text, which may be secret.
type finding struct {
	sums string // Sum of the texts
	err  string // a file could not be read
}

// Sum returns a fingerprint of the texts: the SHA-256 of each, in order.
func Sum(texts ...string) string {
	var b strings.Builder
	for _, text := range texts {
		sum := sha256.Sum256([]byte(text))
		b.Write(sum[:])
	}
	return b.String()
}

// New returns a watcher of the files; without paths it does nothing. used is the Sum of the texts
// in use. changed is called on the watcher's goroutine with new texts, without the space around
// them, or with the error of a file that cannot be read. It reports whether the texts are in use
// now. If they are not, it is called again at each interval, since the reason may be elsewhere:
// the mode of a file, or another file. After a Reload it is called in any case, with asked set.
func New(
	paths []string, used string, changed func(texts []string, err error, asked bool) (used bool),
) *Watcher {
	begin := finding{sums: used}
	w := &Watcher{
		paths: paths, changed: changed, now: make(chan struct{}, 1), stop: func() {}, used: begin,
		last: begin,
	}
	w.outcome.Store(&Outcome{Used: true, At: time.Now()})
	return w
}

// Outcome returns the outcome of the last attempt to use the files. It reports false if there are
// no files.
func (w *Watcher) Outcome() (Outcome, bool) { return *w.outcome.Load(), len(w.paths) > 0 }

// Start begins to watch. It uses only the values of ctx; Close ends the watching.
func (w *Watcher) Start(ctx context.Context) error {
	if len(w.paths) == 0 {
		return nil
	}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.running.Go(func() { w.run(ctx) })
	return nil
}

// Close stops the watcher and waits for its goroutine.
func (w *Watcher) Close(context.Context) error {
	w.stop()
	w.running.Wait()
	return nil
}

// Reload requests a look at the files now, and reports whether there are any.
func (w *Watcher) Reload() bool {
	if len(w.paths) == 0 {
		return false
	}
	select {
	case w.now <- struct{}{}:
	default: // a request is pending already
	}
	return true
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

func (w *Watcher) look(asked bool) {
	texts, err := w.read()
	now, before := finding{sums: Sum(texts...)}, w.last
	if err != nil {
		now = finding{err: err.Error()}
	}
	w.last = now
	if (now == w.used || now != before) && !asked {
		return
	}
	w.used = now
	used := w.changed(texts, err, asked)
	if !used && err == nil {
		w.used = finding{}
	}
	outcome := Outcome{Used: used, At: time.Now()}
	if !used {
		outcome.At = w.outcome.Load().At
	}
	w.outcome.Store(&outcome)
}

// read reads the files if they are regular: other kinds do not keep a text, and a pipe could
// block.
func (w *Watcher) read() (texts []string, err error) {
	for _, path := range w.paths {
		info, err := os.Stat(path)
		if err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file", path)
		}
		text, err := Read(path)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// MaxFile is the size of the largest file that is read.
const MaxFile = 1 << 20

// Read returns the text of a small file without the space around it.
func Read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > MaxFile:
		return "", fmt.Errorf("%s is larger than %d bytes", path, MaxFile)
	}
	return strings.TrimSpace(string(text)), nil
}
