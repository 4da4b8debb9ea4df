package main

import (
	"fmt"
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
	if text := string(found[1].apply([]byte(source))); !strings.Contains(text,
		"if a == b || t.open() {") || found[1].line != 8 {
		t.Errorf("line %d, applied:\n%s", found[1].line, text)
	}
}

// TestPick checks that an edit elsewhere neither adds nor removes a mutant of the sample, nor
// changes the order, and that the seed does.
func TestPick(t *testing.T) {
	const functions, oneIn = 1000, 25
	var all []string
	for i := range functions {
		all = append(all, fmt.Sprintf("func f%d(a int) bool { return a > 1 }\n", i))
	}
	names := func(seed string, functions []string) []string {
		found, err := mutants("core/p", "core/p/p.go",
			[]byte("package p\n"+strings.Join(functions, "")))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, m := range pick(seed, oneIn, found) {
			names = append(names, m.name)
		}
		return names
	}
	whole := names("one", all)
	if len(whole) < functions/oneIn/2 || len(whole) > functions/oneIn*2 {
		t.Errorf("pick gives %d of %d mutants, want about one in %d", len(whole), functions, oneIn)
	}
	parts := [][]string{names("one", all[:functions/2]), names("one", all[functions/2:])}
	for _, part := range parts {
		left := slices.DeleteFunc(slices.Clone(whole), func(n string) bool {
			return !slices.Contains(part, n)
		})
		if !slices.Equal(left, part) {
			t.Errorf("without half of the functions pick gives\n%q, want\n%q", part, left)
		}
	}
	if len(parts[0])+len(parts[1]) != len(whole) {
		t.Errorf("pick gives %d mutants of the halves, %d of the whole",
			len(parts[0])+len(parts[1]), len(whole))
	}
	if slices.Equal(whole, names("two", all)) {
		t.Error("two seeds give the same sample")
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
	v, err := read("# head\n\ncore/p f: a < b -> a <= b\n    a is never b,\n    by " +
		"construction\ncore/q g: x -> nil\n    why\n")
	if err != nil || len(v) != 2 ||
		v["core/p f: a < b -> a <= b"] != "a is never b, by construction" {
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
