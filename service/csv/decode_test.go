package csv_test

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/csv"
)

// rows decodes a file. Errors of single rows stand among its documents.
func rows(d *csv.Decoder) (all []string, err error) {
	for {
		doc, err := d.Next(nil)
		var wrong *csv.Error
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case errors.As(err, &wrong) && !wrong.Fatal: //nolint:forbidigo // a pointer is needed
			all = append(all, wrong.Error())
		case err != nil:
			return all, err
		default:
			text, err := extjson.Append(nil, doc, extjson.Canonical)
			if err != nil {
				return all, err
			}
			all = append(all, string(text))
		}
	}
}

func TestDecode(t *testing.T) {
	for name, test := range map[string]struct {
		file    string
		options csv.Options
		want    []string
	}{
		"what a cell looks like": {
			file: "v\n1\n-7\n2147483648\n1.5\n1e3\ntrue\nfalse\nnull\nword\n0123\n" +
				"12345678901234567890\n5f1d7f3e9d3b2a0001234567\n1e999\nTRUE\n",
			want: []string{
				`{"v":{"$numberInt":"1"}}`, `{"v":{"$numberInt":"-7"}}`,
				`{"v":{"$numberLong":"2147483648"}}`, `{"v":{"$numberDouble":"1.5"}}`,
				`{"v":{"$numberDouble":"1000.0"}}`, `{"v":true}`, `{"v":false}`, `{"v":null}`,
				`{"v":"word"}`, `{"v":"0123"}`, `{"v":"12345678901234567890"}`,
				`{"v":{"$oid":"5f1d7f3e9d3b2a0001234567"}}`, `{"v":"1e999"}`, `{"v":"TRUE"}`,
			},
		},
		"types": {
			file: "s.string(),i.int32(),l.int64(),d.double(),e.decimal(),b.boolean(),o.objectId()," +
				"u.uuid(),x.binary(hex),j.json()\n" +
				"42,42,42,42,4.20,1,5f1d7f3e9d3b2a0001234567," +
				`c8a5c0e0-5b1f-4c2e-9f1e-0123456789ab,0aff,"[1,{""a"":null}]"` + "\n",
			want: []string{
				`{"s":"42","i":{"$numberInt":"42"},"l":{"$numberLong":"42"},` +
					`"d":{"$numberDouble":"42.0"},"e":{"$numberDecimal":"4.20"},"b":true,` +
					`"o":{"$oid":"5f1d7f3e9d3b2a0001234567"},` +
					`"u":{"$binary":{"base64":"yKXA4FsfTC6fHgEjRWeJqw==","subType":"04"}},` +
					`"x":{"$binary":{"base64":"Cv8=","subType":"00"}},` +
					`"j":[{"$numberInt":"1"},{"a":null}]}`,
			},
		},
		"dates": {
			file: "at.date()\n1970-01-01\n1970-01-01T00:00:01Z\n1970-01-01 00:00:02\n" +
				"1970-01-01T01:00:03.004+01:00\n" + `"{""$date"":{""$numberLong"":""-1""}}"` + "\n",
			want: dates(0, 1000, 2000, 3004, -1),
		},
		"dates in milliseconds": {file: "at.date(ms)\n-5\n", want: dates(-5)},
		"dates in seconds":      {file: "at.date(s)\n5\n", want: dates(5000)},
		"dates of a layout": {
			file: "at.date(02.01.2006 15:04)\n01.01.1970 00:01\n", want: dates(60_000),
		},
		"documents in documents": {
			file: "a.b,c,a.d.e\n1,2,3\n,2,\n,,3\n",
			want: []string{
				`{"a":{"b":{"$numberInt":"1"},"d":{"e":{"$numberInt":"3"}}},"c":{"$numberInt":"2"}}`,
				`{"c":{"$numberInt":"2"}}`, `{"a":{"d":{"e":{"$numberInt":"3"}}}}`,
			},
		},
		"what is not a field": {
			file: "s,n.int32(),x.binary()\n,,\n\"\",\"\",\"\"\n\n",
			want: []string{`{"s":"","x":{"$binary":{"base64":"","subType":"00"}}}`},
		},
		"quotes": {
			file: "a,\"b,c\"\r\n\"1\",\"x\"\"y\r\nz, \"\"\"\r\n\"\"\"\",w",
			want: []string{`{"a":{"$numberInt":"1"},"b,c":"x\"y\r\nz, \""}`, `{"a":"\"","b,c":"w"}`},
		},
		"a mark of the byte order": {file: "\ufeffa\n1\n", want: []string{`{"a":{"$numberInt":"1"}}`}},
		"names with parentheses": {
			file: "count(*),price (EUR)\n1,2\n",
			want: []string{`{"count(*)":{"$numberInt":"1"},"price (EUR)":{"$numberInt":"2"}}`},
		},
		"a name of two lines with a type": {
			file: "\"a\nb.string()\"\n1\n", want: []string{`{"a\nb":"1"}`},
		},
		"another separator": {
			file: "a;b\n1;\"x;y\"\n", options: csv.Options{Comma: ';'},
			want: []string{`{"a":{"$numberInt":"1"},"b":"x;y"}`},
		},
		"names from elsewhere": {
			file: "1,2\n", options: csv.Options{Columns: columns(t, "a.string(),b")},
			want: []string{`{"a":"1","b":{"$numberInt":"2"}}`},
		},
		"names alone": {file: "a,b"},
		"a row that fails": {
			file: "a.int32()\n1\nx\n3\n",
			want: []string{
				`{"a":{"$numberInt":"1"}}`, `line 3, column 1 (a.int32()): "x" is not an integer`,
				`{"a":{"$numberInt":"3"}}`,
			},
		},
	} {
		got, err := rows(csv.NewDecoder(strings.NewReader(test.file), test.options))
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v,\ngot  %q,\nwant %q", name, err, got, test.want)
		}
		// It does not matter how the bytes arrive.
		slow := iotest.OneByteReader(strings.NewReader(test.file))
		if again, err := rows(csv.NewDecoder(slow, test.options)); err != nil ||
			!reflect.DeepEqual(again, got) {
			t.Errorf("%s, byte by byte: %v, got %q", name, err, again)
		}
	}
}

