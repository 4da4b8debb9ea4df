package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSources fails if the console was not built again after a change of its sources.
func TestSources(t *testing.T) {
	root := filepath.Join("..", "..")
	sum, err := hash(filepath.Join(root, web))
	if err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(dist), sources))
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(was)) != sum {
		t.Errorf("%s was not built from what is in %s now: run make console and commit", dist, web)
	}
}

// TestCompare checks that each difference between dist and what was built is found.
func TestCompare(t *testing.T) {
	built := map[string][]byte{"index.html": []byte("<p>"), "assets/a.js": []byte("a()")}
	for name, spoil := range map[string]func(dir string) error{
		"":        func(string) error { return nil },
		"sources": func(dir string) error { return os.WriteFile(filepath.Join(dir, sources), nil, 0o600) },
		"bytes": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "assets", "a.js.gz"), compress([]byte("b()")),
				0o600)
		},
		"missing": func(dir string) error { return os.Remove(filepath.Join(dir, "index.html.gz")) },
		"more": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "b.js.gz"), compress([]byte("b()")), 0o600)
		},
		"broken": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "index.html.gz"), []byte("<p>"), 0o600)
		},
	} {
		dir := filepath.Join(t.TempDir(), "dist")
		if err := pack(dir, built, "sum"); err != nil {
			t.Fatal(err)
		}
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		if err := compare(dir, built, "sum"); (err != nil) != (name != "") {
			t.Errorf("compare after %q: %v", name, err)
		}
	}
}

// TestHash checks that the hash is of names and bytes, and not of what is installed and built.
func TestHash(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sum, err := hash(dir)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	first := write("src/a.ts", "a")
	if write("node_modules/x/y.js", "y") != first || write("build/z.js", "z") != first {
		t.Error("what is installed or built changes the hash")
	}
	if write("src/a.ts", "b") == first || write("src/b.ts", "") == write("src/c.ts", "") {
		t.Error("a change of the sources does not change the hash")
	}
}
