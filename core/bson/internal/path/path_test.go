package path_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mooringdb/mooring/core/bson/internal/path"
)

func TestJoin(t *testing.T) {
	for _, c := range []struct {
		keys []string
		want string
	}{
		{nil, ""},
		{[]string{"a"}, "a"},
		{[]string{"a", "b", "3"}, "a.b.3"},
		{[]string{"", ""}, "."},
		{[]string{"a\xff"}, "a\uFFFD"},
		{[]string{strings.Repeat("x", 256), "y"}, strings.Repeat("x", 256) + ".…"},
		{[]string{"x" + strings.Repeat("é", 200)}, "x" + strings.Repeat("é", 127) + "…"},
	} {
		if got := path.Join(c.keys); got != c.want || !utf8.ValidString(got) {
			t.Errorf("Join(%.20q) = %q, want %q", c.keys, got, c.want)
		}
	}
}