func dates(all ...int64) (docs []string) {
	for _, ms := range all {
		docs = append(docs, fmt.Sprintf(`{"at":{"$date":{"$numberLong":"%d"}}}`, ms))
	}
	return docs
}

func columns(t testing.TB, text string) []csv.Column {
	t.Helper()
	all, err := csv.ParseColumns(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTrouble has files that cannot be read, each of which is told where and why.
func TestTrouble(t *testing.T) {
	long := strings.Repeat("x", 300)
	for name, test := range map[string]struct{ file, want string }{
		"header row is missing": {"", `line 1, column 1: the header row is missing`},
		"UTF-16": {
			"\xff\xfea\x00", `line 1, column 1: the text is UTF-16: save it as UTF-8`,
		},
		"a column of no name": {"a,,b\n", `line 1, column 3: the column has no name`},
		"a column twice":      {"a,b,a\n", `line 1, column 5: two columns have the name "a"`},
		"a column in another": {
			"a,a.b\n", `line 1, column 3: "a.b" contains another column or is part of it`,
		},
		"a name with a space": {
			"a, b\n", `line 1, column 3: " b" begins or ends with a space: remove it`,
		},
		"a name of dots": {"a..b\n", `line 1, column 1: "a..b" has an empty name between dots`},
		"a long name":    {long, `line 1, column 1: the name is longer than 255 bytes`},
		"a name with a zero byte": {
			"a\x00b,c\n", `line 1, column 1: "a\x00b" has a zero byte in it`,
		},
		"many documents in each other": {
			strings.Repeat("a.", 101) + "a\n",
			`line 1, column 1: the name has more than 100 parts`,
		},
		"a type that is none": {
			"a,b.int()\n", `line 1, column 3: there is no type "int"(): the types are auto, string, ` +
				`int32, int64, double, decimal, boolean, date, objectId, uuid, binary, json`,
		},
		"a type without a name": {"int32()\n", `line 1, column 1: "int32()" has a type but no name`},
		"a layout that is none": {
			"a.date(yyyy)\n", `line 1, column 1: date() does not take "yyyy": it takes ms, s or a ` +
				`layout, such as 2006-01-02 15:04:05`,
		},
		"another separator": {
			"a;b\n1;2\n", `line 1, column 1: the only column is "a;b": does ";" separate columns? ` +
				`Put quotes around the name if not`,
		},
		"too many columns": {
			strings.Repeat(",", 10_000), `line 1, column 10001: there are more than 10000 columns`,
		},
		"a quote in a cell": {
			"a,b\n1,x\"y\n", `line 2, column 4: a quote in a cell that is not quoted: put ` +
				`quotes around the cell, and write each quote in it as ""`,
		},
		"text after a quote": {
			"a,b\n1,\"x\"y\n", `line 2, column 6: text after the quote that ends a cell: ` +
				`write a quote in a cell as ""`,
		},
		"a quote that is not closed": {
			"a,b\nä,\"x\ny\n", `line 2, column 3: this quote is not closed`,
		},
		"lines of the old Mac": {
			"a,b\r1,2\r", `line 1, column 4: a \r outside quotes must be followed by \n`,
		},
		"a row that is too long": {
			"a\n" + long + long, `line 2, column 1: the row is longer than 400 bytes`,
		},
		"a quote over too long a row": {
			"a,b\n1,\"" + long + long, `line 2, column 3: the row is longer than 400 bytes, and this ` +
				`quote is not closed in them`,
		},
		"too few cells":  {"a,b\n1\n", `line 2, column 2: the row has 1 cells, not 2`},
		"too many cells": {"a,b\n1,2,3\n", `line 2, column 5: the row has 3 cells, not 2`},
		"not UTF-8":      {"a,b\nä,x\xe4\n", `line 2, column 4 (b): the text is not UTF-8`},
		"not UTF-8 in a name": {
			"a,b\xe4\n", `line 1, column 4: the text is not UTF-8`,
		},
		"an integer that is none": {
			"a,b.int32()\n\"x\ny\",1.5\n", `line 3, column 4 (b.int32()): "1.5" is not an integer`,
		},
		"an integer that is too large": {
			"a.int32()\n2147483648\n",
			`line 2, column 1 (a.int32()): "2147483648" does not fit in 32 bits`,
		},
		"a long one that is too large": {
			"a.int64()\n9223372036854775808\n",
			`line 2, column 1 (a.int64()): "9223372036854775808" does not fit in 64 bits`,
		},
		"a number of another land": {
			"a.double()\n\"1,5\"\n", `line 2, column 2 (a.double()): "1,5" is not a number`,
		},
		"a number that is too large": {
			"a.double()\n1e999\n", `line 2, column 1 (a.double()): "1e999" is too large for a double`,
		},
		"a decimal of too many digits": {
			"a.decimal()\n12345678901234567890123456789012345\n", `line 2, column 1 (a.decimal()): ` +
				`"12345678901234567890123456789012345" is not a decimal number of at most 34 digits`,
		},
		"a switch": {"a.boolean()\nyes\n", `line 2, column 1 (a.boolean()): "yes" is not true or false`},
		"a day that is none": {
			"a.date()\n2026-02-30\n", `line 2, column 1 (a.date()): "2026-02-30" is not a date such ` +
				`as 2026-11-30 or 2026-11-30T10:15:00Z`,
		},
		"a date of another layout": {
			"a.date(02.01.2006)\n2026-02-03\n",
			`line 2, column 1 (a.date(02.01.2006)): "2026-02-03" is not a date like 02.01.2006`,
		},
		"milliseconds": {
			"a.date(ms)\nnow\n",
			`line 2, column 1 (a.date(ms)): "now" is not a date in milliseconds since 1970`,
		},
		"seconds beyond all dates": {
			"a.date(s)\n9223372036854775807\n", `line 2, column 1 (a.date(s)): ` +
				`"9223372036854775807" is not a date in seconds since 1970`,
		},
		"an ObjectId": {
			"a.objectId()\n5f1d\n",
			`line 2, column 1 (a.objectId()): "5f1d" is not an ObjectId of 24 hexadecimal digits`,
		},
		"a UUID": {"a.uuid()\n5f1d\n", `line 2, column 1 (a.uuid()): "5f1d" is not a UUID`},
		"base64": {"a.binary()\n*\n", `line 2, column 1 (a.binary()): "*" is not base64`},
		"hex":    {"a.binary(hex)\n0\n", `line 2, column 1 (a.binary(hex)): "0" is not hex`},
		"Extended JSON": {
			"a.json()\n\"[1,]\"\n", `line 2, column 2 (a.json()): "[1,]" is not a value of extended ` +
				`JSON: unexpected ']', expected a value at 1 (offset 3)`,
		},
	} {
		got, err := rows(csv.NewDecoder(strings.NewReader(test.file), csv.Options{MaxRow: 400}))
		text := ""
		if len(got) > 0 {
			text = got[len(got)-1]
		}
		if err != nil {
			text = err.Error()
		}
		if text != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, text, test.want)
		}
	}
}

