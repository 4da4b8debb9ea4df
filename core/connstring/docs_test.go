package connstring_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/connstring"
)

// The page's table is made of the table of options. MOORING_REWRITE=1 go test ./core/connstring
// rewrites it.
func TestConnectionStringPage(t *testing.T) {
	const (
		page       = "../../docs/connection-string.md"
		begin, end = "<!-- options begin -->\n", "<!-- options end -->\n"
	)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the options", page)
	}
	table := markdown()
	if old == table {
		return
	}
	if os.Getenv("MOORING_REWRITE") == "" {
		t.Fatalf("%s is not what the table of options says; MOORING_REWRITE=1 rewrites it", page)
	}
	if err := os.WriteFile(page, []byte(before+begin+table+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func markdown() string {
	var b strings.Builder
	b.WriteString("\n| option | value | default | what it does |\n|---|---|---|---|\n")
	for _, o := range connstring.Options() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", o.Name, o.Kind, o.Default, o.Doc)
	}
	return b.String() + "\n"
}

func TestOptionsAreDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range connstring.Options() {
		name := strings.ToLower(o.Name)
		if o.Name == "" || o.Kind == "" || o.Doc == "" || seen[name] ||
			strings.Contains(o.Kind+o.Default+o.Doc, "|") {
			t.Errorf("option %q is without text, with a bar, or there twice", o.Name)
		}
		seen[name] = true
	}
}
