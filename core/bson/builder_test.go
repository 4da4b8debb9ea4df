package bson_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/mooringdb/mooring/core/bson"
)

func TestBuilderNesting(t *testing.T) {
	b := bson.NewBuilder([]byte("before"))
	const depth = 30
	for range depth {
		b.OpenArray("a").Null("")
	}
	for range depth {
		b.Close()
	}
	d := b.Finish()
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	path := []string{"a"}
	for range depth - 1 {
		path = append(path, "1")
	}
	if v, ok := d.Lookup(path...); !ok || v.Type != bson.TypeArray {
		t.Errorf("Lookup(%v) = %v, %v", path, v, ok)
	}
	if !bytes.HasPrefix(b.Bytes(), []byte("before")) || b.Len() != len("before")+len(d) {
		t.Errorf("Bytes() = %q", b.Bytes())
	}
	if again := b.Finish(); !bytes.Equal(again, d) {
		t.Error("Finish twice gives another document")
	}
}

func TestBuilderZeroValue(t *testing.T) {
	var b bson.Builder
	if d := b.Finish(); !bytes.Equal(d, []byte{5, 0, 0, 0, 0}) {
		t.Errorf("Finish() = %x", []byte(d))
	}
	b.Reset([]byte{1})
	if d := b.Int32("a", 1).Finish(); d.FirstKey() != "a" || b.Bytes()[0] != 1 {
		t.Errorf("after Reset: %x", b.Bytes())
	}
}

// Bytes of zero in keys and in regular expressions are refused, as the corpus's
// prose test demands, and leave the document whole.
func TestBuilderZeroBytes(t *testing.T) {
	for name, build := range map[string]func(b *bson.Builder){
		"key":               func(b *bson.Builder) { b.Int32("a\x00b", 1) },
		"key of a document": func(b *bson.Builder) { b.OpenDocument("a\x00").Int32("x", 1).Close() },
		"nested key":        func(b *bson.Builder) { b.OpenDocument("d").Null("\x00").Close() },
		"pattern":           func(b *bson.Builder) { b.Regex("r", "a\x00", "i") },
		"options":           func(b *bson.Builder) { b.Regex("r", "a", "i\x00") },
	} {
		b := bson.NewBuilder(nil)
		build(b)
		if b.Err() == nil || !strings.Contains(b.Err().Error(), "zero byte") {
			t.Errorf("%s: Err() = %v", name, b.Err())
		}
		if err := b.Finish().Validate(); err != nil {
			t.Errorf("%s: document is broken: %v", name, err)
		}
	}
	if !bson.RegexValue("\x00", "").IsZero() || bson.RegexValue("a", "b").IsZero() {
		t.Error("RegexValue")
	}
	if b := bson.NewBuilder(nil).String("s", "a\x00b"); b.Err() != nil {
		t.Errorf("a zero byte in a string: %v", b.Err())
	}
}

func TestBuilderBugs(t *testing.T) {
	for name, misuse := range map[string]func(){
		"open at the end":  func() { bson.NewBuilder(nil).OpenDocument("a").Finish() },
		"close nothing":    func() { bson.NewBuilder(nil).Close() },
		"after the end":    func() { b := bson.NewBuilder(nil); b.Finish(); b.Null("a") },
		"no value for key": func() { bson.NewBuilder(nil).Value("a", bson.Value{}) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "bug: ") {
					t.Errorf("%s: panic = %q, want a bug", name, text)
				}
			}()
			misuse()
		}()
	}
}