func TestSeparatorRefused(t *testing.T) {
	for _, comma := range []byte{'"', '\n', '\r', 0xe4} {
		_, err := csv.NewDecoder(strings.NewReader("a\n"), csv.Options{Comma: comma}).Next(nil)
		if err == nil {
			t.Errorf("%q separates cells", comma)
		}
	}
}

// TestFatalErrorsStay has an error of the reader, and one after which no row can be found, again.
func TestFatalErrorsStay(t *testing.T) {
	broken := io.MultiReader(strings.NewReader("a\n1\n2"), iotest.ErrReader(io.ErrClosedPipe))
	for name, d := range map[string]*csv.Decoder{
		"of the reader": csv.NewDecoder(broken, csv.Options{}),
		"a quote":       csv.NewDecoder(strings.NewReader("a\n1\nx\"\n3\n"), csv.Options{}),
	} {
		first, err := d.Next(nil)
		_, second := d.Next(nil)
		_, third := d.Next(nil)
		if first == nil || err != nil || second == nil || !errors.Is(third, second) {
			t.Errorf("%s: %q, %v, then %v, then %v", name, first, err, second, third)
		}
	}
}

// TestRow has the row and the line for a file of what was refused.
func TestRow(t *testing.T) {
	d := csv.NewDecoder(strings.NewReader("a.int32(),b\n1,\"x\ny\"\nz,2\r\n"), csv.Options{})
	_, err := d.Next(nil)
	if row := string(d.Row()); err != nil || row != "1,\"x\ny\"\n" || d.Line() != 2 {
		t.Errorf("row %q at line %d, %v", row, d.Line(), err)
	}
	_, err = d.Next(nil)
	if row := string(d.Row()); err == nil || row != "z,2\r\n" || d.Line() != 4 {
		t.Errorf("row %q at line %d, %v", row, d.Line(), err)
	}
}

