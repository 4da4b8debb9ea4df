package bson_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
)

// sample has every type once.
func sample() bson.Raw {
	id := bson.ObjectID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	scope := bson.NewBuilder(nil).Int32("x", 1).Finish()
	return bson.NewBuilder(nil).
		Double("double", 1.5).String("string", "text").
		OpenDocument("document").Int32("a", 1).OpenDocument("b").Null("c").Close().Close().
		OpenArray("array").Int32("", 5).OpenArray("").String("ignored", "x").Close().Close().
		Binary("binary", 0x80, []byte{1, 2}).Binary("old", 2, []byte{3}).Binary("empty", 0, nil).
		Undefined("undefined").
		ObjectID("objectid", id).Bool("bool", true).DateTime("date", -1).Null("null").
		Regex("regex", "^a", "xmi").DBPointer("pointer", "db.c", id).JavaScript("code", "f()").
		Symbol("symbol", "s").CodeWithScope("scope", "g()", scope).Int32("int32", -7).
		Timestamp("timestamp", 5, 6).Int64("int64", math.MinInt64).
		Decimal128("decimal", bson.Decimal128{H: 0x3040000000000000, L: 12}).
		MinKey("min").MaxKey("max").Finish()
}

func TestAccessors(t *testing.T) {
	d := sample()
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	seen := map[bson.Type]bool{}
	for key, v := range d.All() {
		seen[v.Type] = true
		if !v.Type.IsValid() || strings.HasPrefix(v.Type.String(), "type(") {
			t.Errorf("%s has type %v", key, v.Type)
		}
		if err := v.Validate(); err != nil {
			t.Errorf("Validate of %s: %v", key, err)
		}
	}
	if len(seen) != 21 {
		t.Errorf("%d types, want 21", len(seen))
	}
	get := func(key string) bson.Value {
		t.Helper()
		v, ok := d.Lookup(key)
		if !ok {
			t.Fatalf("no %s", key)
		}
		return v
	}
	if f, ok := get("double").Double(); !ok || f != 1.5 {
		t.Errorf("Double() = %v, %v", f, ok)
	}
	if s, ok := get("string").Str(); !ok || s != "text" {
		t.Errorf("Str() = %q, %v", s, ok)
	}
	if sub, data, ok := get("binary").Binary(); !ok || sub != 0x80 ||
		!bytes.Equal(data, []byte{1, 2}) {
		t.Errorf("Binary() = %d %x, %v", sub, data, ok)
	}
	if sub, data, ok := get("old").Binary(); !ok || sub != 2 || !bytes.Equal(data, []byte{3}) {
		t.Errorf("Binary() = %d %x, %v", sub, data, ok)
	}
	if id, ok := get("objectid").ObjectID(); !ok || id.Hex() != "0102030405060708090a0b0c" {
		t.Errorf("ObjectID() = %v, %v", id, ok)
	}
	if b, ok := get("bool").Bool(); !ok || !b {
		t.Errorf("Bool() = %v, %v", b, ok)
	}
	if at, ok := get("date").Time(); !ok || !at.Equal(time.UnixMilli(-1)) {
		t.Errorf("Time() = %v, %v", at, ok)
	}
	if p, o, ok := get("regex").Regex(); !ok || p != "^a" || o != "imx" {
		t.Errorf("Regex() = %q, %q, %v", p, o, ok)
	}
	if ns, id, ok := get("pointer").DBPointer(); !ok || ns != "db.c" || id[0] != 1 {
		t.Errorf("DBPointer() = %q, %v, %v", ns, id, ok)
	}
	if s, ok := get("code").JavaScript(); !ok || s != "f()" {
		t.Errorf("JavaScript() = %q, %v", s, ok)
	}
	if s, ok := get("symbol").Symbol(); !ok || s != "s" {
		t.Errorf("Symbol() = %q, %v", s, ok)
	}
	if code, scope, ok := get("scope").CodeWithScope(); !ok || code != "g()" ||
		scope.FirstKey() != "x" {
		t.Errorf("CodeWithScope() = %q, %x, %v", code, []byte(scope), ok)
	}
	if n, ok := get("int32").Int32(); !ok || n != -7 {
		t.Errorf("Int32() = %d, %v", n, ok)
	}
	if sec, inc, ok := get("timestamp").Timestamp(); !ok || sec != 5 || inc != 6 {
		t.Errorf("Timestamp() = %d, %d, %v", sec, inc, ok)
	}
	if n, ok := get("int64").Int64(); !ok || n != math.MinInt64 {
		t.Errorf("Int64() = %d, %v", n, ok)
	}
	if dec, ok := get("decimal").Decimal128(); !ok || dec.String() != "12" {
		t.Errorf("Decimal128() = %v, %v", dec, ok)
	}
	if (bson.Value{}).Validate() == nil {
		t.Error("the zero Value is valid")
	}
	if !get("null").IsNull() || get("null").IsZero() || !(bson.Value{}).IsZero() {
		t.Error("IsNull, IsZero")
	}
}

