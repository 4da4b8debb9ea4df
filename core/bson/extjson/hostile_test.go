package extjson_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestDepth(t *testing.T) {
	deep := func(n int, open, inner, closing string) []byte {
		return []byte(strings.Repeat(open, n) + inner + strings.Repeat(closing, n))
	}
	// A wrapper in the innermost document does not count, nor does its inside.
	for _, inner := range []string{
		"1", `{"$date":{"$numberLong":"1"}}`, `{"$binary":{"base64":"","subType":"0"}}`,
	} {
		text := deep(extjson.MaxDepth, `{"a":`, inner, `}`)
		d, err := extjson.Parse(nil, text)
		if err != nil || bson.Raw(d).Validate() != nil {
			t.Fatalf("%d levels around %s: %v", extjson.MaxDepth, inner, err)
		}
		out, err := extjson.Append(nil, d, extjson.Canonical)
		if again, err2 := extjson.Parse(nil, out); err != nil || err2 != nil ||
			!bytes.Equal(again, d) {
			t.Errorf("%d levels around %s and back: %v, %v", extjson.MaxDepth, inner, err, err2)
		}
	}
	for name, text := range map[string][]byte{
		"201 documents":     deep(extjson.MaxDepth+1, `{"a":`, "1", "}"),
		"scope at the end":  deep(extjson.MaxDepth, `{"a":`, `{"$code":"","$scope":{}}`, "}"),
		"documents":         deep(1_000_000, `{"a":`, "1", "}"),
		"documents, open":   deep(1_000_000, `{"a":`, "", ""),
		"arrays":            []byte(`{"a":` + strings.Repeat("[", 1_000_000)),
		"scopes":            deep(1_000_000, `{"a":{"$code":"","$scope":`, "{}", "}}"),
		"scopes first":      deep(1_000_000, `{"$scope":`, "{}", "}"),
		"scopes in a value": append([]byte(`{"a":`), deep(1_000_000, `{"$scope":`, "{}", "}")...),
		"pointers":          append([]byte(`{"a":`), deep(1_000_000, `{"$dbPointer":`, "{}", "}")...),
		"ids":               append([]byte(`{"a":`), deep(1_000_000, `{"$oid":`, "{}", "}")...),
	} {
		var err error
		used := allocated(func() { _, _, err = extjson.ParsePrefix(nil, text) })
		if err == nil || len(err.Error()) > 1000 || used > 1<<20 {
			t.Errorf("%s: error %v, %d bytes allocated", name, err, used)
		}
		if _, err := extjson.Parse(nil, text); err == nil {
			t.Errorf("%s: Parse has no error", name)
		}
	}
	// A document can hold any value that is read.
	for _, row := range []struct {
		levels int
		ok     bool
	}{{extjson.MaxDepth - 1, true}, {extjson.MaxDepth, false}} {
		for _, text := range [][]byte{
			deep(row.levels, "[", "", "]"), deep(row.levels, `{"a":`, "1", "}"),
		} {
			if _, _, err := extjson.ParseValue(nil, text); (err == nil) != row.ok {
				t.Errorf("ParseValue of %d levels: %v", row.levels, err)
			}
			v, _, _, err := extjson.ParseValuePrefix(nil, text)
			if (err == nil) != row.ok {
				t.Errorf("ParseValuePrefix of %d levels: %v", row.levels, err)
			}
			if err == nil && bson.NewBuilder(nil).Value("v", v).Finish().Validate() != nil {
				t.Errorf("no document can hold a value of %d levels", row.levels)
			}
		}
	}
	tooDeep := bson.NewBuilder(nil)
	for range extjson.MaxDepth {
		tooDeep.OpenArray("a")
	}
	for range extjson.MaxDepth {
		tooDeep.Close()
	}
	if _, err := extjson.Append(nil, tooDeep.Finish(), extjson.Relaxed); err == nil ||
		!strings.Contains(err.Error(), "deep") {
		t.Errorf("writing 201 levels: %v", err)
	}
}

// TestScopesFirst checks that scopes within scopes become the same before their code as behind it,
// and that all levels together take little more memory than the text.
func TestScopesFirst(t *testing.T) {
	const levels = extjson.MaxDepth - 1
	for name, code := range map[string]string{
		"no code": "", "short": "f()", "long": strings.Repeat("x", 10_000),
	} {
		for _, inner := range []string{"1", `"` + strings.Repeat("y", 1<<20) + `"`} {
			first := `{"a":` + strings.Repeat(`{"$scope":{"a":`, levels) + inner +
				strings.Repeat(`},"$code":"`+code+`"}`, levels) + "}"
			last := `{"a":` + strings.Repeat(`{"$code":"`+code+`","$scope":{"a":`, levels) + inner +
				strings.Repeat("}}", levels) + "}"
			want, err := extjson.Parse(nil, []byte(last))
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			text := []byte(first)
			used := allocated(func() { got, err = extjson.Parse(nil, text) })
			if err != nil || !bytes.Equal(got, want) || used > 4*uint64(len(text)) {
				t.Errorf("%s around %.3s: %d bytes, %v, want %d; %d bytes allocated for %d", name,
					inner, len(got), err, len(want), used, len(text))
			}
		}
	}
}

