package etag_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/mooringdb/mooring/service/etag"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestParse parses headers, and writes their tags again. "!" stands for a refusal.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{nil, "[]"},
		{[]string{"*"}, "[*]"},
		{[]string{" * "}, "[*]"},
		{[]string{`"a"`}, `["a"]`},
		{[]string{`W/"a"`}, `[W/"a"]`},
		{[]string{`""`}, `[""]`},
		{[]string{`"*"`}, `["*"]`},
		{[]string{`"a,b"`}, `["a,b"]`},
		{[]string{`, "a" ,, W/"b",`}, `["a" W/"b"]`},
		{[]string{`"a"`, `"b"`}, `["a" "b"]`},
		{[]string{""}, "!"},
		{[]string{" , "}, "!"},
		{[]string{"a"}, "!"},
		{[]string{`"a`}, "!"},
		{[]string{`"a" "b"`}, "!"},
		{[]string{`"a"b`}, "!"},
		{[]string{`w/"a"`}, "!"},
		{[]string{`*, "a"`}, "!"},
		{[]string{"*", "*"}, "!"},
		{[]string{`"a b"`}, "!"},
		{[]string{"\"a\x7f\""}, "!"},
	} {
		tags, err := etag.Parse(etag.IfMatch, c.lines)
		got := fmt.Sprint(tags)
		if err != nil {
			got = "!"
			if e := rpcerr.HTTP(err).Body.GetError(); e.GetField() != etag.IfMatch {
				t.Errorf("Parse(%q) = %v, which names %q", c.lines, err, e.GetField())
			}
		}
		if got != c.want {
			t.Errorf("Parse(%q) = %s, want %s", c.lines, got, c.want)
		}
	}
}

// TestState checks which part of a tag names the BSON: none of a weak one, and of one that stands
// for any document.
func TestState(t *testing.T) {
	for header, want := range map[string]string{
		`"abc"`: "abc", `"abc.json"`: "abc", `W/"abc"`: `W/"abc"`, `"*"`: `"*"`, `"*.json"`: `"*.json"`,
		`""`: `""`, `".json"`: `".json"`, "*": "*",
	} {
		tags, err := etag.Parse(etag.IfMatch, []string{header})
		if err != nil {
			t.Fatal(err)
		}
		if got := tags[0].State(); got != want || tags[0].Any() != (header == "*") {
			t.Errorf("State of %s = %s, any %t; want %s", header, got, tags[0].Any(), want)
		}
	}
}

// TestRefuse checks the preconditions of calls that are about no single document: the header that
// is refused, if one is.
func TestRefuse(t *testing.T) {
	const date = "Sat, 21 Nov 2026 10:00:00 GMT"
	for _, c := range []struct {
		method string
		header []string
		want   string
	}{
		{http.MethodPost, nil, ""},
		{http.MethodPost, []string{etag.IfMatch, `"a"`}, etag.IfMatch},
		{http.MethodPost, []string{etag.IfMatch, "*"}, etag.IfMatch},
		{http.MethodPost, []string{etag.IfNoneMatch, `"a"`}, etag.IfNoneMatch},
		{http.MethodPost, []string{etag.IfNoneMatch, "*"}, etag.IfNoneMatch},
		{http.MethodPost, []string{"If-Unmodified-Since", date}, "If-Unmodified-Since"},
		{http.MethodPost, []string{"If-Unmodified-Since", date, etag.IfMatch, `"a"`}, etag.IfMatch},
		{http.MethodPost, []string{"If-Modified-Since", date}, ""},
		{http.MethodGet, []string{etag.IfNoneMatch, `"a"`}, ""}, // which no response has
		{http.MethodGet, []string{etag.IfNoneMatch, "*"}, etag.IfNoneMatch},
		{http.MethodGet, []string{etag.IfNoneMatch, "a"}, etag.IfNoneMatch},
		{http.MethodGet, []string{etag.IfMatch, `"a"`}, etag.IfMatch},
		{http.MethodGet, []string{"If-Unmodified-Since", date}, "If-Unmodified-Since"},
	} {
		h := http.Header{}
		for i := 0; i < len(c.header); i += 2 {
			h.Set(c.header[i], c.header[i+1])
		}
		got := ""
		if err := etag.Refuse(c.method, h); err != nil {
			got = rpcerr.HTTP(err).Body.GetError().GetField()
		}
		if got != c.want {
			t.Errorf("Refuse(%s, %q) = %q, want %q", c.method, c.header, got, c.want)
		}
	}
}