// No accessor takes a value of another type, nor one without bytes.
func TestAccessorsRefuse(t *testing.T) {
	d := sample()
	accepted := func(v bson.Value) (names []string) {
		add := func(name string, ok bool) {
			if ok {
				names = append(names, name)
			}
		}
		_, ok := v.Double()
		add("double", ok)
		_, ok = v.Str()
		add("string", ok)
		_, ok = v.Document()
		add("object", ok)
		_, ok = v.Array()
		add("array", ok)
		_, _, ok = v.Binary()
		add("binData", ok)
		_, ok = v.ObjectID()
		add("objectId", ok)
		_, ok = v.Bool()
		add("bool", ok)
		_, ok = v.Time()
		add("date", ok)
		_, _, ok = v.Regex()
		add("regex", ok)
		_, _, ok = v.DBPointer()
		add("dbPointer", ok)
		_, ok = v.JavaScript()
		add("javascript", ok)
		_, ok = v.Symbol()
		add("symbol", ok)
		_, _, ok = v.CodeWithScope()
		add("javascriptWithScope", ok)
		_, ok = v.Int32()
		add("int", ok)
		_, _, ok = v.Timestamp()
		add("timestamp", ok)
		_, ok = v.Int64()
		add("long", ok)
		_, ok = v.Decimal128()
		add("decimal", ok)
		return names
	}
	for key, v := range d.All() {
		names := accepted(v)
		want := 1
		if len(v.Data) == 0 {
			want = 0
		}
		if len(names) != want || want == 1 && names[0] != v.Type.String() {
			t.Errorf("%s is taken for %v", key, names)
		}
		if v.Type != bson.TypeDocument && v.Type != bson.TypeArray {
			if names := accepted(bson.Value{Type: v.Type}); len(names) > 0 {
				t.Errorf("%s without bytes is taken for %v", key, names)
			}
		}
	}
}

func TestLookup(t *testing.T) {
	d := sample()
	for path, want := range map[string]bool{
		"string": true, "document.a": true, "document.b.c": true, "array.0": true, "array.1.0": true,
		"nothing": false, "document.x": false, "string.x": false, "array.2": false, "document.b.c.d": false,
	} {
		if d.Has(strings.Split(path, ".")...) != want {
			t.Errorf("Has(%s) = %v, want %v", path, !want, want)
		}
	}
	if _, ok := d.Lookup(); ok {
		t.Error("Lookup() of no path finds something")
	}
	if !bson.Raw(nil).IsEmpty() || d.IsEmpty() || bson.Raw(nil).Len() != 0 || d.Len() != 23 ||
		bson.Raw(nil).FirstKey() != "" {
		t.Error("IsEmpty, Len, FirstKey")
	}
	v, _ := d.Lookup("array")
	a, _ := v.Array()
	if a.Len() != 2 || a.IsEmpty() || a.Validate() != nil {
		t.Errorf("array has %d elements", a.Len())
	}
	docs := bson.NewBuilder(nil).OpenArray("a").Document("", nil).Int32("", 1).Document("", d).
		Close().Finish()
	v, _ = docs.Lookup("a")
	a, _ = v.Array()
	n := 0
	for range a.Documents() {
		n++
	}
	if n != 2 {
		t.Errorf("Documents() yields %d, want 2", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		d.Lookup("document", "b", "c")
		for range d.All() {
		}
	}); n != 0 {
		t.Errorf("walking allocates %v times", n)
	}
}

