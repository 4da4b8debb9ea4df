package extjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

func TestAppendModes(t *testing.T) {
	id, _ := bson.ParseObjectID("56e1fc72e0c917e9c4714161")
	scope := bson.NewBuilder(nil).Int32("x", 1).Finish()
	dec, _ := bson.ParseDecimal128("1.50")
	for _, c := range []struct {
		v                               bson.Value
		canonical, relaxed, safe, plain string // relaxed: as canonical if empty; safe: as relaxed
	}{
		{bson.DoubleValue(1), `{"$numberDouble":"1.0"}`, `1.0`, ``, `1`},
		{bson.DoubleValue(math.Copysign(0, -1)), `{"$numberDouble":"-0.0"}`, `-0.0`, ``, `-0`},
		{bson.DoubleValue(1e300), `{"$numberDouble":"1E+300"}`, `1E+300`, ``, `1e+300`},
		{bson.DoubleValue(math.NaN()), `{"$numberDouble":"NaN"}`, ``, ``, `null`},
		{bson.DoubleValue(math.Inf(1)), `{"$numberDouble":"Infinity"}`, ``, ``, `null`},
		{bson.DoubleValue(math.Inf(-1)), `{"$numberDouble":"-Infinity"}`, ``, ``, `null`},
		{bson.StringValue("a\"\\/\x00\x1f\b\t\n\f\ré😀\u2028<>"), `"a\"\\/\u0000\u001f\b\t\n\f\ré😀` + "\u2028" + `<>"`, ``, ``, `"a\"\\/\u0000\u001f\b\t\n\f\ré😀` + "\u2028" + `<>"`},
		{bson.DocumentValue(scope), `{"x":{"$numberInt":"1"}}`, `{"x":1}`, ``, `{"x":1}`},
		{bson.DocumentValue(nil), `{}`, ``, ``, `{}`},
		{bson.ArrayValue(nil), `[]`, ``, ``, `[]`},
		{bson.BinaryValue(5, []byte{1, 2, 3}), `{"$binary":{"base64":"AQID","subType":"05"}}`, ``, ``, `{"Subtype":5,"Data":"AQID"}`},
		{bson.BinaryValue(2, []byte{1, 2, 3}), `{"$binary":{"base64":"AQID","subType":"02"}}`, ``, ``, `{"Subtype":2,"Data":"AQID"}`},
		{bson.UndefinedValue(), `{"$undefined":true}`, ``, ``, `{}`},
		{bson.ObjectIDValue(id), `{"$oid":"56e1fc72e0c917e9c4714161"}`, ``, ``, `"56e1fc72e0c917e9c4714161"`},
		{bson.BoolValue(true), `true`, ``, ``, `true`},
		{bson.DateTimeValue(1356351330501), `{"$date":{"$numberLong":"1356351330501"}}`, `{"$date":"2012-12-24T12:15:30.501Z"}`, ``, `"2012-12-24T12:15:30.501Z"`},
		{bson.NullValue(), `null`, ``, ``, `null`},
		{bson.RegexValue("a/b", "xi"), `{"$regularExpression":{"pattern":"a/b","options":"ix"}}`, ``, ``, `{"Pattern":"a/b","Options":"ix"}`},
		{bson.Value{Type: bson.TypeRegex, Data: []byte("a\x00xié\x00")}, `{"$regularExpression":{"pattern":"a","options":"ixé"}}`, ``, ``, `{"Pattern":"a","Options":"ixé"}`},
		{bson.DBPointerValue("d.c", id), `{"$dbPointer":{"$ref":"d.c","$id":{"$oid":"56e1fc72e0c917e9c4714161"}}}`, ``, ``, `{"DB":"d.c","Pointer":"56e1fc72e0c917e9c4714161"}`},
		{bson.JavaScriptValue("f()"), `{"$code":"f()"}`, ``, ``, `"f()"`},
		{bson.SymbolValue("s"), `{"$symbol":"s"}`, ``, ``, `"s"`},
		{bson.CodeWithScopeValue("f", scope), `{"$code":"f","$scope":{"x":{"$numberInt":"1"}}}`, `{"$code":"f","$scope":{"x":1}}`, ``, `{"Code":"f","Scope":{"x":1}}`},
		{bson.Int32Value(-5), `{"$numberInt":"-5"}`, `-5`, ``, `-5`},
		{bson.TimestampValue(math.MaxUint32, 2), `{"$timestamp":{"t":4294967295,"i":2}}`, ``, ``, `{"T":4294967295,"I":2}`},
		{bson.Int64Value(1<<53 - 1), `{"$numberLong":"9007199254740991"}`, `9007199254740991`, ``, `9007199254740991`},
		{bson.Int64Value(-1 << 53), `{"$numberLong":"-9007199254740992"}`, `-9007199254740992`, `{"$numberLong":"-9007199254740992"}`, `-9007199254740992`},
		{bson.Int64Value(math.MaxInt64), `{"$numberLong":"9223372036854775807"}`, `9223372036854775807`, `{"$numberLong":"9223372036854775807"}`, `9223372036854775807`},
		{bson.Decimal128Value(dec), `{"$numberDecimal":"1.50"}`, ``, ``, `"1.50"`},
		{bson.MinKeyValue(), `{"$minKey":1}`, ``, ``, `{}`},
		{bson.MaxKeyValue(), `{"$maxKey":1}`, ``, ``, `{}`},
	} {
		if c.relaxed == "" {
			c.relaxed = c.canonical
		}
		if c.safe == "" {
			c.safe = c.relaxed
		}
		for m, want := range map[extjson.Mode]string{
			extjson.Canonical: c.canonical, extjson.Relaxed: c.relaxed, extjson.RelaxedSafe: c.safe, extjson.Plain: c.plain,
		} {
			got, err := extjson.AppendValue([]byte("x"), c.v, m)
			if err != nil || string(got) != "x"+want {
				t.Errorf("AppendValue(%v, mode %d) = %s, %v, want x%s", c.v.Type, m, got, err, want)
			}
			doc := bson.NewBuilder(nil).OpenArray("a b").Value("", c.v).Value("", c.v).Close().
				Finish()
			got, err = extjson.Append(nil, doc, m)
			if err != nil || string(got) != `{"a b":[`+want+","+want+"]}" {
				t.Errorf("Append(%v, mode %d) = %s, %v", c.v.Type, m, got, err)
			}
			if !json.Valid(got) {
				t.Errorf("%s is not JSON", got)
			}
		}
	}
	if got, err := extjson.Append(nil, nil, extjson.Relaxed); err != nil || string(got) != "{}" {
		t.Errorf("Append(nil) = %s, %v", got, err)
	}
}

