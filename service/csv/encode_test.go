package csv_test

import (
	"bytes"
	stdcsv "encoding/csv"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/csv"
)

func parse(t testing.TB, json string) bson.Raw {
	t.Helper()
	doc, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestEncode(t *testing.T) {
	const all = `{"s": "a", "n": null, "i": 1, "l": {"$numberLong": "9007199254740993"},
		"d": {"$numberDouble": "2.0"}, "e": {"$numberDecimal": "1.10"}, "b": true,
		"o": {"$oid": "5f1d7f3e9d3b2a0001234567"}, "at": {"$date": "2026-11-30T10:15:00.5Z"},
		"u": {"$uuid": "c8a5c0e0-5b1f-4c2e-9f1e-0123456789ab"},
		"x": {"$binary": {"base64": "Cv8=", "subType": "00"}},
		"list": [1, "two, three"], "in": {"a": {"b": "c"}}}`
	for name, test := range map[string]struct{ columns, doc, want string }{
		"types that are seen": {
			"s,n,i,l,d,e,b,o,at,u,x", all,
			"a,null,1,9007199254740993,2.0,1.10,true,5f1d7f3e9d3b2a0001234567," +
				"2026-11-30T10:15:00.500Z,c8a5c0e0-5b1f-4c2e-9f1e-0123456789ab,Cv8=",
		},
		"types that are said": {
			"n.int32(),i.int32(),at.date(ms),x.binary(hex),list.json()", all,
			`,1,1796033700500,0aff,"[{""$numberInt"":""1""},""two, three""]"`,
		},
		"within":     {"in.a.b,list.1,list.7,s.t,in.a.x", all, `c,"two, three",,,`},
		"a document": {"in", all, `"{""a"":{""b"":""c""}}"`},
		"a date without time": {
			"at", `{"at": {"$date": "2026-11-30T00:00:00Z"}}`, "2026-11-30T00:00:00Z",
		},
		"a date of year 10000": {
			"at", `{"at": {"$date": {"$numberLong": "253402300800000"}}}`,
			`"{""$date"":{""$numberLong"":""253402300800000""}}"`,
		},
		"what is empty": {"a,b", `{"a": ""}`, `"",`},
		"quotes":        {"a,b,c", `{"a": "\"", "b": " x", "c": "x\r\n"}`, "\"\"\"\",\" x\",\"x\r\n\""},
		"what is not a number": {
			"a,b,c", `{"a": {"$numberDouble": "NaN"}, "b": {"$numberDouble": "-Infinity"},
			"c": {"$numberDouble": "Infinity"}}`, "NaN,-Infinity,Infinity",
		},
		"a regular expression": {
			"a", `{"a": {"$regularExpression": {"pattern": "x", "options": "i"}}}`,
			`"{""$regularExpression"":{""pattern"":""x"",""options"":""i""}}"`,
		},
	} {
		e, err := csv.NewEncoder(columns(t, test.columns), csv.EncoderOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := e.AppendRow(nil, parse(t, test.doc))
		if err != nil || string(got) != test.want+"\n" {
			t.Errorf("%s: %v,\ngot  %s\nwant %s", name, err, got, test.want)
		}
	}
}

func TestEncodeHeader(t *testing.T) {
	const header = "a,\"b,c\",at.date(ms)\n"
	e, err := csv.NewEncoder(columns(t, header), csv.EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := e.AppendHeader(nil); string(got) != header {
		t.Errorf("the header is %q, want %q", got, header)
	}
	for name, of := range map[string][]csv.Column{
		"a column in another": {{Path: "a"}, {Path: "a.b"}}, "not UTF-8": {{Path: "caf\xe9"}},
	} {
		if _, err = csv.NewEncoder(of, csv.EncoderOptions{}); err == nil {
			t.Errorf("%s has an encoder", name)
		}
	}
}

// TestEncodeRefusals has documents that have no row: nothing of them is written.
func TestEncodeRefusals(t *testing.T) {
	const before = "before"
	for name, test := range map[string]struct {
		columns string
		doc     bson.Raw
		want    string
	}{
		"another type": {
			"a,b.int32()", parse(t, `{"a": 1, "b": "x"}`),
			`column "b.int32()": a value of type string cannot be written as int32()`,
		},
		"a layout that loses the time": {
			"at.date(2006-01-02)", parse(t, `{"at": {"$date": "2026-11-30T10:15:00Z"}}`),
			`column "at.date(2006-01-02)": a value of type date cannot be written as date(2006-01-02)`,
		},
		"seconds that lose milliseconds": {
			"at.date(s)", parse(t, `{"at": {"$date": "2026-11-30T10:15:00.5Z"}}`),
			`column "at.date(s)": a value of type date cannot be written as date(s)`,
		},
		"text that is not UTF-8": {
			"a,b.string()", bson.NewBuilder(nil).String("b", "caf\xe9").Finish(),
			`column "b.string()": extended JSON: invalid UTF-8 (offset 0)`,
		},
		"text that is not UTF-8, without a type": {
			"a", bson.NewBuilder(nil).String("a", "caf\xe9").Finish(), "",
		},
		"text within that is not UTF-8": {
			"a.json()",
			bson.NewBuilder(nil).OpenDocument("a").String("b", "caf\xe9").Close().Finish(), "",
		},
		"a malformed document": {"a", bson.Raw("\x0b\x00\x00\x00\x10b\x00\x01\x00\x00\x00"), ""},
	} {
		e, err := csv.NewEncoder(columns(t, test.columns), csv.EncoderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.AppendRow([]byte(before), test.doc)
		if err == nil || test.want != "" && err.Error() != test.want || string(got) != before {
			t.Errorf("%s: %v, %q, want %s", name, err, got, test.want)
		}
	}
}

// TestGuard has texts that a spreadsheet would run, with and without the guard.
func TestGuard(t *testing.T) {
	for value, want := range map[string]string{
		`"=1+1"`: "'=1+1", `"+1"`: "'+1", `"-1"`: "'-1", `"@SUM(A1)"`: "'@SUM(A1)",
		`"\t=1"`: "'\t=1", `"\r=1"`: "\"'\r=1\"", `"＝1"`: "'＝1", `"=\"a\""`: `"'=""a"""`,
		`"a=1"`: "a=1", `-1`: "-1", `""`: `""`, `["=1"]`: `"[""=1""]"`,
	} {
		for _, guard := range []bool{true, false} {
			e, err := csv.NewEncoder(columns(t, "a"), csv.EncoderOptions{Guard: guard})
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.AppendRow(nil, parse(t, `{"a": `+value+`}`))
			is := strings.Contains(string(got), "'")
			if err != nil || guard && string(got) != want+"\n" || !guard && is {
				t.Errorf("%s, guard %t: %v, got %q, want %q", value, guard, err, got, want)
			}
		}
	}
}

// TestRoundTrip writes and reads random values in columns of their types: they are what they were.
func TestRoundTrip(t *testing.T) {
	const names = "s.string(),i.int32(),l.int64(),d.double(),e.decimal(),b.boolean(),at.date()," +
		"ms.date(ms),o.objectId(),u.uuid(),x.binary(),h.binary(hex),j.json(),in.a.string(),in.b.json()"
	random := rand.New(rand.NewPCG(1, 2))
	e, err := csv.NewEncoder(columns(t, names), csv.EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := e.AppendHeader(nil)
	var want []bson.Raw
	for range 2000 {
		doc := randomDocument(random)
		if doc.IsEmpty() {
			continue
		}
		if file, err = e.AppendRow(file, doc); err != nil {
			t.Fatal(err)
		}
		want = append(want, doc)
	}
	d := csv.NewDecoder(bytes.NewReader(file), csv.Options{})
	for i, doc := range want {
		if got, err := d.Next(nil); err != nil || !bytes.Equal(got, doc) {
			t.Fatalf("document %d: %v\ngot  %x\nwant %x", i, err, got, []byte(doc))
		}
	}
	if _, err := d.Next(nil); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
}

// randomDocument makes a document with some of the fields of TestRoundTrip, in their order.
func randomDocument(random *rand.Rand) bson.Raw {
	b := bson.NewBuilder(nil)
	some := func() bool { return random.IntN(3) > 0 }
	date := func() int64 { return random.Int64() >> random.IntN(63) * (1 - 2*random.Int64N(2)) }
	fields := []func(){
		func() { b.String("s", randomText(random)) },
		func() { b.Int32("i", int32(random.Uint32())) },
		func() { b.Int64("l", int64(random.Uint64())) },
		func() { b.Double("d", randomDouble(random)) },
		func() { b.Decimal128("e", randomDecimal(random)) },
		func() { b.Bool("b", some()) },
		func() { b.DateTime("at", date()) },
		func() { b.DateTime("ms", date()) },
		func() { b.ObjectID("o", bson.NewObjectID()) },
		func() { b.Binary("u", 4, randomBytes(random, 16)) },
		func() { b.Binary("x", 0, randomBytes(random, random.IntN(20))) },
		func() { b.Binary("h", 0, randomBytes(random, random.IntN(20))) },
		func() { b.OpenArray("j").Null("").String("", randomText(random)).Close() },
		func() {
			b.OpenDocument("in").String("a", randomText(random))
			b.OpenDocument("b").Time("at", time.UnixMilli(date())).Close().Close()
		},
	}
	for _, add := range fields {
		if some() {
			add()
		}
	}
	return b.Finish()
}

func randomText(random *rand.Rand) string {
	pieces := []string{
		"", "a", "\"", ",", "\r\n", "\n", "\r", " ", "\ufeff", "=1", "null", "42", "é", "\x00", "'",
	}
	var text strings.Builder
	for range random.IntN(5) {
		text.WriteString(pieces[random.IntN(len(pieces))])
	}
	return text.String()
}

func randomBytes(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func randomDouble(random *rand.Rand) float64 {
	special := []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), math.NaN(), 1e21, 0.1}
	if i := random.IntN(2 * len(special)); i < len(special) {
		return special[i]
	}
	if f := math.Float64frombits(random.Uint64()); !math.IsNaN(f) {
		return f
	}
	return 0
}

func randomDecimal(random *rand.Rand) bson.Decimal128 {
	texts := []string{
		"1.10", "0", "-0", "1E+3", "NaN", "-Infinity", "1234567890123456789012345678901234", "1E-6176",
	}
	d, err := bson.ParseDecimal128(texts[random.IntN(len(texts))])
	if err != nil {
		panic(err)
	}
	return d
}

// FuzzDecode has a file that encoding/csv reads read the same here, but for what both take for
// different things: \r\n in a text and quotes without need. Whatever is read is written again, and
// read back as it was.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"a,b\n1,\"x\"\"y\"\n", "a.int32(),b.date()\n1,2026-11-30\n", "a\n\"\"\n\n", "\ufeffa\r\n1\r\n",
		"a.b,a.c.json()\n1,[]\n", "a\r1", "a,b\n\"", "a;b\n", "\"a\nb\nc\"\n1\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file string) {
		got, err := rows(csv.NewDecoder(strings.NewReader(file), csv.Options{}))
		checkPlace(t, file, err)
		d := csv.NewDecoder(strings.NewReader(file), csv.Options{})
		names, err := d.Columns()
		if err != nil {
			return
		}
		texts := make([]csv.Column, len(names))
		for i := range names {
			texts[i] = columns(t, `"`+strings.ReplaceAll(names[i].Path, `"`, `""`)+`.string()"`)[0]
		}
		again(t, file, texts)
		_ = got
	})
}

// checkPlace checks that an error is in the file.
func checkPlace(t *testing.T, file string, err error) {
	t.Helper()
	wrong, ok := errors.AsType[*csv.Error](err)
	if err != nil && (!ok || wrong.Line < 1 || wrong.Column < 1 ||
		wrong.Line > strings.Count(file, "\n")+1 || wrong.Column > len(file)+1) {
		t.Errorf("%q: the error is %v", file, err)
	}
}

// again reads the rows of a file as texts, writes them, and reads them.
func again(t *testing.T, file string, columns []csv.Column) {
	t.Helper()
	e, err := csv.NewEncoder(columns, csv.EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(file, "\n")
	d := csv.NewDecoder(strings.NewReader(body), csv.Options{Columns: columns})
	reference := stdcsv.NewReader(strings.NewReader(body))
	reference.FieldsPerRecord = -1
	var written []byte
	var want []string
	for {
		doc, err := d.Next(nil)
		if err != nil {
			break
		}
		compare(t, reference, doc, columns)
		if bson.Raw(doc).Validate() != nil {
			continue // a text that is not UTF-8
		}
		if written, err = e.AppendRow(written, doc); err != nil {
			t.Fatal(err)
		}
		want = append(want, string(doc))
	}
	d = csv.NewDecoder(bytes.NewReader(written), csv.Options{Columns: columns})
	for _, doc := range want {
		if got, err := d.Next(nil); err != nil || string(got) != doc {
			t.Fatalf("%q was written as %q: %v, read %q, want %q", body, written, err, got, doc)
		}
	}
}

// compare checks a document against the next row of the reference that has a value.
func compare(t *testing.T, reference *stdcsv.Reader, doc bson.Raw, columns []csv.Column) {
	t.Helper()
	for {
		record, err := reference.Read()
		if err != nil {
			t.Fatalf("encoding/csv says %v", err)
		}
		var got []string
		for _, c := range columns {
			v, _ := doc.Lookup(strings.Split(c.Path, ".")...)
			text, _ := v.Str()
			got = append(got, strings.ReplaceAll(text, "\r\n", "\n"))
		}
		if reflect.DeepEqual(got, record) {
			return
		}
		if strings.Join(record, "") != "" {
			t.Fatalf("the row is %q, and encoding/csv says %q", got, record)
		}
	}
}
