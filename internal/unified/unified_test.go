package unified_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/internal/spectest"
	"github.com/mooringdb/mooring/internal/unified"
)

const suite = "unified-test-format"

// TestValidPass runs the format's own tests that must pass.
func TestValidPass(t *testing.T) {
	unified.Run(t, unified.Suite{
		Name: suite, Folder: suite + "/tests/valid-pass",
	})
}

// TestValidFail runs the format's own tests that must fail.
func TestValidFail(t *testing.T) {
	unified.Run(t,
		unified.Suite{Name: suite, Folder: suite + "/tests/valid-fail", WantFailure: true})
}

// TestInvalid loads the files that no version of the format allows.
func TestInvalid(t *testing.T) {
	schemas := unified.NewSchemas(spectest.Dir(t, suite))
	for _, path := range spectest.Files(t, suite+"/tests/invalid") {
		spectest.Case(t, suite, path, filepath.Base(path), func(t *testing.T) {
			if _, err := schemas.Load(path); err == nil {
				t.Error("the file is valid, and must not be")
			}
		})
	}
}

// skips is set in the process that TestSkippedCases starts: a suite of one file there, whose case
// is skipped.
const skips = "MOORING_UNIFIED_SKIPS"

// TestSkippingSuite runs that suite.
func TestSkippingSuite(t *testing.T) {
	name := os.Getenv(skips)
	if name == "" {
		t.Skip("run by TestSkippedCases")
	}
	unified.Run(t, unified.Suite{
		Name: "own", Folder: "own", Skip: map[[2]string]string{{"own.json", name}: "a reason"},
	})
}

// TestSkippedCases: a case that is skipped and would pass fails the test, and so does a row that is
// about no case.
func TestSkippedCases(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink(spectest.Dir(t, suite), filepath.Join(root, suite)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "own"), 0o755); err != nil {
		t.Fatal(err)
	}
	const file = `{"description": "own", "schemaVersion": "1.28", "tests": [
		{"description": "passes", "operations": []},
		{"description": "fails", "operations": [{"object": "x", "name": "find"}]}]}`
	if err := os.WriteFile(filepath.Join(root, "own", "own.json"), []byte(file),
		0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"passes": "the case passes, but is skipped: a reason",
		"other":  `there is no case ["own.json" "other"] to skip`,
		"fails":  "",
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSkippingSuite$")
		cmd.Env = append(os.Environ(), skips+"="+name, "SPECIFICATIONS_DIR="+root,
			"MOORING_CONFORMANCE_LOG=")
		out, err := cmd.CombinedOutput()
		if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
			t.Errorf("with a row for %q: %v, %s; want %q", name, err, out, want)
		}
	}
}
