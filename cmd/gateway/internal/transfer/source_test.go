package transfer

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// readAll returns what a file has: each document as JSON, each trouble as text, and the error that
// ends the file in brackets.
func readAll(t *testing.T, file []byte, o SourceOptions) string {
	t.Helper()
	from, _, err := newSource(bytes.NewReader(file), o)
	if err != nil {
		return "[" + err.Error() + "]"
	}
	var said []string
	for {
		r, err := from.next()
		switch {
		case errors.Is(err, io.EOF):
			return strings.Join(said, " ")
		case err != nil:
			return strings.Join(append(said, "["+err.Error()+"]"), " ")
		case r.trouble != nil:
			said = append(said, "<"+r.trouble.Error()+">")
		default:
			text, err := extjson.Append(nil, r.doc, extjson.Relaxed)
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, string(text))
		}
	}
}

func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestSources reads files of all formats by what their first bytes look like, and broken ones.
func TestSources(t *testing.T) {
	one := string(bson.NewBuilder(nil).Int32("a", 1).Finish())
	for name, row := range map[string]struct{ file, want string }{
		"empty":       {"", ""},
		"lines":       {"{\"a\":1}\n{\"a\":2}", `{"a":1} {"a":2}`},
		"blank lines": {"\n\r\n{\"a\":1}\r\n\n", `{"a":1}`},
		"a mark":      {"\xef\xbb\xbf{\"a\":1}\n", `{"a":1}`},
		"a broken line": {
			"{\"a\":1}\n{\"b\":}\n{\"c\":3}",
			`{"a":1} <line 2, column 6: b: unexpected '}', expected a value> {"c":3}`,
		},
		"an array":         {`[{"a":1}, {"a":"]}\"{"}]`, `{"a":1} {"a":"]}\"{"}`},
		"a mark, an array": {"\xef\xbb\xbf [\n{\"a\":1}]\n", `{"a":1}`},
		"an empty array":   {" [ ] ", ""},
		"a broken item": {
			"[{\"a\":\n ?},{\"b\":2}]",
			`<line 2, column 2: a: unexpected '?', expected a value> {"b":2}`,
		},
		"no comma":          {`[{"a":1} {"a":2}]`, `{"a":1} [line 1, column 10: expected , or ]]`},
		"a comma too many":  {`[{"a":1},]`, `{"a":1} [line 1, column 10: expected a document: {]`},
		"no end":            {`[{"a":1}`, `{"a":1} [line 1, column 9: the array is not closed]`},
		"no end of an item": {"[\n{\"a\":1", `[line 2, column 1: the document is not closed]`},
		"text after the end": {
			"[{\"a\":1}]\nx",
			`{"a":1} [line 2, column 1: unexpected text after the array]`,
		},
		"rows":             {"a,b\n1,x\n2,\n", `{"a":1,"b":"x"} {"a":2}`},
		"BSON":             {one + one, `{"a":1} {"a":1}`},
		"BSON that is cut": {one + one[:7], `{"a":1} [document 2: `},
		"gzip":             {packed(t, `{"a":1}`), `{"a":1}`},
		"gzip of gzip":     {packed(t, packed(t, `{"a":1}`)), "[line 1, column 2: the text is not UTF-8]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := readAll(t, []byte(row.file), SourceOptions{})
			cut := strings.HasSuffix(row.want, ": ") && strings.HasPrefix(got, row.want)
			if got != row.want && !cut {
				t.Errorf("%q:\n got %s\nwant %s", row.file, got, row.want)
			}
		})
	}
}

// TestLongLine checks that a line without an end costs a bounded amount of memory.
func TestLongLine(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"a":"`), repeating{})
	from, _, err := newSource(endless, SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("line 1, column 1: the line is longer than %d MiB", maxText>>20)
	if _, err := from.next(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// repeating is a file without an end.
type repeating struct{}

func (repeating) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
