package spelling_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/spelling"
)

func TestNearest(t *testing.T) {
	names := []string{"filter", "projection", "sort", "limit", ""}
	for text, want := range map[string]string{
		"limt": "limit", "LIMIT": "limit", "filt": "filter", "projectio": "projection", "sorted": "sort",
		"x": "", "": "", "colour": "", strings.Repeat("limit", 20): "",
	} {
		if got := spelling.Nearest(text, slices.Values(names)); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"limt", "limit", 1}, {"gt", "lt", 1}, {"abc", "cab", 2}} {
		if got := spelling.Distance(c.a, c.b); got != c.want || spelling.Distance(c.b, c.a) != got {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
