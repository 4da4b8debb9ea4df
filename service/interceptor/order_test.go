package interceptor_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/interceptor"
)

var numbered = regexp.MustCompile("(?m)^[0-9]+\\. `([a-z]+)` ")

// TestOrder checks that the steps have the order that docs/architecture.md states.
func TestOrder(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## What every call passes\n")
	if !found {
		t.Fatal("docs/architecture.md does not say what every call passes")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var stated []string
	for _, m := range numbered.FindAllStringSubmatch(section, -1) {
		stated = append(stated, m[1])
	}
	got, onward := interceptor.New(interceptor.Config{}).Order()
	if !slices.Equal(got, stated) {
		t.Errorf("the steps are %q, and docs/architecture.md states %q", got, stated)
	}
	_, list, _ := strings.Cut(strings.Join(strings.Fields(section), " "),
		"run only at the replica that the client has called: ")
	list, _, _ = strings.Cut(list, ".")
	var once []string
	for _, m := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(list, -1) {
		once = append(once, m[1])
	}
	rest := slices.DeleteFunc(slices.Clone(got), func(name string) bool {
		return slices.Contains(once, name)
	})
	if !slices.Equal(onward, rest) || len(once) == 0 {
		t.Errorf("a forwarded call passes %q, and docs/architecture.md states %q", onward, rest)
	}
}