// The Value constructors lay out what the Builder lays out.
func TestValues(t *testing.T) {
	id := bson.ObjectID{1}
	scope := bson.NewBuilder(nil).Null("n").Finish()
	now := time.UnixMilli(1_700_000_000_123)
	dec := bson.Decimal128{H: 1, L: 2}
	for i, c := range []struct {
		v    bson.Value
		want *bson.Builder
	}{
		{bson.DoubleValue(1.5), bson.NewBuilder(nil).Double("k", 1.5)},
		{bson.StringValue("s"), bson.NewBuilder(nil).String("k", "s")},
		{bson.DocumentValue(nil), bson.NewBuilder(nil).Document("k", nil)},
		{bson.DocumentValue(scope), bson.NewBuilder(nil).OpenDocument("k").Null("n").Close()},
		{bson.ArrayValue(nil), bson.NewBuilder(nil).Array("k", nil)},
		{bson.BinaryValue(2, []byte{1}), bson.NewBuilder(nil).Binary("k", 2, []byte{1})},
		{bson.UndefinedValue(), bson.NewBuilder(nil).Undefined("k")},
		{bson.ObjectIDValue(id), bson.NewBuilder(nil).ObjectID("k", id)},
		{bson.BoolValue(false), bson.NewBuilder(nil).Bool("k", false)},
		{bson.TimeValue(now), bson.NewBuilder(nil).Time("k", now)},
		{bson.DateTimeValue(-5), bson.NewBuilder(nil).DateTime("k", -5)},
		{bson.NullValue(), bson.NewBuilder(nil).Null("k")},
		{bson.RegexValue("p", "xi"), bson.NewBuilder(nil).Regex("k", "p", "ix")},
		{bson.RegexValue("p", "éi"), bson.NewBuilder(nil).Regex("k", "p", "ié")},
		{bson.DBPointerValue("n", id), bson.NewBuilder(nil).DBPointer("k", "n", id)},
		{bson.JavaScriptValue("f"), bson.NewBuilder(nil).JavaScript("k", "f")},
		{bson.SymbolValue("f"), bson.NewBuilder(nil).Symbol("k", "f")},
		{bson.CodeWithScopeValue("f", nil), bson.NewBuilder(nil).CodeWithScope("k", "f", bson.NewBuilder(nil).Finish())},
		{bson.Int32Value(-1), bson.NewBuilder(nil).Int32("k", -1)},
		{bson.TimestampValue(1, 2), bson.NewBuilder(nil).Timestamp("k", 1, 2)},
		{bson.Int64Value(-1), bson.NewBuilder(nil).Int64("k", -1)},
		{bson.Decimal128Value(dec), bson.NewBuilder(nil).Decimal128("k", dec)},
		{bson.MinKeyValue(), bson.NewBuilder(nil).MinKey("k")},
		{bson.MaxKeyValue(), bson.NewBuilder(nil).MaxKey("k")},
	} {
		got, want := bson.NewBuilder(nil).Value("k", c.v).Finish(), c.want.Finish()
		if !bytes.Equal(got, want) {
			t.Errorf("%d: %v = %x, want %x", i, c.v.Type, []byte(got), []byte(want))
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%d: %v: %v", i, c.v.Type, err)
		}
		if !c.v.Equal(c.v.Clone()) || c.v.Equal(bson.Value{}) {
			t.Errorf("%d: Equal", i)
		}
	}
}

func TestEdit(t *testing.T) {
	d := document(t, `{"a": 1, "b": {"x": 2}, "a": 3}`)
	for _, c := range []struct {
		name string
		got  bson.Raw
		want string
	}{
		{"prepend", bson.PrependID(d, "_id", bson.Int32Value(9)), `{"_id": 9, "a": 1, "b": {"x": 2}, "a": 3}`},
		{"prepend to nothing", bson.PrependID(nil, "_id", bson.Int32Value(9)), `{"_id": 9}`},
		{"replace", bson.With(d, "a", bson.NullValue()), `{"a": null, "b": {"x": 2}, "a": 3}`},
		{"append", bson.With(d, "c", bson.NullValue()), `{"a": 1, "b": {"x": 2}, "a": 3, "c": null}`},
		{"remove", bson.Without(d, "a", "z"), `{"b": {"x": 2}}`},
		{"remove nothing", bson.Without(d, "z"), `{"a": 1, "b": {"x": 2}, "a": 3}`},
		{"concat", bson.Concat(document(t, `{"z": 0}`), nil, d), `{"z": 0, "a": 1, "b": {"x": 2}, "a": 3}`},
	} {
		if !bytes.Equal(c.got, document(t, c.want)) {
			t.Errorf("%s = %x, want %s", c.name, []byte(c.got), c.want)
		}
	}
	var array bson.Builder
	got := array.OpenArray("a").AppendElements(d).Close().Finish()
	if !bytes.Equal(got, document(t, `{"a": [1, {"x": 2}, 3]}`)) {
		t.Errorf("AppendElements in an array = %x", []byte(got))
	}
	clone := d.Clone()
	clone[4]++
	if d[4] == clone[4] {
		t.Error("Clone shares bytes")
	}
}

// What the corpus calls degenerate is taken and written in the normal form.
func TestAppendNormal(t *testing.T) {
	for in, want := range map[string]string{
		// {"a": [10]} with the key "", and {"a": [10, 20]} with "0" twice.
		"130000000461000B00000010000A0000000000":                 "140000000461000C0000001030000A0000000000",
		"1B000000046100130000001030000A000000103000140000000000": "1B000000046100130000001030000A000000103100140000000000",
	} {
		d := unhex(t, in)
		if err := d.Validate(); err != nil {
			t.Errorf("Validate(%s) = %v", in, err)
		}
		if got := bson.AppendNormal(nil, d); !bytes.Equal(got, unhex(t, want)) {
			t.Errorf("AppendNormal(%s) = %x, want %s", in, got, want)
		}
	}
	regex := unhex(t, "0F0000000B61006162006D78690000")
	want := bson.NewBuilder(nil).Regex("a", "ab", "imx").Finish()
	if got := bson.AppendNormal(nil, regex); !bytes.Equal(got, want) {
		t.Errorf("AppendNormal(options mxi) = %x, want %x", got, []byte(want))
	}
	scoped := bson.NewBuilder(nil).CodeWithScope("c", "f", regex).Finish()
	want = bson.NewBuilder(nil).CodeWithScope("c", "f", want).Finish()
	if got := bson.AppendNormal([]byte{7}, scoped); !bytes.Equal(got[1:], want) {
		t.Errorf("AppendNormal(scope) = %x, want %x", got[1:], []byte(want))
	}
	if got := bson.AppendNormal(nil, sample()); !bytes.Equal(got, sample()) {
		t.Errorf("AppendNormal changes a normal document")
	}
}