func TestAppendKeys(t *testing.T) {
	for key, want := range map[string]string{
		"": `""`, "a\"b": `"a\"b"`, "é": `"é"`, "longer than eight": `"longer than eight"`, "12345678\n": `"12345678\n"`,
	} {
		got := write(t, bson.NewBuilder(nil).Null(key).Finish(), extjson.Canonical)
		if got != "{"+want+":null}" {
			t.Errorf("key %q = %s", key, got)
		}
	}
}

func TestAppendErrors(t *testing.T) {
	for _, c := range []struct{ name, hex, path, problem string }{
		{"bad UTF-8", "10000000" + "02" + "610004000000" + "6162FF00" + "00", "a", "UTF-8"},
		{"bad UTF-8 in a key", "08000000" + "0A" + "FF00" + "00", "\uFFFD", "UTF-8"},
		{"bad UTF-8 in the key of an array's element", "10000000" + "04" + "6100" + "08000000" + "0A" + "FF00" + "00" + "00", "a.\uFFFD", "UTF-8"},
		{"array key without end", "0F000000" + "04" + "6100" + "07000000" + "0A" + "61" + "00" + "00", "a.a", "not terminated"},
		{"bad UTF-8 in a pattern", "0B000000" + "0B" + "6100" + "FF00" + "00" + "00", "a", "UTF-8"},
		{"bad bool", "09000000" + "08" + "610002" + "00", "a", "boolean"},
		{"unknown type", "08000000" + "20" + "6100" + "00", "a", "unknown"},
		{"nested", "15000000" + "03" + "6100" + "0D000000" + "02" + "6200" + "000000000000"[:8] + "00" + "00" + "00", "a.b", "wrong length"},
		{"bytes after", "0500000000" + "01", "", "bytes after"},
	} {
		d := unhex(t, c.hex)
		for _, m := range []extjson.Mode{
			extjson.Relaxed, extjson.Canonical, extjson.RelaxedSafe, extjson.Plain,
		} {
			out, err := extjson.Append([]byte("x"), d, m)
			if syntax, ok := errors.AsType[*extjson.SyntaxError](err); !ok ||
				syntax.Path != c.path || !strings.Contains(syntax.Problem, c.problem) ||
				string(out) != "x" {
				t.Errorf("%s: Append = %s, %v, want %s at %q", c.name, out, err, c.problem, c.path)
			}
		}
	}
	for _, v := range []bson.Value{
		{},
		{Type: bson.TypeInt32},
		{Type: bson.TypeDouble, Data: make([]byte, 7)},
		{Type: bson.TypeNull, Data: make([]byte, 1)},
		{Type: bson.TypeDocument, Data: []byte{5, 0, 0, 0, 1}},
		{Type: bson.TypeCodeWithScope, Data: make([]byte, 20)},
		{Type: bson.TypeDecimal128, Data: make([]byte, 15)},
		{Type: bson.TypeObjectID, Data: make([]byte, 11)},
		{Type: bson.TypeBool},
		{Type: bson.TypeDBPointer, Data: []byte{1, 0, 0, 0, 0}},
		{Type: bson.TypeRegex},
		{Type: bson.TypeBinary, Data: []byte{1, 0, 0, 0, 0}},
	} {
		for _, m := range []extjson.Mode{extjson.Canonical, extjson.Plain} {
			if out, err := extjson.AppendValue(nil, v, m); err == nil {
				t.Errorf("AppendValue(%v %x) = %s, want an error", v.Type, v.Data, out)
			}
		}
	}
}

