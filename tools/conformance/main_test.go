package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		files, cases []string
		missing      string // the rows
		problem      string
	}{
		"all walked":   {files: []string{"crud2/a.json"}, cases: []string{"crud2/a.json"}},
		"listed":       {files: []string{"gridfs/tests/a.json", "gridfs/b.json"}, missing: "gridfs/"},
		"not listed":   {files: []string{"new/tests/a.json"}, problem: "new/tests/a.json is walked by no runner"},
		"a stale row":  {files: []string{"gridfs/a.json"}, cases: []string{"gridfs/a.json"}, problem: "gridfs/a.json has cases, but is listed"},
		"one of a row": {files: []string{"auth/tests/legacy/a.json", "gridfs/tests/b.json"}, cases: []string{"auth/tests/legacy/a.json"}, missing: "gridfs/"},
	} {
		t.Run(name, func(t *testing.T) {
			hasCase := map[string]bool{}
			for _, c := range test.cases {
				hasCase[c] = true
			}
			w := compare(test.files, hasCase)
			var rows []string
			for row := range w.missing {
				rows = append(rows, row)
			}
			if got := strings.Join(rows, " "); got != test.missing {
				t.Errorf("missing %q, want %q", got, test.missing)
			}
			if (test.problem == "") != (len(w.errors) == 0) ||
				test.problem != "" && !strings.HasPrefix(w.errors[0], test.problem) {
				t.Errorf("errors %q, want %q", w.errors, test.problem)
			}
		})
	}
}

// TestOnce counts a case that several runners run once: a failure anywhere is its result.
func TestOnce(t *testing.T) {
	of := func(name, result string) specCase {
		return specCase{suite: "crud", file: "a.json", name: name, result: result}
	}
	other := specCase{suite: "sessions", file: "a.json", name: "passed", result: "fail"}
	got := once([]specCase{
		of("passed", "skip"), of("failed", "pass"), of("skipped", "skip"), other,
		of("passed", "pass"), of("failed", "fail"), of("skipped", "skip"),
		of("passed", "skip"), of("failed", "skip"),
	})
	want := []specCase{
		of("passed", "pass"), of("failed", "fail"), of("skipped", "skip"), other,
	}
	if !slices.Equal(got, want) {
		t.Errorf("once() = %v, want %v", got, want)
	}
}

func TestEveryRowEndsItsFolder(t *testing.T) {
	for row := range notBuilt {
		others := func(other string) bool { return other != row && strings.HasPrefix(other, row) }
		var rows []string
		for other := range notBuilt {
			rows = append(rows, other)
		}
		if slices.ContainsFunc(rows, others) || strings.Count(row, "/") == 0 {
			t.Errorf("row %q is within another, or no folder", row)
		}
	}
}

// TestWithoutSpecifications runs the command where there are none: an error, unless -without says
// so.
func TestWithoutSpecifications(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "conformance")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").
		CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, test := range []struct {
		args []string
		fine bool
		want string
	}{
		{nil, false, "there are no specifications"},
		{[]string{"-without"}, true, "nothing was run"},
	} {
		cmd := exec.CommandContext(t.Context(), binary, test.args...)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "SPECIFICATIONS_DIR=")
		out, err := cmd.CombinedOutput()
		if (err == nil) != test.fine || !strings.Contains(string(out), test.want) {
			t.Errorf("%v: %v: %s", test.args, err, out)
		}
	}
}