func TestCoercion(t *testing.T) {
	for _, c := range []struct {
		v      bson.Value
		n      int64
		ok     bool
		truthy bool
	}{
		{bson.Int32Value(3), 3, true, true},
		{bson.Int64Value(math.MinInt64), math.MinInt64, true, true},
		{bson.DoubleValue(4), 4, true, true},
		{bson.DoubleValue(0), 0, true, false},
		{bson.DoubleValue(4.5), 0, false, true},
		{bson.DoubleValue(math.NaN()), 0, false, true},
		{bson.DoubleValue(math.Inf(1)), 0, false, true},
		{bson.DoubleValue(1 << 63), 0, false, true},
		{bson.DoubleValue(-1 << 63), math.MinInt64, true, true},
		{bson.BoolValue(true), 0, false, true},
		{bson.BoolValue(false), 0, false, false},
		{bson.StringValue("1"), 0, false, false},
		{bson.Value{}, 0, false, false},
	} {
		if n, ok := c.v.AsInt64(); n != c.n || ok != c.ok {
			t.Errorf("AsInt64(%v) = %d, %v, want %d, %v", c.v, n, ok, c.n, c.ok)
		}
		if c.v.Truthy() != c.truthy {
			t.Errorf("Truthy(%v) = %v", c.v, !c.truthy)
		}
	}
}

func TestRead(t *testing.T) {
	two := append(sample(), 5, 0, 0, 0, 0)
	d, rest, err := bson.Read(two)
	if err != nil || !bytes.Equal(d, sample()) || len(rest) != 5 || cap(d) != len(d) {
		t.Fatalf("Read = %d bytes, %d left, %v", len(d), len(rest), err)
	}
	for _, b := range [][]byte{
		nil, {5, 0, 0, 0}, {4, 0, 0, 0, 0}, {6, 0, 0, 0, 0}, {5, 0, 0, 0, 1}, {0xFF, 0xFF, 0xFF, 0xFF, 0}, {0xFF, 0xFF, 0xFF, 0x7F, 0},
	} {
		if _, _, err := bson.Read(b); err == nil {
			t.Errorf("Read(%x) has no error", b)
		}
	}
}

func TestIterStops(t *testing.T) {
	d := bson.NewBuilder(nil).Int32("a", 1).String("b", "x").Finish()
	d[len(d)-6] = 99 // the length of the string
	it := d.Iter()
	n := 0
	for it.Next() {
		n++
	}
	if invalid, ok := errors.AsType[*bson.ValidationError](it.Err()); n != 1 || !ok ||
		invalid.Path != "b" {
		t.Errorf("%d elements, error %v; want 1 and an error at b", n, it.Err())
	}
	short := bson.Raw{9, 0, 0, 0, 0}
	it = short.Iter()
	if it.Next() || it.Err() == nil {
		t.Error("a document with a wrong length has elements, or no error")
	}
	it = bson.Raw(nil).Iter()
	if it.Next() || it.Err() != nil {
		t.Errorf("no document: error %v", it.Err())
	}
	it = sample().Iter()
	var rebuilt []byte
	for it.Next() {
		if it.Offset() != 4+len(rebuilt) {
			t.Fatalf("offset of %s = %d, want %d", it.Key(), it.Offset(), 4+len(rebuilt))
		}
		rebuilt = append(rebuilt, it.Element()...)
	}
	if whole := sample(); !bytes.Equal(rebuilt, whole[4:len(whole)-1]) {
		t.Error("the elements are not the document")
	}
}

func TestTypeString(t *testing.T) {
	for ty, want := range map[bson.Type]string{
		bson.TypeDocument: "object", bson.TypeMinKey: "minKey", bson.TypeMaxKey: "maxKey", 0: "type(0x0)", 0x14: "type(0x14)",
	} {
		if got := ty.String(); got != want {
			t.Errorf("String() = %s, want %s", got, want)
		}
	}
}
