//go:build unix

package watch_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
)

// rig is a watcher with a record of its calls, in a bubble, where time is fake.
type rig struct {
	*watch.Watcher
	t *testing.T

	mu    sync.Mutex
	calls []string // since the last want; guarded by mu
	bad   bool     // the texts cannot be used; guarded by mu
}

func start(t *testing.T, paths []string, used ...string) *rig {
	r := &rig{t: t}
	r.Watcher = watch.New(paths, watch.Sum(used...), func(texts []string, err error, _ bool) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.calls = append(r.calls, "error: "+err.Error())
			return false
		}
		r.calls = append(r.calls, strings.Join(texts, "|"))
		return !r.bad
	})
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(t.Context()) })
	return r
}

// look lets the watcher read the files so many times, and returns its calls since the last look.
func (r *rig) look(times int) []string {
	time.Sleep(time.Duration(times) * 5 * time.Second) //nolint:forbidigo // fake time
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

func (r *rig) want(times int, want ...string) {
	r.t.Helper()
	if got := r.look(times); !slices.Equal(got, want) {
		r.t.Errorf("after %d looks: %q, want %q", times, got, want)
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := write(t, filepath.Join(t.TempDir(), "f"), "one")
		r := start(t, []string{path}, "one")
		r.want(3)
		write(t, path, "two\r\n")
		r.want(1)
		r.want(1, "two")
		write(t, path, " two\n") // the same text
		r.want(3)
		write(t, path, "thr") // a part, then all of it
		r.want(1)
		write(t, path, "three")
		r.want(2, "three")
		write(t, path, "")
		r.want(3, "")
		write(t, path, "three")
		r.want(3, "three")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		r.want(3, "error: open "+path+": no such file or directory")
		write(t, path, "three")
		r.want(3, "three")
	})
}

// TestRetry checks that texts that cannot be used are tried again, although the file does not
// change: the reason may be elsewhere.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := write(t, filepath.Join(t.TempDir(), "f"), "one")
		r := start(t, []string{path}, "one")
		r.refuse(true)
		write(t, path, "two")
		r.want(4, "two", "two", "two")
		write(t, path, "one") // in use once, but two looks must find it
		r.want(1)
		r.want(1, "one")
		r.refuse(false)
		r.want(3, "one")
		r.refuse(true)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		r.want(4, "error: open "+path+": no such file or directory")
	})
}

// TestOutcome checks what Outcome says of texts in use, of texts and files that cannot be used, and
// of texts that are used later.
func TestOutcome(t *testing.T) {
	if _, ok := watch.New(nil, "", nil).Outcome(); ok {
		t.Error("Outcome without files reports true")
	}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		path := write(t, filepath.Join(t.TempDir(), "f"), "one")
		r := start(t, []string{path}, "one")
		want := func(when string, used bool, since time.Duration) {
			t.Helper()
			got, ok := r.Outcome()
			if want := (watch.Outcome{Used: used, At: begun.Add(since)}); !ok || got != want {
				t.Errorf("%s: Outcome = %v, %v, want %v", when, got, ok, want)
			}
		}
		want("at the start", true, 0)
		_ = r.look(2)
		want("unchanged", true, 0)
		write(t, path, "two")
		_ = r.look(2)
		want("changed", true, 20*time.Second)
		r.refuse(true)
		write(t, path, "bad")
		_ = r.look(3)
		want("refused", false, 20*time.Second)
		r.refuse(false)
		_ = r.look(1)
		want("used without a change", true, 40*time.Second)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		_ = r.look(3)
		want("gone", false, 40*time.Second)
		write(t, path, "bad")
		_ = r.look(2)
		want("back", true, 65*time.Second)
	})
}

func (r *rig) refuse(bad bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad = bad
}

// Kubernetes mounts a Secret as links to files below a link, ..data, that is replaced as a whole.
func TestMountedSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		mount := func(version, name, password string) {
			t.Helper()
			if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, version, "name"), name)
			write(t, filepath.Join(dir, version, "password"), password)
			link := filepath.Join(dir, "..data_tmp")
			if err := os.Symlink(version, link); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
		}
		mount("..1", "app", "one")
		var paths []string
		for _, name := range []string{"name", "password"} {
			path := filepath.Join(dir, name)
			if err := os.Symlink(filepath.Join("..data", name), path); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
		r := start(t, paths, "app", "one")
		mount("..2", "bob", "two")
		if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
			t.Fatal(err)
		}
		r.want(3, "bob|two")
	})
}

// What is not a small regular file costs neither memory nor the goroutine.
func TestUnusableFiles(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	large := write(t, filepath.Join(dir, "large"), strings.Repeat("x", watch.MaxFile+1))
	most := write(t, filepath.Join(dir, "most"), strings.Repeat("x", watch.MaxFile))
	for path, want := range map[string]string{
		"/dev/zero": "/dev/zero is not a regular file",
		fifo:        fifo + " is not a regular file",
		dir:         dir + " is not a regular file",
		large:       large + " is larger than 1048576 bytes",
		most:        "",
	} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, []string{path}, "used")
				calls := r.look(3)
				switch {
				case len(calls) != 1:
					t.Fatalf("%d calls, want one", len(calls))
				case want == "" && len(calls[0]) != watch.MaxFile:
					t.Errorf("%d bytes were read", len(calls[0]))
				case want != "" && calls[0] != "error: "+want:
					t.Errorf("changed(%.100q), want %q", calls[0], want)
				}
			})
		})
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	if text, err := watch.Read(write(t, filepath.Join(dir, "f"),
		"\n hunter2\r\n")); text != "hunter2" || err != nil {
		t.Errorf("Read() = %q, %v", text, err)
	}
	if _, err := watch.Read("/dev/zero"); err == nil ||
		!strings.Contains(err.Error(), "larger than") {
		t.Errorf("Read(/dev/zero) = %v", err)
	}
	fifo := filepath.Join(dir, "fifo") // as a shell's <(…) is
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { _ = os.WriteFile(fifo, []byte("hunter2\n"), 0) }()
	if text, err := watch.Read(fifo); text != "hunter2" || err != nil {
		t.Errorf("Read() of a pipe = %q, %v", text, err)
	}
}
