// Package spectest finds the MongoDB specifications' test files and records the result of each
// case. It runs nothing itself.
//
// The files are in the folder that the environment variable SPECIFICATIONS_DIR names, else in
// shared/specifications beside the module's root. If there is neither, tests skip. If
// MOORING_CONFORMANCE_LOG names a file, one line is appended to it for each case:
//
//	suite TAB file TAB case TAB pass|fail|skip TAB reason
package spectest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Root returns the folder with the specifications' tests. ok is false if there is none.
func Root() (dir string, ok bool) {
	if dir := os.Getenv("SPECIFICATIONS_DIR"); dir != "" {
		return dir, true
	}
	dir, err := os.Getwd()
	for err == nil {
		specs := filepath.Join(dir, "shared", "specifications")
		if info, err := os.Stat(specs); err == nil && info.IsDir() {
			return specs, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	return "", false
}

// Dir returns the folder of a suite, such as "bson-corpus". If there is none, it skips the test.
func Dir(t testing.TB, suite string) string {
	t.Helper()
	root, ok := Root()
	if !ok {
		t.Skip("no specifications: neither SPECIFICATIONS_DIR nor ../shared/specifications")
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

// Files returns every .json file of a suite and its folders, sorted.
func Files(t testing.TB, suite string) []string {
	t.Helper()
	files, err := Walk(Dir(t, suite))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("suite %s has no .json file", suite)
	}
	return files
}

// Walk returns every .json file of a folder and its folders, sorted.
func Walk(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".json") {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// Relative returns a file's path below root, with slashes; elsewhere it is the file's base name.
func Relative(root, file string) string {
	path, err := filepath.Rel(root, file)
	if err != nil || !filepath.IsLocal(path) {
		return filepath.Base(file)
	}
	return filepath.ToSlash(path)
}

// reasons holds why a case was skipped, from Skip until its record is written.
var reasons sync.Map // *testing.T → string

// Case runs f as a subtest and records its result. file is the path that Files returned; it is
// recorded relative to Root.
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

// Skip ends a case that is not run, and records why. tools/skips knows the reason by its first
// words.
func Skip(t *testing.T, reason string) {
	t.Helper()
	reasons.Store(t, reason)
	t.Skip("left out: " + reason)
}

// SkipFailing ends a case that cannot pass, and records why. f is the case: if it passes, the case
// fails, since it need not be skipped.
func SkipFailing(t *testing.T, reason string, f func(t testing.TB)) {
	t.Helper()
	a := attempt{TB: t}
	done := make(chan struct{})
	go func() { // which FailNow ends
		defer close(done)
		f(&a)
	}()
	<-done
	if !a.failed {
		t.Errorf("the case passes, but is skipped: %s", reason)
	}
	Skip(t, reason)
}

// attempt implements a test whose failure is not a failure of TB.
type attempt struct {
	testing.TB
	failed bool
}

func (a *attempt) Fail() { a.failed = true }

func (a *attempt) Failed() bool { return a.failed }

func (a *attempt) FailNow() {
	a.failed = true
	runtime.Goexit()
}

func (a *attempt) Error(...any) { a.Fail() }

func (a *attempt) Errorf(string, ...any) { a.Fail() }

func (a *attempt) Fatal(...any) { a.FailNow() }

func (a *attempt) Fatalf(string, ...any) { a.FailNow() }

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
	root, _ := Root()
	line := strings.Join([]string{
		clean(suite), clean(Relative(root, file)), clean(name), result,
		clean(reason),
	}, "\t") + "\n"
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

// clean returns s without tabs and line ends.
func clean(s string) string {
	return strings.Join(strings.FieldsFunc(s,
		func(r rune) bool { return r == '\t' || r == '\n' || r == '\r' }), " ")
}
