package extjson_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

func TestParseErrors(t *testing.T) {
	for _, c := range []struct {
		in, path string
		offset   int
		problem  string
	}{
		// JSON itself.
		{``, "", 0, "unexpected end"},
		{`[]`, "", 0, "expected an object"},
		{`1`, "", 0, "expected an object"},
		{`{`, "", 1, "unexpected end"},
		{`{"a":1`, "", 6, "unexpected end"},
		{`{"a":1,}`, "", 7, "expected a key"},
		{`{"a":1 "b":2}`, "", 7, "expected ',' or '}'"},
		{`{a:1}`, "", 1, "expected a key"},
		{`{'a':1}`, "", 1, "expected a key"},
		{`{"a" 1}`, "", 5, "expected ':'"},
		{`{"a":}`, "a", 5, "expected a value"},
		{`{"a":[1,2,]}`, "a.2", 10, "expected a value"},
		{`{"a":[1 2]}`, "a", 8, "expected ',' or ']'"},
		{`{"a":tru}`, "a", 5, "expected a value"},
		{`{"a":True}`, "a", 5, "expected a value"},
		{`{"a":NaN}`, "a", 5, "expected a value"},
		{`{"a":undefined}`, "a", 5, "expected a value"},
		{`{"a":1}x`, "", 7, "bytes after"},
		{`{"a":1}{}`, "", 7, "bytes after"},
		{"{\"a\":1}\x00", "", 7, "bytes after"},
		{"\uFEFF{}", "", 0, "unexpected"},
		{`{"a":1/**/}`, "", 6, "unexpected"},
		// Numbers.
		{`{"a":01}`, "a", 6, "expected a digit"},
		{`{"a":-}`, "a", 6, "expected a digit"},
		{`{"a":1.}`, "a", 7, "expected a digit"},
		{`{"a":1e}`, "a", 7, "expected a digit"},
		{`{"a":1e+}`, "a", 8, "expected a digit"},
		{`{"a":.5}`, "a", 5, "expected a value"},
		{`{"a":+1}`, "a", 5, "expected a value"},
		{`{"a":0x10}`, "", 6, "unexpected"},
		{`{"a":1e400}`, "a", 5, "out of range"},
		{`{"a":-` + strings.Repeat("9", 400) + `}`, "a", 5, "out of range"},
		// Strings.
		{`{"a":"x}`, "a", 5, "not terminated"},
		{`{"a":"x\"}`, "a", 5, "not terminated"},
		{`{"a":"x\`, "a", 5, "not terminated"},
		{"{\"a\":\"x\ny\"}", "a", 7, "control character"},
		{"{\"a\":\"12345678\x1f\"}", "a", 14, "control character"},
		{`{"a":"\x41"}`, "a", 6, "invalid escape"},
		{`{"a":"\u12g4"}`, "a", 6, "invalid escape"},
		{`{"a":"\u12"}`, "a", 6, "invalid escape"},
		{`{"a":"\ud800"}`, "a", 6, "lone surrogate"},
		{`{"a":"\udc00\ud800"}`, "a", 6, "lone surrogate"},
		{`{"a":"\ud800\u0041"}`, "a", 6, "lone surrogate"},
		{`{"a":"\ud800\n12345"}`, "a", 6, "lone surrogate"},
		{"{\"a\":\"b\xff\"}", "a", 7, "invalid UTF-8"},
		{"{\"a\":\"\xed\xa0\x80\"}", "a", 6, "invalid UTF-8"},
		{"{\"\xc0\x80\":1}", "", 2, "invalid UTF-8"},
		{`{"a\u0000":1}`, "", 1, "zero byte in a key"},
		// Paths.
		{`{"a":{"b":[0,{"c":x}]}}`, "a.b.1.c", 18, "expected a value"},
		// Wrappers with other keys, wherever they stand.
		{`{"a":{"$oid":"56e1fc72e0c917e9c4714161","x":1}}`, "a", 39, "$oid beside other keys"},
		{`{"a":{"x":1,"$numberInt":"1"}}`, "a", 12, "$numberInt beside other keys"},
		{`{"a":{"$oid":"56e1fc72e0c917e9c4714161","$oid":"56e1fc72e0c917e9c4714161"}}`, "a", 39, "beside other keys"},
		{`{"a":{"$scope":{}}}`, "a", 15, "$scope without $code"},
		{`{"a":{"$scope":{},"x":1}}`, "a", 15, "$scope beside"},
		{`{"a":{"$code":"f","$scope":{},"x":1}}`, "a", 29, "$code beside"},
		{`{"a":{"$ref":"c","$oid":"x"}}`, "a", 17, "$oid beside other keys"},
		{`{"a":{"\u0024oid":1}}`, "a", 18, "$oid must be a string"},
		// Values of wrong types.
		{`{"a":{"$oid":"56e1fc72e0c917e9c471416"}}`, "a", 13, "$oid must have"},
		{`{"a":{"$oid":"56e1fc72e0c917e9c471416g"}}`, "a", 13, "$oid must have"},
		{`{"a":{"$oid":null}}`, "a", 13, "$oid must be a string"},
		{`{"a":{"$symbol":1}}`, "a", 16, "$symbol must be a string"},
		{`{"a":{"$numberInt":"2147483648"}}`, "a", 19, "integer of its size"},
		{`{"a":{"$numberInt":"1.0"}}`, "a", 19, "integer of its size"},
		{`{"a":{"$numberInt":""}}`, "a", 19, "integer of its size"},
		{`{"a":{"$numberInt":"-"}}`, "a", 19, "integer of its size"},
		{`{"a":{"$numberInt":"+1"}}`, "a", 19, "integer of its size"},
		{`{"a":{"$numberLong":"9223372036854775808"}}`, "a", 20, "integer of its size"},
		{`{"a":{"$numberLong":1}}`, "a", 20, "must be a string"},
		{`{"a":{"$numberDouble":"inf"}}`, "a", 22, "must be a double"},
		{`{"a":{"$numberDouble":"0x1p4"}}`, "a", 22, "must be a double"},
		{`{"a":{"$numberDouble":"1_0"}}`, "a", 22, "must be a double"},
		{`{"a":{"$numberDouble":"1e999"}}`, "a", 22, "must be a double"},
		{`{"a":{"$numberDouble":""}}`, "a", 22, "must be a double"},
		{`{"a":{"$numberDecimal":"x"}}`, "a", 23, "must be a decimal"},
		{`{"a":{"$numberDecimal":"1E9999"}}`, "a", 23, "out of range"},
		{`{"a":{"$numberDecimal":"11111111111111111111111111111111111"}}`, "a", 23, "34 digits"},
		{`{"a":{"$undefined":false}}`, "a", 19, "must be true"},
		{`{"a":{"$minKey":1.0}}`, "a", 16, "must be 1"},
		{`{"a":{"$minKey":11}}`, "a", 16, "must be 1"},
		{`{"a":{"$maxKey":"1"}}`, "a", 16, "must be 1"},
		{`{"a":{"$timestamp":{"t":-1,"i":0}}}`, "a", 24, "without a sign"},
		{`{"a":{"$timestamp":{"t":4294967296,"i":0}}}`, "a", 24, "32 bits"},
		{`{"a":{"$timestamp":{"t":1,"t":0}}}`, "a", 19, "must have the keys"},
		{`{"a":{"$timestamp":{"t":1,"i":0,"x":0}}}`, "a", 19, "must have the keys"},
		{`{"a":{"$timestamp":{"t":1}}}`, "a", 19, "must have the keys"},
		{`{"a":{"$binary":{"base64":"AQ=","subType":"0"}}}`, "a", 16, "valid base64"},
		{`{"a":{"$binary":{"base64":"A\nQ=","subType":"0"}}}`, "a", 16, "valid base64"},
		{`{"a":{"$binary":{"base64":"A\n\r\nQIDBA","subType":"0"}}}`, "a", 16, "valid base64"},
		{`{"a":{"$binary":{"base64":"_-8=","subType":"0"}}}`, "a", 16, "valid base64"},
		{`{"a":{"$binary":{"base64":"","subType":""}}}`, "a", 40, "one or two"},
		{`{"a":{"$binary":{"base64":"","subType":"100"}}}`, "a", 40, "one or two"},
		{`{"a":{"$binary":{"base64":"","subType":"0x"}}}`, "a", 40, "one or two"},
		{`{"a":{"$binary":{"base64":"","base64":""}}}`, "a", 16, "once"},
		{`{"a":{"$binary":{"base64":"","subType":"0","x":"0"}}}`, "a", 16, "must have the keys"},
		{`{"a":{"$dbPointer":{"$ref":"a"}}}`, "a", 19, "must have the keys"},
		{`{"a":{"$dbPointer":{"$ref":"a","$id":"56e1fc72e0c917e9c4714161"}}}`, "a", 37, "must be {"},
		{`{"a":{"$code":"f","$scope":{"$oid":"56e1fc72e0c917e9c4714161"}}}`, "a", 27, "must be a document"},
		{`{"a":{"$code":"f","$scope":[]}}`, "a", 27, "must be an object"},
		{`{"a":{"$scope":{},"$code":1}}`, "a", 26, "$code must be a string"},
		{`{"a":{"$uuid":"73ffd264"}}`, "a", 14, "must be a UUID"},
		// Legacy forms.
		{`{"a":{"$binary":"AQIDBAU=","$type":"80"}}`, "a", 16, "$binary must be an object"},
		{`{"a":{"$date":1356351330501}}`, "a", 14, "$date must be"},
		{`{"a":{"$date":{"$numberInt":"1"}}}`, "a", 14, "$date must be"},
		{`{"a":{"$date":{"$numberLong":"1","x":1}}}`, "a", 32, "expected '}'"},
		{`{"a":{"$date":"2012-12-24T12:15:30.501+0100"}}`, "a", 14, "RFC 3339"},
	} {
		out, err := extjson.Parse([]byte("x"), []byte(c.in))
		syntax, ok := errors.AsType[*extjson.SyntaxError](err)
		if !ok {
			t.Errorf("Parse(%s) = %x, %v, want a SyntaxError", c.in, out, err)
			continue
		}
		if syntax.Path != c.path || syntax.Offset != c.offset ||
			!strings.Contains(syntax.Problem, c.problem) {
			t.Errorf("Parse(%s): %v, want %s at %q (offset %d)", c.in, err, c.problem, c.path,
				c.offset)
		}
		if string(out) != "x" {
			t.Errorf("Parse(%s) has changed dst to %q", c.in, out)
		}
	}
}

func TestParseValues(t *testing.T) {
	id, _ := bson.ParseObjectID("56e1fc72e0c917e9c4714161")
	scope := bson.NewBuilder(nil).Int32("x", 1).Finish()
	for in, want := range map[string]bson.Value{
		`null`: bson.NullValue(), `true`: bson.BoolValue(true), `false`: bson.BoolValue(false),
		`0`: bson.Int32Value(0), `-0`: bson.Int32Value(0), `2147483647`: bson.Int32Value(math.MaxInt32), `-2147483648`: bson.Int32Value(math.MinInt32),
		`2147483648`: bson.Int64Value(1 << 31), `9223372036854775807`: bson.Int64Value(math.MaxInt64),
		`-9223372036854775808`: bson.Int64Value(math.MinInt64), `9223372036854775808`: bson.DoubleValue(1 << 63),
		`-9223372036854775809`: bson.DoubleValue(-1 << 63), `18446744073709551616`: bson.DoubleValue(1 << 64),
		`1.0`: bson.DoubleValue(1), `-0.0`: bson.DoubleValue(math.Copysign(0, -1)), `1e2`: bson.DoubleValue(100), `1E-2`: bson.DoubleValue(0.01),
		`123456789012345678901234567890.5`: bson.DoubleValue(123456789012345678901234567890.5), `1e-400`: bson.DoubleValue(0),
		`""`: bson.StringValue(""), `"a\u0000b"`: bson.StringValue("a\x00b"), `"\ud83d\ude00"`: bson.StringValue("😀"), `"😀é☆ and more"`: bson.StringValue("😀é☆ and more"),
		`"\"\\\/\b\f\n\r\t\u00e9"`: bson.StringValue("\"\\/\b\f\n\r\té"), `"12345678\""`: bson.StringValue(`12345678"`), `"\uFFFD"`: bson.StringValue("\uFFFD"),
		`{}`: bson.DocumentValue(nil), `[]`: bson.ArrayValue(nil), `[ ]`: bson.ArrayValue(nil),
		`{"$oid":"56E1fc72e0c917e9c4714161"}`:                                      bson.ObjectIDValue(id),
		`{"\u0024oid":"56e1fc72e0c917e9c47\u00314161"}`:                            bson.ObjectIDValue(id),
		` { "$oid" : "56e1fc72e0c917e9c4714161" } `:                                bson.ObjectIDValue(id),
		`{"$symbol":"s\n"}`:                                                        bson.SymbolValue("s\n"),
		`{"$numberInt":"-007"}`:                                                    bson.Int32Value(-7),
		`{"$numberLong":"-9223372036854775808"}`:                                   bson.Int64Value(math.MinInt64),
		`{"$numberDouble":"-0.0"}`:                                                 bson.DoubleValue(math.Copysign(0, -1)),
		`{"$numberDouble":"5"}`:                                                    bson.DoubleValue(5),
		`{"$numberDouble":"-Infinity"}`:                                            bson.DoubleValue(math.Inf(-1)),
		`{"$binary":{"subType":"2","base64":"\/\/8="}}`:                            bson.BinaryValue(2, []byte{0xFF, 0xFF}),
		`{"$binary":{"base64":"","subType":"fF"}}`:                                 bson.BinaryValue(0xFF, nil),
		`{"$uuid":"urn:uuid:00112233-4455-6677-8899-aabbccddeeff"}`:                bson.BinaryValue(4, []byte("\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff")),
		`{"$code":"f"}`:                                                            bson.JavaScriptValue("f"),
		`{"$code":"f","$scope":{"x":1}}`:                                           bson.CodeWithScopeValue("f", scope),
		`{"$scope":{"x":1},"$code":"f"}`:                                           bson.CodeWithScopeValue("f", scope),
		`{"$timestamp":{"i":4294967295,"t":1}}`:                                    bson.TimestampValue(1, math.MaxUint32),
		`{"$regularExpression":{"options":"xi","pattern":"\"a"}}`:                  bson.RegexValue(`"a`, "ix"),
		`{"$regularExpression":{"options":"xéi","pattern":""}}`:                    bson.RegexValue("", "ixé"),
		`{"$dbPointer":{"$id":{"$oid":"56e1fc72e0c917e9c4714161"},"$ref":"a\tb"}}`: bson.DBPointerValue("a\tb", id),
		`{"$date":{"$numberLong":"-1"}}`:                                           bson.DateTimeValue(-1),
		`{"$minKey":1}`:                                                            bson.MinKeyValue(), `{"$maxKey": 1 }`: bson.MaxKeyValue(), `{"$undefined":true}`: bson.UndefinedValue(),
	} {
		v, out, err := extjson.ParseValue([]byte("dst"), []byte(in))
		if err != nil || !v.Equal(want) || !bytes.HasPrefix(out, []byte("dst")) {
			t.Errorf("ParseValue(%s) = %v %x, %v, want %v %x", in, v.Type, v.Data, err, want.Type,
				want.Data)
		}
		doc, err := extjson.Parse(nil, []byte(`{"v":`+in+`}`))
		if err != nil || !bytes.Equal(doc, bson.NewBuilder(nil).Value("v", want).Finish()) {
			t.Errorf("Parse({v: %s}) = %x, %v", in, doc, err)
		}
	}
	for _, in := range []string{``, ` `, `1 2`, `{"$oid":1}`, `tru`} {
		if _, out, err := extjson.ParseValue([]byte("dst"), []byte(in)); err == nil ||
			string(out) != "dst" {
			t.Errorf("ParseValue(%q) = %q, %v, want an error", in, out, err)
		}
	}
}

// Dollar keys that are not wrappers are plain, and the outermost object is never
// a wrapper.
func TestParsePlain(t *testing.T) {
	inner := bson.NewBuilder(nil).Regex("$regex", "foo*", "").String("$options", "ix").Finish()
	oid := bson.NewBuilder(nil).String("$oid", "x").Finish()
	for in, want := range map[string]bson.Raw{
		`{"a":{"$regex":{"$regularExpression":{"pattern":"foo*","options":""}},"$options":"ix"}}`: bson.NewBuilder(nil).Document("a", inner).Finish(),
		`{"zip":{"$type":2}}`:               bson.NewBuilder(nil).OpenDocument("zip").Int32("$type", 2).Close().Finish(),
		`{"$oid":"x"}`:                      oid,
		`{"$code":1,"$scope":2,"x":3}`:      bson.NewBuilder(nil).Int32("$code", 1).Int32("$scope", 2).Int32("x", 3).Finish(),
		`{"a":{"$ref":1}}`:                  bson.NewBuilder(nil).OpenDocument("a").Int32("$ref", 1).Close().Finish(),
		`{"a":{"$id":1,"$db":2}}`:           bson.NewBuilder(nil).OpenDocument("a").Int32("$id", 1).Int32("$db", 2).Close().Finish(),
		`{"a":{"":1,"$":2,"$oids":3}}`:      bson.NewBuilder(nil).OpenDocument("a").Int32("", 1).Int32("$", 2).Int32("$oids", 3).Close().Finish(),
		`{"a":1,"a":2}`:                     bson.NewBuilder(nil).Int32("a", 1).Int32("a", 2).Finish(),
		" \t\r\n{ \"a\" : [ 1 , [ ] ] } \n": bson.NewBuilder(nil).OpenArray("a").Int32("", 1).OpenArray("").Close().Close().Finish(),
	} {
		if got, err := extjson.Parse(nil, []byte(in)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Parse(%s) = %x, %v, want %x", in, got, err, []byte(want))
		}
	}
}

func TestParseArrayKeys(t *testing.T) {
	text := "[" + strings.TrimSuffix(strings.Repeat("null,", 1500), ",") + "]"
	v, _, err := extjson.ParseValue(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for key := range bson.Raw(v.Data).All() {
		if key != fmt.Sprint(i) {
			t.Fatalf("key %d is %q", i, key)
		}
		i++
	}
	if i != 1500 {
		t.Errorf("%d elements", i)
	}
}

func TestParsePrefix(t *testing.T) {
	for in, want := range map[string]int{`{}`: 2, ` {"a":1} , "b"`: 8, `{}{}`: 2, `{}garbage`: 2} {
		out, n, err := extjson.ParsePrefix(nil, []byte(in))
		if err != nil || n != want || bson.Raw(out).Validate() != nil {
			t.Errorf("ParsePrefix(%s) = %d, %v, want %d", in, n, err, want)
		}
	}
	for in, want := range map[string]int{
		`1]`: 1, `12,`: 2, ` "a" :`: 4, `{"$oid":"56e1fc72e0c917e9c4714161"}}`: 35, `null`: 4,
	} {
		if _, _, n, err := extjson.ParseValuePrefix(nil, []byte(in)); err != nil || n != want {
			t.Errorf("ParseValuePrefix(%s) = %d, %v, want %d", in, n, err, want)
		}
	}
	if out, _, err := extjson.ParsePrefix([]byte("x"), []byte(`[]`)); err == nil ||
		string(out) != "x" {
		t.Errorf("ParsePrefix([]) = %q, %v", out, err)
	}
	if _, out, _, err := extjson.ParseValuePrefix([]byte("x"), []byte(`]`)); err == nil ||
		string(out) != "x" {
		t.Errorf("ParseValuePrefix(]) = %q, %v", out, err)
	}
}

func TestDates(t *testing.T) {
	for in, ms := range map[string]int64{
		"1970-01-01T00:00:00Z":          0,
		"1970-01-01T00:00:00.001Z":      1,
		"2012-12-24T12:15:30.501Z":      1356351330501,
		"2012-12-24T12:15:30.5Z":        1356351330500,
		"2012-12-24T13:15:30.501+01:00": 1356351330501,
		"2012-12-24t06:45:30.501-05:30": 1356351330501,
		"9999-12-31T23:59:59.999z":      253402300799999,
		"2000-02-29T00:00:00Z":          951782400000,
		"1969-12-31T23:59:59.999Z":      -1,
		"0000-01-01T00:00:00Z":          -62167219200000,
		// Further digits are dropped, also before 1970.
		"2012-12-24T12:15:30.501999Z":               1356351330501,
		"2012-12-24T12:15:30.501234567890123+00:00": 1356351330501,
		"1969-12-31T23:59:59.9999Z":                 -1,
		"1969-12-31T23:59:59.0000009Z":              -1000,
	} {
		v, _, err := extjson.ParseValue(nil, []byte(`{"$date":"`+in+`"}`))
		if got, ok := v.DateTime(); err != nil || !ok || got != ms {
			t.Errorf("$date %s = %d, %v, want %d", in, got, err, ms)
		}
	}
	for _, in := range []string{
		"", "2012", "2012-12-24", "2012-12-24T12:15:30", "2012-12-24 12:15:30Z", "2012-13-01T00:00:00Z", "2012-00-01T00:00:00Z",
		"2011-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2012-04-31T00:00:00Z", "2012-01-00T00:00:00Z", "2012-01-01T24:00:00Z", "2012-01-01T00:60:00Z",
		"2012-01-01T00:00:60Z", "2012-01-01T00:00:00.Z", "2012-01-01T00:00:00+01", "2012-01-01T00:00:00+0100",
		"2012-01-01T00:00:00+24:00", "2012-01-01T00:00:00+00:60", "2012-01-01T00:00:00X", "2012-1-01T00:00:00ZZ", "-012-01-01T00:00:00Z", "2012-01-01T00:00:00.", "12012-01-01T00:00:00Z",
	} {
		if v, _, err := extjson.ParseValue(nil, []byte(`{"$date":"`+in+`"}`)); err == nil {
			t.Errorf("$date %q = %v, want an error", in, v)
		}
	}
	for ms, want := range map[int64][2]string{ // relaxed, plain
		0:                 {`{"$date":"1970-01-01T00:00:00Z"}`, `"1970-01-01T00:00:00.000Z"`},
		100:               {`{"$date":"1970-01-01T00:00:00.100Z"}`, `"1970-01-01T00:00:00.100Z"`},
		253402300799999:   {`{"$date":"9999-12-31T23:59:59.999Z"}`, `"9999-12-31T23:59:59.999Z"`},
		253402300800000:   {`{"$date":{"$numberLong":"253402300800000"}}`, `"+010000-01-01T00:00:00.000Z"`},
		-1:                {`{"$date":{"$numberLong":"-1"}}`, `"1969-12-31T23:59:59.999Z"`},
		-62167219200001:   {`{"$date":{"$numberLong":"-62167219200001"}}`, `"-000001-12-31T23:59:59.999Z"`},
		8640000000000000:  {`{"$date":{"$numberLong":"8640000000000000"}}`, `"+275760-09-13T00:00:00.000Z"`},
		-8640000000000000: {`{"$date":{"$numberLong":"-8640000000000000"}}`, `"-271821-04-20T00:00:00.000Z"`},
	} {
		v := bson.DateTimeValue(ms)
		if got, _ := extjson.AppendValue(nil, v, extjson.Relaxed); string(got) != want[0] {
			t.Errorf("relaxed date %d = %s, want %s", ms, got, want[0])
		}
		if got, _ := extjson.AppendValue(nil, v, extjson.Plain); string(got) != want[1] {
			t.Errorf("plain date %d = %s, want %s", ms, got, want[1])
		}
	}
}
