package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocs: the tests that docs/conformance.md names exist.
func TestDocs(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	read := func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range test.FindAllSubmatch(source, -1) {
			exists[string(found[1])] = true
		}
		return err
	}
	for _, top := range []string{"core", "service", "cmd", "lab"} {
		if err := filepath.WalkDir(filepath.Join(root, top), read); err != nil {
			t.Fatal(err)
		}
	}
	names := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(page, -1)
	if len(names) < 50 {
		t.Errorf("the page names %d tests, want those of the prose tests", len(names))
	}
	for _, name := range names {
		if !exists[string(name[1])] {
			t.Errorf("there is no test %s", name[1])
		}
	}
}