// granter is a Memory that knows the last buffer it has provided, which has no room to spare.
type granter struct{ last *byte }

func (g *granter) Grow(buf []byte, n int) ([]byte, error) {
	larger := append(make([]byte, 0, len(buf)+n), buf...)
	g.last = unsafe.SliceData(larger)
	return larger, nil
}

// TestBuilderMemory has elements of all forms, long and short, come from the Memory.
func TestBuilderMemory(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	data := bson.NewBuilder(nil).String("s", long).Finish()
	for name, add := range map[string]func(b *bson.Builder){
		"string":          func(b *bson.Builder) { b.String("a", long) },
		"document":        func(b *bson.Builder) { b.Document("a", data) },
		"binary":          func(b *bson.Builder) { b.Binary("a", bson.SubtypeGeneric, []byte(long)) },
		"old binary":      func(b *bson.Builder) { b.Binary("a", bson.SubtypeBinaryOld, []byte(long)) },
		"regex":           func(b *bson.Builder) { b.Regex("a", long, "i") },
		"DBPointer":       func(b *bson.Builder) { b.DBPointer("a", long, bson.ObjectID{1}) },
		"code with scope": func(b *bson.Builder) { b.CodeWithScope("a", long, nil) },
		"scope":           func(b *bson.Builder) { b.CodeWithScope("a", "", data) },
		"elements":        func(b *bson.Builder) { b.AppendElements(data) },
		"integer":         func(b *bson.Builder) { b.Int32(long, 1) },
		"date":            func(b *bson.Builder) { b.DateTime(long, 1) },
		"boolean":         func(b *bson.Builder) { b.Bool(long, true) },
		"decimal":         func(b *bson.Builder) { b.Decimal128(long, bson.Decimal128{}) },
		"ObjectId":        func(b *bson.Builder) { b.ObjectID(long, bson.ObjectID{}) },
		"key of a document": func(b *bson.Builder) {
			b.OpenDocument(long).Close()
		},
		"array of integers": func(b *bson.Builder) {
			b.OpenArray("a")
			for range 5_000 {
				b.Int32("", 1)
			}
			b.Close()
		},
	} {
		var b bson.Builder
		g := &granter{}
		b.ResetIn(nil, g)
		for range 3 {
			add(&b)
		}
		if d := b.Finish(); b.Err() != nil || d.Validate() != nil || len(d) < bson.LargeBuffer {
			t.Errorf("%s: %d bytes, %v, %v", name, len(d), b.Err(), d.Validate())
		}
		if unsafe.SliceData(b.Bytes()) != g.last {
			t.Errorf("%s: the buffer is not the Memory's", name)
		}
	}
}

// noMemory is a Memory that has none.
type noMemory struct{}

var errNoMemory = errors.New("no memory")

func (noMemory) Grow([]byte, int) ([]byte, error) { return nil, errNoMemory }

// TestBuilderWithoutMemory: what there is no memory for is left out.
func TestBuilderWithoutMemory(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, add := range map[string]func(b *bson.Builder){
		"binary":   func(b *bson.Builder) { b.Binary("a", 0, []byte(long)) },
		"integer":  func(b *bson.Builder) { b.Int32(long, 1) },
		"document": func(b *bson.Builder) { b.OpenDocument(long).Int32("b", 1).Close() },
		"array":    func(b *bson.Builder) { b.OpenArray(long).Int32("", 1).Close() },
	} {
		var b bson.Builder
		b.ResetIn(nil, noMemory{})
		add(&b)
		d := b.Finish()
		if !errors.Is(b.Err(), errNoMemory) || d.Validate() != nil || len(d) > 100 {
			t.Errorf("%s: %d bytes, %v, %v", name, len(d), b.Err(), d.Validate())
		}
	}
	var refused refusals
	var b bson.Builder
	b.ResetIn(nil, &refused)
	for range 100_000 {
		b.Int32("a", 1)
	}
	if refused != 1 || !errors.Is(b.Err(), errNoMemory) {
		t.Errorf("asked %d times, want once: it may wait each time", refused)
	}
}

// refusals counts how often it is asked, and has nothing.
type refusals int

func (r *refusals) Grow(dst []byte, _ int) ([]byte, error) {
	*r++
	return dst, errNoMemory
}