// Dates agree with package time on each day of the range, and on random moments.
func TestDatesAgainstTime(t *testing.T) {
	check := func(ms int64) {
		want := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
		got, err := extjson.AppendValue(nil, bson.DateTimeValue(ms), extjson.Plain)
		if err != nil || string(got) != `"`+want+`"` {
			t.Fatalf("date %d = %s, want %s", ms, got, want)
		}
		v, _, err := extjson.ParseValue(nil, []byte(`{"$date":`+string(got)+`}`))
		if back, _ := v.DateTime(); err != nil || back != ms {
			t.Fatalf("date %s = %d, %v, want %d", got, back, err, ms)
		}
	}
	const low, high = -62167219200000, 253402300799999
	for ms := int64(low); ms <= high; ms += 97 * 86_400_000 {
		check(ms)
	}
	for range 10_000 {
		check(low + rand.Int64N(high-low))
	}
}

// Doubles read back as they were, from any bit pattern.
func TestDoublesRoundTrip(t *testing.T) {
	for range 10_000 {
		f := math.Float64frombits(rand.Uint64())
		for _, f := range []float64{
			f, float64(float32(f)), math.Trunc(math.Mod(f, 1e17)), float64(rand.Int64N(2000)-1000) / 100,
		} {
			if math.IsNaN(f) || math.IsInf(f, 0) {
				continue
			}
			for _, m := range []extjson.Mode{extjson.Relaxed, extjson.Canonical} {
				text, err := extjson.AppendValue(nil, bson.DoubleValue(f), m)
				if err != nil {
					t.Fatal(err)
				}
				if v, _, err := extjson.ParseValue(nil, text); err != nil ||
					!v.Equal(bson.DoubleValue(f)) {
					t.Fatalf("%s reads back as %v %x, %v", text, v.Type, v.Data, err)
				}
			}
		}
	}
}

