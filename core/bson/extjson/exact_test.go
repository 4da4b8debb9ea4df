package extjson_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson/extjson"
)

// TestExactSpelling damages wrappers and keys in their usual spelling. A space takes each away from
// the short way, and must change nothing but the offset of an error.
func TestExactSpelling(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, usual := range []string{
		`{"$oid":"56e1fc72e0c917e9C4714161"}`,
		`{"$date":"2012-12-24T12:15:30Z"}`,
		`{"$date":"2000-02-29T23:59:59.987Z"}`,
		`{"$date":"0000-01-01T00:00:00.000Z"}`,
		`{"count":1}`,
		`{"status7":"shipped"}`,
	} {
		colon := strings.IndexByte(usual, ':')
		for i := range 3000 {
			text := []byte(usual)
			if i > 0 {
				at := 1 + r.IntN(len(text)-1)
				text[at] = `"0123456789abfgTZtzU[:;.,/-+}{$ \`[r.IntN(33)]
			}
			if i%10 == 9 {
				text = text[:r.IntN(len(text))]
			}
			if len(text) <= colon || string(text[colon-1:colon+1]) != `":` ||
				text[colon-2] == '\\' {
				continue // the space would be in a string
			}
			spaced := bytes.Join([][]byte{text[:colon], text[colon:]}, []byte(" "))
			v, _, err := extjson.ParseValue(nil, text)
			w, _, spacedErr := extjson.ParseValue(nil, spaced)
			if (err == nil) != (spacedErr == nil) || !v.Equal(w) {
				t.Fatalf("%s is %v, %v; %s is %v, %v", text, v, err, spaced, w, spacedErr)
			}
			a, ok := errors.AsType[*extjson.SyntaxError](err)
			b, _ := errors.AsType[*extjson.SyntaxError](spacedErr)
			if ok && (a.Problem != b.Problem || a.Path != b.Path) {
				t.Fatalf("%s: %v; %s: %v", text, a, spaced, b)
			}
		}
	}
}

// TestNumbersAgainstStrconv reads numbers with a fraction, which are computed in a shorter way if
// they have few digits.
func TestNumbersAgainstStrconv(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, text := range []string{
		"0.0", "-0.0", "0.1", "-0.1", "9007199254740992.0", "9007199254740993.0", "900719925474099.3",
		"0.00000000000000000000001", "0.0000000000000000000001", "1.0000000000000000000", "149.850",
		"0.1e2", "18446744073709551615.5", "1844674407370955161.5", "1.123456781234567812345678",
	} {
		readDouble(t, text)
	}
	for c := range 256 { // one byte of those that are read together
		if c|0x20 == 'e' {
			continue
		}
		text := []byte("1.234" + string([]byte{byte(c)}) + "56780123")
		if _, _, err := extjson.ParseValue(nil, text); (err == nil) != (c >= '0' && c <= '9') {
			t.Errorf("%q: %v", text, err)
		}
	}
	for range 20_000 {
		readDouble(t, strconv.FormatFloat(r.NormFloat64()*1e6, 'f', 1+r.IntN(24), 64))
		readDouble(t, strconv.FormatUint(r.Uint64()>>r.IntN(64), 10)+"."+strconv.Itoa(r.Int()))
	}
}

func readDouble(t *testing.T, text string) {
	t.Helper()
	want, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	v, _, err := extjson.ParseValue(nil, []byte(text))
	if f, ok := v.Double(); err != nil || !ok || math.Float64bits(f) != math.Float64bits(want) {
		t.Errorf("%s is %v, %v, want %v", text, f, err, want)
	}
}
