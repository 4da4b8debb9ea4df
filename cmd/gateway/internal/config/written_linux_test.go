package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestCheckWritten(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, audit, addresses string
		want                   []string // parts of the lines; nil: no error
	}{
		{"none", "none", "", nil},
		{"the gateway's log", "log", "", nil},
		{"files that are there", at("file"), at("file"), nil},
		{"new files", at("new"), at("new"), nil},
		{"a pipe without a reader", at("pipe"), "", nil},
		{"a device", "/dev/null", "", nil},
		{"no directory", at("no/new"), at("no/new"), []string{"option audit.file: no file can be made in " + at("no"), "option addressesFile: no file can be made in " + at("no")}},
		{"a file for a directory", at("file/new"), at("file/new"), []string{"option audit.file", "option addressesFile"}},
		{"a directory for a file", dir, dir, []string{"option audit.file", "option addressesFile: " + dir + " is a directory"}},
	} {
		c, err := load(t, []string{
			"--uri", uri, "--audit-file", row.audit, "--addresses-file", row.addresses,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		if err := c.CheckWritten(); err != nil {
			lines = strings.Split(err.Error(), "\n")
		}
		if len(lines) != len(row.want) {
			t.Errorf("%s: %q, want %q", row.name, lines, row.want)
			continue
		}
		for i, want := range row.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%s: %q, want %q", row.name, lines[i], want)
			}
		}
	}
	after, err := os.ReadDir(dir)
	if err != nil || len(after) != len(before) {
		t.Errorf("afterwards the directory has %v (%v), before it had %v", after, err, before)
	}
	if text, err := os.ReadFile(at("file")); string(text) != "text" {
		t.Errorf("afterwards the file has %q (%v)", text, err)
	}
}
