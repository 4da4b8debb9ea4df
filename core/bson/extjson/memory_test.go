package extjson_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson/extjson"
)

// rationed is a memory that gives as little as it may, and remembers what it has given.
type rationed struct {
	t      *testing.T
	start  int
	given  int // the capacity of the last buffer
	most   int
	err    error
	before []byte
}

func (r *rationed) Grow(dst []byte, start, n int) ([]byte, error) {
	if start != r.start || !bytes.HasPrefix(dst, r.before) {
		r.t.Errorf("Grow of %q from %d on", dst, start)
	}
	if r.given > 0 && cap(dst) != r.given {
		r.t.Errorf("a buffer of %d bytes has grown to %d without being asked for", r.given,
			cap(dst))
	}
	if len(dst)+n > r.most {
		return nil, r.err
	}
	out := append(make([]byte, 0, len(dst)+n), dst...)
	r.given = cap(out)
	return out, nil
}

var growing = []string{
	`{"a": [` + strings.Repeat("1,", 5000) + `1]}`,
	`{` + strings.Repeat(`"k": 1e9, `, 1000) + `"k": null}`,
	`{"a": "` + strings.Repeat("x", 10_000) + `"}`,
	`{"` + strings.Repeat("k", 10_000) + `": "` + strings.Repeat(`\u00e9`, 1000) + `"}`,
	`{"a": ` + strings.Repeat("[", 150) + strings.Repeat("]", 150) + `}`,
	`{"a": ` + strings.Repeat(`{"a": `, 150) + `1` + strings.Repeat("}", 150) + `}`,
	`{"a": {"$binary": {"base64": "` + strings.Repeat("AAAA", 5000) + `", "subType": "00"}}}`,
	`{"a": {"$binary": {"base64": "` + strings.Repeat("AAAA", 500) + `", "subType": "02"}}}`,
	`{"a": {"$code": "` + strings.Repeat("x", 1000) + `", "$scope": {"b": [1, 2, 3]}}}`,
	`{"a": {"$scope": {"b": [1, 2, 3]}, "$code": "` + strings.Repeat("x", 1000) + `"}}`,
	`{"a": {"$scope": {"b": "` + strings.Repeat("x", 1000) + `"}, "$code": "` + strings.Repeat("x", 900) + `"}}`,
	`{"a": {"$regularExpression": {"pattern": "` + strings.Repeat("x", 1000) + `", "options": "i"}}}`,
	`{"a": {"$dbPointer": {"$ref": "` + strings.Repeat("x", 1000) + `", "$id": {"$oid": "0123456789abcdef01234567"}}}}`,
	`{"a": {"$symbol": "` + strings.Repeat("x", 1000) + `"}}`,
	`{"a": [` + strings.Repeat(`{"$numberDecimal": "1"}, {"$uuid": "00112233-4455-6677-8899-aabbccddeeff"}, `, 300) + `true]}`,
}

// TestMemory checks that no buffer of a memory grows beyond what was asked for, that what it
// becomes is the same, and that the error of a memory that has no more is returned as it is.
func TestMemory(t *testing.T) {
	before := []byte("documents before it")
	for _, text := range growing {
		want, err := extjson.Parse(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r := &rationed{t: t, start: len(before), most: 1 << 20, before: before}
		by := extjson.Parser{Limit: extjson.NoLimit, Memory: r}
		dst := before[:len(before):len(before)]
		got, n, err := by.ParsePrefix(dst, []byte(text))
		if err != nil || n != len(text) || !bytes.Equal(got, append(dst, want...)) {
			t.Errorf("%.60s: %d of %d bytes, %v", text, len(got), len(want), err)
		}
		if cap(got) != r.given {
			t.Errorf("%.60s: the last buffer has grown from %d to %d bytes", text, r.given,
				cap(got))
		}
		none := errors.New("no memory")
		poor := &rationed{
			t: t, start: len(before), most: len(before) + len(want)/2, before: before, err: none,
		}
		by.Memory = poor
		if got, err := by.Parse(dst, []byte(text)); !errors.Is(err, none) ||
			len(got) != len(before) {
			t.Errorf("%.60s with half of the memory: %d bytes, %v", text, len(got), err)
		}
	}
}