// account is a Memory that counts, and refuses what exceeds most.
type account struct{ taken, most int }

var errFull = errors.New("there is no memory")

func (a *account) Grow(buf []byte, n int) ([]byte, error) {
	size := max(2*cap(buf), len(buf)+n)
	if a.taken += size; a.taken > a.most {
		return nil, errFull
	}
	return append(make([]byte, 0, size), buf...), nil
}

// TestMemory has what becomes large come from the Memory: rows, documents, and JSON in a cell.
func TestMemory(t *testing.T) {
	numbers := strings.Repeat("1,", 40<<10)
	for name, file := range map[string]string{
		"a row":                "a\n" + strings.Repeat("x", 1<<20),
		"a file without lines": strings.Repeat("x", 1<<20),
		"doubled quotes":       "a\n\"" + strings.Repeat(`""`, 1<<20) + "\"\n",
		"JSON":                 "a.json()\n\"[" + numbers + "1]\"\n",
	} {
		for _, most := range []int{100 << 10, 64 << 20} {
			memory := &account{most: most}
			d := csv.NewDecoder(strings.NewReader(file), csv.Options{Memory: memory})
			_, err := d.Next(nil)
			small := most < 1<<20
			if small != errors.Is(err, errFull) || memory.taken == 0 {
				t.Errorf("%s within %d bytes: %v, %d taken", name, most, err, memory.taken)
			}
			if _, again := d.Next(nil); small && !errors.Is(again, errFull) {
				t.Errorf("%s: the next error is %v", name, again)
			}
		}
	}
	small := &account{}
	if _, err := rows(csv.NewDecoder(strings.NewReader(strings.Repeat("a\n", 1<<10)),
		csv.Options{Memory: small})); err != nil || small.taken != 0 {
		t.Errorf("small rows: %v, %d taken", err, small.taken)
	}
}

// TestManyCells has a row of millions of cells, which takes no more than its text.
func TestManyCells(t *testing.T) {
	d := csv.NewDecoder(strings.NewReader("a,b\n1,2"+strings.Repeat(",", 4<<20)+"\n3,4\n"),
		csv.Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := d.Next(nil)
	runtime.ReadMemStats(&after)
	taken := after.TotalAlloc - before.TotalAlloc
	if err == nil || err.Error() != "line 2, column 5: the row has 4194306 cells, not 2" ||
		taken > 64<<20 {
		t.Errorf("%v, %d bytes taken", err, taken)
	}
	if _, err := d.Next(nil); err != nil {
		t.Errorf("the row behind it: %v", err)
	}
}

// TestLargeDocument has a row that is small enough, and a document that is not.
func TestLargeDocument(t *testing.T) {
	file := "a.json(),b\n\"[" + strings.Repeat("1,", 1<<20) + "1]\",\"" +
		strings.Repeat("x", 5<<20) + "\"\n1,2\n"
	d := csv.NewDecoder(strings.NewReader(file), csv.Options{})
	_, err := d.Next(nil)
	wrong, ok := errors.AsType[*csv.Error](err)
	if !ok || !wrong.TooLarge || wrong.Fatal || wrong.Line != 2 {
		t.Errorf("a document of more than %d bytes: %v", bson.MaxDocumentSize, err)
	}
	if doc, err := d.Next(nil); err != nil || bson.Raw(doc).Len() != 2 {
		t.Errorf("the row behind it: %v", err)
	}
}
