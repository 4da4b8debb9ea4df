package helm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestReadme checks that the chart's README lists each value with its default and its comment.
// MOORING_REWRITE=1 writes the table.
func TestReadme(t *testing.T) {
	const file, begin, end = "mooring/README.md", "go test ./deploy/helm -->\n", "<!-- end -->"
	text, err := os.ReadFile("mooring/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values yaml.Node
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	table := "\n| value | default | what |\n|---|---|---|\n" +
		strings.Join(rows(t, "", values.Content[0]), "") + "\n"
	readme, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(readme), begin)
	got, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no place for the table", file)
	}
	if got == table {
		return
	}
	if os.Getenv("MOORING_REWRITE") == "" {
		t.Fatalf("%s is out of date: MOORING_REWRITE=1 go test ./deploy/helm", file)
	}
	if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rows returns the rows of the values below a mapping. A value with a comment that begins with "--"
// is one row; others have rows of their own.
func rows(t *testing.T, prefix string, mapping *yaml.Node) []string {
	t.Helper()
	var all []string
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		_, said, ok := strings.Cut("\n"+key.HeadComment, "\n# -- ")
		switch {
		case ok:
			var v any
			if err := value.Decode(&v); err != nil {
				t.Fatal(err)
			}
			standard, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			said = strings.NewReplacer("\n# ", " ", "|", `\|`).Replace(said)
			all = append(all, fmt.Sprintf("| `%s` | `%s` | %s |\n", name, standard, said))
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			all = append(all, rows(t, name+".", value)...)
		default:
			t.Errorf("values.yaml does not describe %s", name)
		}
	}
	return all
}