// Every document and every text of the corpus is cut at every byte.
func TestTruncation(t *testing.T) {
	for name, f := range readCorpus(t) {
		for _, c := range f.Valid {
			d := unhex(t, c.CanonicalBSON)
			for n := range d {
				if bson.Raw(d[:n]).Validate() == nil {
					t.Errorf("%s, %s: %d bytes are valid", name, c.Description, n)
				}
				if n > 0 {
					if _, err := extjson.Append(nil, d[:n], extjson.Canonical); err == nil {
						t.Errorf("%s, %s: %d bytes are written", name, c.Description, n)
					}
				}
				if n < 5 {
					continue
				}
				cut := bytes.Clone(d[:n])
				binary.LittleEndian.PutUint32(cut, uint32(n))
				cut[n-1] = 0
				both(t, cut)
			}
			text := c.CanonicalExtJSON
			for n := range text {
				if out, err := extjson.Parse(nil, []byte(text[:n])); err == nil {
					t.Errorf("%s is read as %x", text[:n], out)
				}
			}
		}
		for _, c := range f.DecodeErrors {
			both(t, unhex(t, c.BSON))
		}
	}
}

// both checks that a document that is valid is written, and that the text is
// read as the same document unless Extended JSON cannot carry it.
func both(t *testing.T, d bson.Raw) {
	for _, m := range []extjson.Mode{
		extjson.Relaxed, extjson.Canonical, extjson.RelaxedSafe, extjson.Plain,
	} {
		text, err := extjson.Append(nil, d, m)
		if (err == nil) != (d.Validate() == nil) {
			t.Errorf("%x in mode %d: Append error %v, Validate error %v", []byte(d), m, err,
				d.Validate())
		}
		if err != nil || m == extjson.Plain {
			continue
		}
		back, err := extjson.Parse(nil, text)
		if err != nil {
			if !resemblesWrapper(d) {
				t.Errorf("%s from %x: %v", text, []byte(d), err)
			}
			continue
		}
		if m == extjson.Canonical && !resemblesWrapper(d) && !lossy(d) &&
			!bytes.Equal(back, bson.AppendNormal(nil, d)) {
			t.Errorf("%x → %s → %x", []byte(d), text, back)
		}
	}
}

var special = map[string]bool{
	"$oid": true, "$symbol": true, "$numberInt": true, "$numberLong": true, "$numberDouble": true, "$numberDecimal": true,
	"$binary": true, "$code": true, "$scope": true, "$timestamp": true, "$regularExpression": true, "$dbPointer": true, "$date": true,
	"$minKey": true, "$maxKey": true, "$undefined": true, "$uuid": true,
}

// resemblesWrapper reports whether an embedded document has a wrapper's key.
func resemblesWrapper(d bson.Raw) bool {
	for _, v := range d.All() {
		if _, scope, ok := v.CodeWithScope(); ok {
			v = bson.DocumentValue(scope)
		}
		if v.Type != bson.TypeDocument && v.Type != bson.TypeArray {
			continue
		}
		if v.Type == bson.TypeDocument {
			for key := range bson.Raw(v.Data).All() {
				if special[key] {
					return true
				}
			}
		}
		if resemblesWrapper(v.Data) {
			return true
		}
	}
	return false
}

// lossy reports whether a document has a NaN with a payload or a Decimal128 that
// is not canonical.
func lossy(d bson.Raw) bool {
	for _, v := range d.All() {
		if f, ok := v.Double(); ok && f != f {
			return true
		}
		if dec, ok := v.Decimal128(); ok {
			if again, err := bson.ParseDecimal128(dec.String()); err != nil || again != dec {
				return true
			}
		}
		if _, scope, ok := v.CodeWithScope(); ok && lossy(scope) {
			return true
		}
		if (v.Type == bson.TypeDocument || v.Type == bson.TypeArray) && lossy(v.Data) {
			return true
		}
	}
	return false
}

func TestGarbage(t *testing.T) {
	for name, text := range map[string][]byte{
		"spaces":      bytes.Repeat([]byte{' '}, 4<<20),
		"quotes":      append([]byte(`{"`), bytes.Repeat([]byte{'x'}, 100<<20)...),
		"backslashes": append([]byte(`{"`), bytes.Repeat([]byte{'\\'}, 4<<20)...),
		"digits":      append([]byte(`{"a":`), bytes.Repeat([]byte{'9'}, 4<<20)...),
		"long double": []byte(`{"a":{"$numberDouble":"` + strings.Repeat("9", 4<<20) + `"}}`),
		"long int":    []byte(`{"a":{"$numberLong":"` + strings.Repeat("9", 4<<20) + `"}}`),
		"commas":      append([]byte(`{"a":[`), bytes.Repeat([]byte{','}, 4<<20)...),
	} {
		var err error
		if used := allocated(func() {
			_, _, err = extjson.ParsePrefix(nil, text)
		}); err == nil || used > 1<<20 {
			t.Errorf("a flood of %s: %v, %d bytes allocated", name, err, used)
		}
	}
}
