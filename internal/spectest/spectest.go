// Package spectest finds the MongoDB specifications' test files and keeps a
// record of what became of each case. It runs nothing itself.
//
// The files are looked for where the environment variable SPECIFICATIONS_DIR
// says, else in shared/specifications beside the module's root. Where they are
// missing, tests skip. When MOORING_CONFORMANCE_LOG names a file, one line is
// appended to it for each case:
//
//	suite TAB file TAB case TAB pass|fail|skip TAB reason
package spectest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Dir is the folder of a suite, such as "bson-corpus". The test is skipped where
// there is none.
func Dir(t testing.TB, suite string) string {
	t.Helper()
	root := os.Getenv("SPECIFICATIONS_DIR")
	if root == "" {
		root = find(t)
	}
	dir := filepath.Join(root, filepath.FromSlash(suite))
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		if os.Getenv("SPECIFICATIONS_DIR") != "" {
			t.Fatalf("SPECIFICATIONS_DIR has no folder %s: %v", suite, err)
		}
		t.Skipf("no specifications: %s is not there", dir)
	}
	return dir
}

// find walks up from the working directory to a folder that holds
// shared/specifications.
func find(t testing.TB) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		specs := filepath.Join(dir, "shared", "specifications")
		if info, err := os.Stat(specs); err == nil && info.IsDir() {
			return specs
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Skip("no specifications: neither SPECIFICATIONS_DIR nor ../shared/specifications")
		}
		dir = parent
	}
}

// Files is every .json file of a suite and its folders, sorted.
func Files(t testing.TB, suite string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(Dir(t, suite), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".json") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("suite %s has no .json file", suite)
	}
	return files
}

// reasons holds why a case was skipped, from Skip until its record is written.
var reasons sync.Map // *testing.T → string

// Case runs f as a subtest, and records what became of it. The file is recorded
// by its base name.
func Case(t *testing.T, suite, file, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Cleanup(func() {
			reason, _ := reasons.LoadAndDelete(t)
			text, _ := reason.(string)
			record(t, suite, file, name, text)
		})
		f(t)
	})
}

// Skip ends a case that is not run, and says why.
func Skip(t *testing.T, reason string) {
	t.Helper()
	reasons.Store(t, reason)
	t.Skip(reason)
}

func record(t *testing.T, suite, file, name, reason string) {
	path := os.Getenv("MOORING_CONFORMANCE_LOG")
	if path == "" {
		return
	}
	result := "pass"
	switch {
	case t.Failed():
		result = "fail"
	case t.Skipped():
		result = "skip"
	}
	line := strings.Join([]string{clean(suite), clean(filepath.Base(file)), clean(name), result, clean(reason)}, "\t") + "\n"
	// Test binaries of several packages append at once: O_APPEND keeps lines whole.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.WriteString(line)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Errorf("record the case: %v", err)
	}
}

// clean makes a field of s: no tabs, no line ends.
func clean(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\t' || r == '\n' || r == '\r' }), " ")
}
