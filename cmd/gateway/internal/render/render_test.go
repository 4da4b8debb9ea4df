package render_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/rivo/uniseg"

	"github.com/mooringdb/mooring/cmd/gateway/internal/render"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

func written(t *testing.T, o render.Options, docs ...string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := render.New(&b, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range docs {
		doc, err := extjson.Parse(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(doc); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTable(t *testing.T) {
	for _, row := range []struct {
		name  string
		width int
		docs  []string
		want  string
	}{
		{"nothing", 0, nil, "no documents\n"},
		{"types", 0, []string{
			`{"i": 1, "s": "a", "d": {"$date": "2024-01-02T03:04:05Z"}, "o": {"$oid": "0123456789abcdef01234567"}}`,
			`{"i": {"$numberDecimal": "10.50"}, "s": null, "d": true, "x": {"a": [1]}}`,
		}, "" +
			"    i  s     d                     o                         x\n" +
			"─────  ────  ────────────────────  ────────────────────────  ─────────\n" +
			"    1  a     2024-01-02T03:04:05Z  0123456789abcdef01234567\n" +
			"10.50  null  true                                            {\"a\":[1]}\n"},
		{"wide characters", 0, []string{`{"a": "日本", "b": 1}`, `{"a": "x👩‍👩‍👧", "b": 2}`}, "" +
			"a     b\n" + "────  ─\n" + "日本  1\n" + "x👩‍👩‍👧   2\n"},
		{"control characters", 0, []string{`{"a\u001b": "\u001b[31m\n\u202e"}`}, "" +
			"a\\x1b\n" + "────────────────\n" + "\\x1b[31m\\n\\u202e\n"},
		{
			"a narrow terminal", 20,
			[]string{`{"_id": 1, "text": "a long text that does not fit"}`},
			"" +
				"_id  text\n" + "───  ───────────────\n" + "  1  a long text th…\n",
		},
		{
			"columns without room", 20,
			[]string{`{"a": "12345678901", "b": "12345678901", "c": "x", "d": 1}`},
			"" +
				"a         b\n────────  ────────\n1234567…  1234567…\nnot shown: c, d (--output " +
				"ndjson shows all)\n",
		},
		{"one column", 5, []string{`{"a": "1234567"}`}, "a\n─────\n1234…\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := written(t, render.Options{Format: render.Table, Width: row.width}, row.docs...)
			if got != row.want {
				t.Errorf("got\n%s\nwant\n%s", got, row.want)
			}
			for line := range strings.Lines(got) {
				if w := uniseg.StringWidth(strings.TrimSuffix(line, "\n")); row.width > 0 &&
					w > row.width && !strings.HasPrefix(line, "not shown") {
					t.Errorf("%q is %d wide, want %d at most", line, w, row.width)
				}
			}
		})
	}
}

// TestLaterColumns checks that fields which the first documents lack are named.
func TestLaterColumns(t *testing.T) {
	var docs []string
	for i := range 300 {
		docs = append(docs, fmt.Sprintf(`{"a": %d}`, i))
	}
	docs = append(docs, `{"a": 1, "late": 2}`)
	got := written(t, render.Options{Format: render.Table}, docs...)
	if lines := strings.Count(got, "\n"); lines != 2+301+1 ||
		!strings.Contains(got, "not shown: late (") {
		t.Errorf("%d lines: %s", lines, got[len(got)-200:])
	}
}

// TestTableIsBounded checks that a table holds little of large documents.
func TestTableIsBounded(t *testing.T) {
	got := written(t, render.Options{Format: render.Table},
		`{"a": "`+strings.Repeat("x", 1<<20)+`"}`)
	if len(got) > 10_000 {
		t.Errorf("a table of a document of 1 MiB has %d bytes", len(got))
	}
}

func TestJSON(t *testing.T) {
	docs := []string{`{"a": {"$numberLong": "1"}}`, `{"b": "\u001b"}`}
	for _, row := range []struct {
		o    render.Options
		want string
	}{
		{render.Options{Format: render.NDJSON}, "{\"a\":1}\n{\"b\":\"\\u001b\"}\n"},
		{render.Options{Format: render.NDJSON, Mode: extjson.Canonical}, "{\"a\":{\"$numberLong\":\"1\"}}\n{\"b\":\"\\u001b\"}\n"},
		{render.Options{Format: render.JSON}, "[\n{\"a\":1},\n{\"b\":\"\\u001b\"}\n]\n"},
	} {
		if got := written(t, row.o, docs...); got != row.want {
			t.Errorf("%v: %q, want %q", row.o, got, row.want)
		}
	}
	if got := written(t, render.Options{Format: render.JSON}); got != "[]\n" {
		t.Errorf("no documents: %q", got)
	}
	if _, err := render.New(nil, render.Options{Format: "xml"}); err == nil {
		t.Error("xml is a format")
	}
}

// TestNoColumns has fields whose names cannot be those of columns.
func TestNoColumns(t *testing.T) {
	for _, name := range []string{"a.b", "", "caf\xe9"} {
		var b bytes.Buffer
		w, err := render.New(&b, render.Options{Format: render.CSV})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(bson.NewBuilder(nil).Int32(name, 1).Finish()); err != nil {
			t.Fatal(err)
		}
		const want = "cannot be a column"
		if err := w.Close(); err == nil || !strings.Contains(err.Error(), want) || b.Len() > 0 {
			t.Errorf("%q: %v, %q, want that it %s", name, err, b.String(), want)
		}
	}
}
