package keyfile_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/keyfile"
	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
)

const (
	one = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"
	two = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=\n"
)

var messages = keyfile.Messages{
	Read: "handle keys read", Count: "keys", Failed: "keeping the old ones",
	Nothing: "nothing to reload",
}

// world is a watcher with its file, in a bubble, where time is fake.
type world struct {
	*keyfile.Watcher
	t    *testing.T
	path string

	mu     sync.Mutex // guards the fields below
	log    bytes.Buffer
	counts []int // how many keys each replacement had
	refuse error
}

// Write appends to the log.
func (w *world) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(b)
}

// said returns the log.
func (w *world) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

func (w *world) replaced() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.counts)
}

func (w *world) errors() int { return strings.Count(w.said(), "level=ERROR") }

func start(t *testing.T, text string) *world {
	return startOf(t, text, text)
}

// startOf starts a watcher whose file has other keys than those in use.
func startOf(t *testing.T, counts, text string) *world {
	w := &world{t: t, path: filepath.Join(t.TempDir(), "keys")}
	w.write(text)
	w.Watcher = keyfile.New(keyfile.Config{
		Paths: []string{w.path}, Sum: watch.Sum(strings.TrimSpace(counts)),
		Log:      slog.New(slog.NewTextHandler(w, nil)),
		Messages: messages,
		Use: func(texts []string) (int, error) {
			keys, err := config.ParseHandleKeys([]byte(texts[0]))
			if err != nil {
				return 0, err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.counts = append(w.counts, len(keys))
			return len(keys), w.refuse
		},
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close(t.Context()) })
	return w
}

func (w *world) write(text string) {
	w.t.Helper()
	if err := os.WriteFile(w.path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// pass advances the time, and waits for what is due.
func (w *world) pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble
	synctest.Wait()
}

func TestChangeIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, one)
		w.pass(time.Minute)
		if len(w.replaced()) != 0 {
			t.Fatalf("a file that did not change was taken %d times", len(w.replaced()))
		}
		w.write(one + two)
		w.pass(11 * time.Second)
		if got := w.replaced(); !slices.Equal(got, []int{2}) {
			t.Fatalf("replaced %v, want once, with 2 keys", got)
		}
		// The kubelet also replaces the file behind the name.
		next := w.path + "-next"
		if err := errors.Join(os.WriteFile(next, []byte(two), 0o600), os.Remove(w.path),
			os.Symlink(next, w.path)); err != nil {
			t.Fatal(err)
		}
		w.pass(11 * time.Second)
		if got := w.replaced(); !slices.Equal(got, []int{2, 1}) {
			t.Errorf("replaced %v, want 2 keys and then 1", got)
		}
	})
}

// TestChangeAtTheStart checks that a change between the reading of the configuration and the
// start is noticed.
func TestChangeAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startOf(t, one, two+one)
		w.pass(11 * time.Second)
		if got := w.replaced(); !slices.Equal(got, []int{2}) {
			t.Errorf("replaced %v, want once, with 2 keys", got)
		}
	})
}

// TestHalfAFile checks that a file that is being written does not count until it is complete,
// whatever its parts contain.
func TestHalfAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, one+two)
		for _, part := range []string{two, "", two + one[:20], two + one} {
			w.write(part)
			w.pass(5 * time.Second)
			if len(w.replaced()) != 0 || w.errors() != 0 {
				t.Errorf("a part of %d bytes: replaced %v, log %q", len(part), w.replaced(),
					w.said())
			}
		}
		w.pass(5 * time.Second)
		if got := w.replaced(); !slices.Equal(got, []int{2}) || w.errors() != 0 {
			t.Errorf("replaced %v, want once, with 2 keys; log %q", got, w.said())
		}
		// A part that disappears again does not count.
		w.write(two)
		w.pass(5 * time.Second)
		w.write(two + one)
		w.pass(time.Minute)
		if got := w.replaced(); len(got) != 1 {
			t.Errorf("replaced %v, want nothing more", got)
		}
	})
}

// TestBadFile checks that the old keys stay, that the log has one line, and that a good file
// counts again.
func TestBadFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, one)
		for i, row := range []struct {
			name string
			do   func()
		}{
			{"not base64", func() { w.write("hunter2!\n") }},
			{"no key", func() { w.write("# all gone\n") }},
			{"gone", func() { _ = os.Remove(w.path) }},
		} {
			row.do()
			w.pass(time.Minute)
			if len(w.replaced()) != 0 || w.errors() != i+1 {
				t.Errorf("%s: replaced %v, %d errors in the log, want none and %d", row.name,
					w.replaced(), w.errors(), i+1)
			}
		}
		if strings.Contains(w.said(), "hunter2") {
			t.Errorf("the log quotes a key: %s", w.said())
		}
		w.write(two)
		w.pass(11 * time.Second)
		if len(w.replaced()) != 1 {
			t.Errorf("replaced %v after the file was good again, want once", w.replaced())
		}
		// A problem that occurs again is logged again.
		_ = os.Remove(w.path)
		w.pass(11 * time.Second)
		if w.errors() != 4 {
			t.Errorf("%d errors in the log, want 4", w.errors())
		}
	})
}

// TestReload checks that Reload does not wait for the next interval, and logs a result even if
// nothing has changed.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, one)
		w.Reload()
		w.Reload()
		synctest.Wait()
		if len(w.replaced()) == 0 || !strings.Contains(w.said(), "handle keys read") {
			t.Errorf("replaced %v, log %q; want it read at once", w.replaced(), w.said())
		}
		w.deny(errors.New("no"))
		w.Reload()
		synctest.Wait()
		w.Reload()
		synctest.Wait()
		if w.errors() != 2 {
			t.Errorf("%d errors, want one for each time that it was asked", w.errors())
		}
	})
}

// TestRetry checks that keys that could not be used are tried again without a change of their file,
// and that the log has the reason once.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, one)
		w.deny(errors.New("another file is bad"))
		w.write(two)
		w.pass(time.Minute)
		if w.errors() != 1 || strings.Contains(w.said(), "handle keys read") {
			t.Errorf("log %q, want one error", w.said())
		}
		w.deny(nil)
		w.pass(6 * time.Second)
		if !strings.Contains(w.said(), "handle keys read") {
			t.Errorf("log %q, want the keys to be used once the other file is mended", w.said())
		}
		n := len(w.replaced())
		if w.pass(time.Minute); len(w.replaced()) != n {
			t.Error("keys in use were read again")
		}
	})
}

func (w *world) deny(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = err
}

func TestWithoutFile(t *testing.T) {
	var log bytes.Buffer
	w := keyfile.New(keyfile.Config{
		Messages: messages, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Reload()
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "nothing to reload") {
		t.Errorf("log = %q", &log)
	}
}

// TestCloseWaits checks that Close returns only after a replacement that has begun.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(one), 0o600); err != nil {
			t.Fatal(err)
		}
		begun, finish := make(chan struct{}), make(chan struct{})
		w := keyfile.New(keyfile.Config{
			Paths: []string{path}, Log: slog.New(slog.DiscardHandler),
			Use: func([]string) (int, error) { close(begun); <-finish; return 0, nil },
		})
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Reload()
		<-begun
		closed := make(chan error, 1)
		go func() { closed <- w.Close(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Errorf("Close returned %v during a replacement", err)
		default:
		}
		close(finish)
		synctest.Wait()
		if err := <-closed; err != nil {
			t.Errorf("Close = %v", err)
		}
	})
}
