package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const source = `package p

const limit = 1 + 2

func (t *table[K]) get(a, b int) (int, error) {
	t.mu.Lock()
	t.last = a
	if a == b && t.open() {
		return 0, errClosed
	}
	if !t.open() {
		t.opened(func() error { return t.err })
	}
	t.n++
	return a - b, nil
}
`

func TestMutants(t *testing.T) {
	found, err := mutants("core/p", "core/p/p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"t.last = a -> nothing",
		"a == b && t.open() -> a == b || t.open()",
		"a == b -> a != b",
		"errClosed -> nil",
		"!t.open() -> !(!t.open())",
		"t.opened(func() error { return t.err }) -> nothing",
		"t.err -> nil",
		"t.n++ -> t.n--",
		"a - b -> a + b",
	}
	var got []string
	for _, m := range found {
		got = append(got, strings.TrimPrefix(m.name, "core/p table.get: "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("mutants =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if text := string(found[1].apply([]byte(source))); !strings.Contains(text, "if a == b || t.open() {") || found[1].line != 8 {
		t.Errorf("line %d, applied:\n%s", found[1].line, text)
	}
}

// TestSample checks that an edit elsewhere does not change the order of the mutants that stay, and
// that the seed does.
func TestSample(t *testing.T) {
	names := func(seed, text string) []string {
		found, err := mutants("core/p", "core/p/p.go", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		sortFor(seed, found)
		var names []string
		for _, m := range found {
			names = append(names, m.name)
		}
		return names
	}
	before, after := names("one", source), names("one", source+"\nfunc more(a int) bool { return a > 1 }\n")
	added := slices.DeleteFunc(slices.Clone(after), func(n string) bool { return slices.Contains(before, n) })
	if len(added) != 1 || !slices.Equal(before, slices.DeleteFunc(after, func(n string) bool { return n == added[0] })) {
		t.Errorf("an added mutant changes the order:\n%q\n%q", before, after)
	}
	if slices.Equal(before, names("two", source)) {
		t.Error("two seeds give the same order")
	}
}

func TestVerdicts(t *testing.T) {
	read := func(text string) (verdicts, error) {
		path := filepath.Join(t.TempDir(), "verdicts.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return readVerdicts(path)
	}
	v, err := read("# head\n\ncore/p f: a < b -> a <= b\n    a is never b,\n    by construction\ncore/q g: x -> nil\n    why\n")
	if err != nil || len(v) != 2 || v["core/p f: a < b -> a <= b"] != "a is never b, by construction" {
		t.Errorf("readVerdicts = %q, %v", v, err)
	}
	all := []mutant{{pkg: "core/p", name: "core/p f: a > b -> a >= b"}}
	if got := v.unknown(all); !slices.Equal(got, []string{"core/p f: a < b -> a <= b"}) {
		t.Errorf("unknown = %q, want the verdict on the package that was looked at", got)
	}
	for _, text := range []string{"core/p f: a -> b\n", "    a reason\n"} {
		if _, err := read(text); err == nil {
			t.Errorf("readVerdicts(%q) succeeded", text)
		}
	}
}

// TestVerdictFile checks that the repository's own verdicts can be read.
func TestVerdictFile(t *testing.T) {
	if _, err := readVerdicts("verdicts.txt"); err != nil {
		t.Error(err)
	}
}