func TestAllocations(t *testing.T) {
	doc := parse(t, document)
	for _, m := range []extjson.Mode{
		extjson.Relaxed, extjson.Canonical, extjson.RelaxedSafe, extjson.Plain,
	} {
		buf := []byte(write(t, doc, m))
		if n := testing.AllocsPerRun(100, func() {
			buf, _ = extjson.Append(buf[:0], doc, m)
		}); n != 0 {
			t.Errorf("writing in mode %d allocates %v times", m, n)
		}
		if m == extjson.Plain {
			continue
		}
		text := bytes.Clone(buf)
		var bin []byte
		if n := testing.AllocsPerRun(100, func() {
			bin, _ = extjson.Parse(bin[:0], text)
		}); n != 0 {
			t.Errorf("reading mode %d into a buffer allocates %v times", m, n)
		}
		if n := testing.AllocsPerRun(100, func() { bin, _ = extjson.Parse(nil, text) }); n > 1 {
			t.Errorf("reading mode %d allocates %v times", m, n)
		}
	}
}

// document is one as applications have them.
const document = `{"_id":{"$oid":"56e1fc72e0c917e9c4714161"},"name":"Ada Lovelace","born":{"$date":"1815-12-10T00:00:00Z"},` +
	`"age":36,"balance":1234.56,"visits":{"$numberLong":"9007199254740993"},"active":true,"tags":["a","b","c\n"],` +
	`"address":{"street":"12 St James's Square","city":"London","geo":[-0.1337,51.5074]},"price":{"$numberDecimal":"19.99"},` +
	`"data":{"$binary":{"base64":"AQIDBAUGBwgJCgsMDQ4PEA==","subType":"00"}},"at":{"$timestamp":{"t":1700000000,"i":3}},"gone":null,` +
	`"text":"Überraschung: ☆ und mehr als acht Zeichen"}`

// everything has each type once.
const everything = `{"double":{"$numberDouble":"1.5"},"string":"s","document":{"a":{"b":null}},"array":[1,[2]],` +
	`"binary":{"$binary":{"base64":"AQID","subType":"80"}},"old":{"$binary":{"base64":"AQID","subType":"02"}},"undefined":{"$undefined":true},` +
	`"oid":{"$oid":"56e1fc72e0c917e9c4714161"},"bool":false,"date":{"$date":{"$numberLong":"-1"}},"null":null,` +
	`"regex":{"$regularExpression":{"pattern":"^a","options":"i"}},"pointer":{"$dbPointer":{"$ref":"c","$id":{"$oid":"56e1fc72e0c917e9c4714161"}}},` +
	`"code":{"$code":"f"},"symbol":{"$symbol":"s"},"scope":{"$code":"f","$scope":{"x":{"$code":"g","$scope":{}}}},"int32":1,` +
	`"timestamp":{"$timestamp":{"t":1,"i":2}},"int64":{"$numberLong":"1"},"decimal":{"$numberDecimal":"1.5"},"min":{"$minKey":1},"max":{"$maxKey":1}}`

func BenchmarkAppend(b *testing.B) {
	doc := parse(b, document)
	for name, m := range map[string]extjson.Mode{
		"relaxed": extjson.Relaxed, "canonical": extjson.Canonical, "plain": extjson.Plain,
	} {
		b.Run(name, func(b *testing.B) {
			var buf []byte
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				buf, _ = extjson.Append(buf[:0], doc, m)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	doc := parse(b, document)
	for name, m := range map[string]extjson.Mode{
		"relaxed": extjson.Relaxed, "canonical": extjson.Canonical,
	} {
		b.Run(name, func(b *testing.B) {
			text := []byte(write(b, doc, m))
			var buf []byte
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				buf, _ = extjson.Parse(buf[:0], text)
			}
		})
	}
}
