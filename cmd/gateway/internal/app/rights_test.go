package app_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// right holds what testdata/access.txt says of an RPC or a REST path: the status of a client with a
// right credential, and which clients two policies permit to call it.
type right struct{ status, who string }

const rightsFile = "testdata/access.txt"

// readRights returns the head of testdata/access.txt, and what it says, by RPC and path.
func readRights(t *testing.T) (head string, all map[string]right) {
	t.Helper()
	text, err := os.ReadFile(rightsFile)
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]right{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			head += line
			continue
		}
		said, who, _ := strings.Cut(strings.TrimSpace(line), ": ")
		i := strings.LastIndex(said, " ")
		if i < 0 || who == "" {
			t.Fatalf("%s: %q has not all three parts", rightsFile, line)
		}
		all[said[:i]] = right{said[i+1:], who}
	}
	return head, all
}

// checkRights compares one part of testdata/access.txt with what a test has found out, in the order
// of the names. A new RPC or path without a line fails. With MOORING_REWRITE it writes the part.
func checkRights(t *testing.T, names []string, found map[string]string, part func(*right) *string) {
	t.Helper()
	head, all := readRights(t)
	for name := range all {
		if !slices.Contains(names, name) {
			t.Errorf("%s has a line for %s, which is neither an RPC nor a path", rightsFile, name)
		}
	}
	for _, name := range names {
		r := all[name]
		if said := part(&r); *said != found[name] {
			t.Errorf("%s says %q of %s, and not %q", rightsFile, *said, name, found[name])
			*said = found[name]
		}
		head += name + " " + or(r.status) + ": " + or(r.who) + "\n"
	}
	if os.Getenv("MOORING_REWRITE") != "" {
		if err := os.WriteFile(rightsFile, []byte(head), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// or returns a part of a line, or what stands for one that is not known.
func or(part string) string {
	if part == "" {
		return "?"
	}
	return part
}
