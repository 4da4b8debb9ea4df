package extjson_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	stream := "{\"a\":1}\n\n \r\n{\"a\":2}\r\n{\"a\":\"" + long + "\"}\n{\"a\":x}\n{\"a\":3}"
	for name, r := range map[string]io.Reader{
		"at once": strings.NewReader(stream), "byte by byte": iotest.OneByteReader(strings.NewReader(stream)),
	} {
		reader := extjson.NewReader(r, 0)
		for i, want := range []string{`{"a":1}`, `{"a":2}`, `{"a":"` + long + `"}`, "", `{"a":3}`} {
			d, err := reader.Next()
			syntax, ok := errors.AsType[*extjson.SyntaxError](err)
			switch {
			case want == "" &&
				(!ok || !strings.HasPrefix(err.Error(), "line 6: ") || syntax.Offset != 5):
				t.Errorf("%s: the malformed line: %v", name, err)
			case want != "" && (err != nil || write(t, d, extjson.Relaxed) != want):
				t.Errorf("%s: document %d: %v", name, i, err)
			}
		}
		for range 2 {
			if _, err := reader.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("%s: at the end: %v", name, err)
			}
		}
	}
	if _, err := extjson.NewReader(strings.NewReader(`{"a":"0123456789"}`), 20).
		Next(); !errors.Is(err, bson.ErrTooLarge) {
		t.Errorf("a document beyond the limit: %v", err)
	}
	endless := io.MultiReader(strings.NewReader(`{"a":"`), &repeat{})
	var err error
	if used := allocated(func() {
		_, err = extjson.NewReader(endless, 100<<10).Next()
	}); !errors.Is(err, bson.ErrTooLarge) || used > 20<<20 {
		t.Errorf("an endless line: %v, %d bytes allocated", err, used)
	}
	broken := errors.New("broken")
	n := 0
	for _, err = range extjson.NewReader(io.MultiReader(strings.NewReader("{}\n{"),
		iotest.ErrReader(broken)), 0).All() {
		n++
	}
	if n != 2 || !errors.Is(err, broken) {
		t.Errorf("a broken stream: %d results, then %v", n, err)
	}
}

// repeat is an endless stream of one letter.
type repeat struct{}

func (*repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
