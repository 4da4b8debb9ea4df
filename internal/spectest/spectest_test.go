package spectest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/mooringdb/mooring/internal/spectest"
)

const child = "MOORING_SPECTEST_CHILD"

// TestChild has a case of each kind; TestRecord runs it in a process of its own,
// where one may fail.
func TestChild(t *testing.T) {
	if os.Getenv(child) == "" {
		t.Skip("run by TestRecord")
	}
	spectest.Case(t, "suite", "dir/file.json", "good\tcase", func(*testing.T) {})
	spectest.Case(t, "suite", "file.json", "bad", func(t *testing.T) { t.Error("bad") })
	spectest.Case(t, "suite", "file.json", "left out", func(t *testing.T) {
		spectest.Skip(t, "a reason")
	})
	for name, f := range map[string]func(testing.TB){
		"error": func(t testing.TB) { t.Error() }, "errorf": func(t testing.TB) { t.Errorf("") },
		"fatal": func(t testing.TB) { t.Fatal() }, "fatalf": func(t testing.TB) { t.Fatalf("") },
		"fail": func(t testing.TB) { t.Fail() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					panic("a case that cannot pass has failed")
				}
			}()
			spectest.SkipFailing(t, "a reason", f)
		})
	}
	spectest.Case(t, "suite", "file.json", "passes", func(t *testing.T) {
		spectest.SkipFailing(t, "another", func(t testing.TB) {
			if t.Failed() {
				t.Error("it has failed before")
			}
		})
	})
}

func TestRecord(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), child+"=1", "MOORING_CONFORMANCE_LOG="+log)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("the child has not failed: %s", out)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	const want = "suite\tfile.json\tgood case\tpass\t\n" +
		"suite\tfile.json\tbad\tfail\t\n" +
		"suite\tfile.json\tleft out\tskip\ta reason\n" +
		"suite\tfile.json\tpasses\tfail\tanother\n"
	if string(text) != want {
		t.Errorf("log = %q, want %q", text, want)
	}
}

func TestFiles(t *testing.T) {
	root := t.TempDir()
	t.Setenv("SPECIFICATIONS_DIR", root)
	for _, name := range []string{
		"suite/b.json", "suite/a/c.json", "suite/a/c.yml", "other/d.json",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{filepath.Join(root, "suite/a/c.json"), filepath.Join(root, "suite/b.json")}
	if got := spectest.Files(t, "suite"); !slices.Equal(got, want) {
		t.Errorf("Files = %v, want %v", got, want)
	}
}

func TestRelative(t *testing.T) {
	for _, tt := range []struct{ root, file, want string }{
		{"/specs", "/specs/suite/tests/a.json", "suite/tests/a.json"},
		{"/specs", "/elsewhere/a.json", "a.json"},
		{"", "/elsewhere/a.json", "a.json"},
		{"/specs", "dir/a.json", "a.json"},
	} {
		if got := spectest.Relative(tt.root, tt.file); got != tt.want {
			t.Errorf("Relative(%q, %q) = %q, want %q", tt.root, tt.file, got, tt.want)
		}
	}
}

func TestMissing(t *testing.T) {
	t.Setenv("SPECIFICATIONS_DIR", "")
	t.Chdir(t.TempDir())
	s := skipper{TB: t}
	done := make(chan struct{})
	go func() { // which Skip ends
		defer close(done)
		spectest.Dir(&s, "suite")
	}()
	<-done
	want := "no specifications: neither SPECIFICATIONS_DIR nor ../shared/specifications"
	if s.reason != want {
		t.Errorf("Dir has skipped the test with %q, want %q", s.reason, want)
	}
}

// skipper implements a test that notes why it is skipped, and is not.
type skipper struct {
	testing.TB
	reason string
}

func (s *skipper) Skip(args ...any) {
	s.reason = fmt.Sprint(args...)
	runtime.Goexit()
}
