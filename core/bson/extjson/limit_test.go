package extjson_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson/extjson"
)

// TestLimit reads texts whose BSON is just as long as the limit, and one byte
// longer.
func TestLimit(t *testing.T) {
	for _, text := range []string{
		`{"a": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}`,
		`{"a": 1, "b": 2, "c": {"d": [true, {"e": "f"}]}}`,
		`{"a": {"$code": "x", "$scope": {"b": [1, 2, 3]}}}`,
		`{"a": "` + strings.Repeat("x", 100) + `"}`,
	} {
		want, err := extjson.Parse(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		dst := []byte("what is there already does not count")
		for _, add := range []int{0, 1, 100} {
			if got, err := extjson.Limit(len(want)+add).Parse(dst, []byte(text)); err != nil ||
				string(got[len(dst):]) != string(want) {
				t.Errorf("%s within %d bytes: %v", text, len(want)+add, err)
			}
		}
		// the last byte ends the document, and is not looked at
		limit := extjson.Limit(len(want) - 2)
		if got, err := limit.Parse(dst, []byte(text)); !isTooLarge(err) || len(got) != len(dst) {
			t.Errorf("%s within %d bytes: %d bytes, %v", text, limit, len(got), err)
		}
		if _, _, err := limit.ParsePrefix(dst, []byte(text)); !isTooLarge(err) {
			t.Errorf("%s within %d bytes, as a prefix: %v", text, limit, err)
		}
		if _, _, err := limit.ParseValue(dst, []byte(`[`+text+`]`)); !isTooLarge(err) {
			t.Errorf("%s within %d bytes, as a value: %v", text, limit, err)
		}
		if _, _, _, err := limit.ParseValuePrefix(dst, []byte(`[`+text+`]`)); !isTooLarge(err) {
			t.Errorf("%s within %d bytes, as a value and a prefix: %v", text, limit, err)
		}
	}
	_, err := extjson.Limit(30).Parse(nil, []byte(`{"a": {"b": [1, 1, 1, 1]}}`))
	if syntax, ok := errors.AsType[*extjson.SyntaxError](err); !ok || syntax.Path != "a.b" ||
		syntax.Offset != 17 {
		t.Errorf("the place: %v", err)
	}
	if _, err := extjson.Limit(1).Parse(nil, []byte(`{"a": }`)); err == nil || isTooLarge(err) {
		t.Errorf("malformed JSON: %v", err)
	}
}

// isTooLarge reports whether err says that a text is larger than its limit.
func isTooLarge(err error) bool {
	syntax, ok := errors.AsType[*extjson.SyntaxError](err)
	return ok && syntax.TooLarge
}

// TestLimitHoldsBack reads what becomes six times longer than its text.
func TestLimitHoldsBack(t *testing.T) {
	text := []byte("[" + strings.Repeat("1,", 4<<20) + "1]")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := extjson.Limit(1<<20).ParseValue(nil, text); err == nil {
		t.Error("40 MiB are within 1 MiB")
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("it took %d bytes to find out", took)
	}
}
