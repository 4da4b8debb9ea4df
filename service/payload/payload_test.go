package payload_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
)

func jsonDoc(text string) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: text}}
}

func jsonValue(text string) *mooringv1.Value {
	return &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: text}}
}

func parse(t testing.TB, text string) bson.Raw {
	t.Helper()
	raw, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func show(t *testing.T, raw bson.Raw) string {
	t.Helper()
	if raw == nil {
		return "-"
	}
	text, err := extjson.Append(nil, raw, extjson.Canonical)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var validating payload.Decoder

// TestBuilt checks that BSON which the process has built is not validated again, and that texts
// and missing forms are refused as usual.
func TestBuilt(t *testing.T) {
	built := payload.Decoder{Built: true}
	broken := bson.Raw{5, 0, 0, 0, 1}
	list, err := built.List("documents", []*mooringv1.Document{payload.NewDocument(broken)})
	if err != nil || len(list) != 1 || &list[0][0] != &broken[0] {
		t.Errorf("List(%x) = %x, %v", broken, list, err)
	}
	for name, read := range map[string]func(string, *mooringv1.Document) (bson.Raw, error){
		"Raw": built.Raw, "Keys": built.Keys,
	} {
		if raw, err := read("filter", payload.NewDocument(broken)); err != nil ||
			&raw[0] != &broken[0] {
			t.Errorf("%s(%x) = %x, %v", name, broken, raw, err)
		}
		for _, doc := range []*mooringv1.Document{{}, jsonDoc(`{"a": tru}`)} {
			if raw, err := read("filter", doc); err == nil {
				t.Errorf("%s(%v) = %x", name, doc, raw)
			}
		}
	}
	text := bson.StringValue("\xff") // not UTF-8
	if v, err := built.Value("comment", payload.NewValue(text)); err != nil || !v.Equal(text) {
		t.Errorf("Value(%x) = %x, %v", text.Data, v.Data, err)
	}
	for _, v := range []*mooringv1.Value{
		{}, jsonValue(`tru`), {Encoding: &mooringv1.Value_Bson{Bson: bson.NewBuilder(nil).Finish()}},
	} {
		if got, err := built.Value("comment", v); err == nil {
			t.Errorf("Value(%v) = %x", v, got.Data)
		}
	}
}

func TestRawIsAViewOnTheMessage(t *testing.T) {
	raw := parse(t, `{"a": 1}`)
	got, err := validating.Raw("filter", payload.NewDocument(raw))
	if err != nil || &got[0] != &raw[0] {
		t.Errorf("Raw copied, or %v", err)
	}
}

func TestDocuments(t *testing.T) {
	nested := parse(t, `{"a": {"b": "xx"}}`)
	bad := bytes.Clone(nested)
	bad[bytes.IndexByte(bad, 'x')-4] = 9 // the string's length
	for _, c := range []struct {
		name string
		doc  *mooringv1.Document
		read func(string, *mooringv1.Document) (bson.Raw, error)
		want string // a document, or an error
	}{
		{"unset", nil, validating.Raw, `-`},
		{"bson", payload.NewDocument(nested), validating.Raw, `{"a":{"b":"xx"}}`},
		{"json", jsonDoc(`{"a": 1}`), validating.Raw, `{"a":{"$numberInt":"1"}}`},
		{"neither form", &mooringv1.Document{}, validating.Raw, `filter: neither bson nor json is set`},
		{"empty bson", payload.NewDocument(nil), validating.Raw, `filter: malformed BSON`},
		{"malformed bson", payload.NewDocument(bad), validating.Raw, `filter.a.b: malformed BSON`},
		{"malformed json", jsonDoc(`{"a": {"b": tru}}`), validating.Raw, `filter.a.b: malformed Extended JSON`},
		{"json array", jsonDoc(`[["a", 1]]`), validating.Raw, `filter: malformed Extended JSON`},
		{"pairs", jsonDoc(` [["b", 1], ["2", {"$numberLong": "-1"}]] `), validating.Keys, `{"b":{"$numberInt":"1"},"2":{"$numberLong":"-1"}}`},
		{"no pairs", jsonDoc(`[ ]`), validating.Keys, `{}`},
		{"keys as an object", jsonDoc(`{"a": 1}`), validating.Keys, `{"a":{"$numberInt":"1"}}`},
		{"keys as bson", payload.NewDocument(nested), validating.Keys, `{"a":{"b":"xx"}}`},
		{"keys unset", nil, validating.Keys, `-`},
		{"text after pairs", jsonDoc(`[["a", 1]] x`), validating.Keys, `filter: malformed Extended JSON: unexpected text after the array (offset 11)`},
		{"not a pair", jsonDoc(`[["a", 1], 2]`), validating.Keys, `filter.1: malformed Extended JSON: expected a pair, [key, value] (offset 11)`},
		{"key of a number", jsonDoc(`[["a", 1], [2, 2]]`), validating.Keys, `filter.1: malformed Extended JSON: expected the key, a string (offset 12)`},
		{"triple", jsonDoc(`[["a", 1, 2]]`), validating.Keys, `filter: malformed Extended JSON: expected "]" after a key and its value (offset 8)`},
		{"cut pairs", jsonDoc(`[["a", 1]`), validating.Keys, `filter.1: malformed Extended JSON: expected "," or "]" (offset 9)`},
		{"bad value in a pair", jsonDoc(`[["a", 1], ["b", {"c": x}]]`), validating.Keys, `filter.1.c: malformed Extended JSON`},
		{"zero byte in a key", jsonDoc(`[["a\u0000", 1]]`), validating.Keys, `filter: malformed Extended JSON`},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw, err := c.read("filter", c.doc)
			if err != nil {
				if _, ok := errors.AsType[*payload.Error](err); !ok {
					t.Fatalf("%T is not an Error", err)
				}
				if !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("error %q, want %q", err, c.want)
				}
				return
			}
			if got := show(t, raw); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestValues(t *testing.T) {
	for _, c := range []struct {
		name  string
		value *mooringv1.Value
		want  string
	}{
		{"bson", payload.NewValue(bson.Int64Value(5)), `{"$numberLong":"5"}`},
		{"null", jsonValue(`null`), `null`},
		{"array", jsonValue(`[1, "a"]`), `[{"$numberInt":"1"},"a"]`},
		{"neither form", &mooringv1.Value{}, `comment: neither bson nor json is set`},
		{"other key", &mooringv1.Value{Encoding: &mooringv1.Value_Bson{Bson: parse(t, `{"w": 1}`)}}, `comment: a value's BSON is`},
		{"two elements", &mooringv1.Value{Encoding: &mooringv1.Value_Bson{Bson: parse(t, `{"v": 1, "w": 1}`)}}, `comment: a value's BSON is`},
		{"bad json", jsonValue(`{"a": x}`), `comment.a: malformed`},
		{"bad bson", &mooringv1.Value{Encoding: &mooringv1.Value_Bson{Bson: []byte{1}}}, `comment: malformed`},
	} {
		v, err := validating.Value("comment", c.value)
		if err != nil {
			if !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%s: error %q, want %q", c.name, err, c.want)
			}
			continue
		}
		text, err := extjson.AppendValue(nil, v, extjson.Canonical)
		if err != nil || string(text) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.name, text, err, c.want)
		}
	}
	if v, err := validating.Value("comment", nil); err != nil || !v.IsZero() {
		t.Errorf("unset: %v, %v", v, err)
	}
}

func TestList(t *testing.T) {
	list, err := validating.List("documents",
		[]*mooringv1.Document{jsonDoc(`{}`), jsonDoc(`{"a": 1}`)})
	if err != nil || len(list) != 2 || list[1].FirstKey() != "a" {
		t.Errorf("%v, %v", list, err)
	}
	for _, c := range []struct {
		doc  *mooringv1.Document
		want string
	}{
		{jsonDoc(`{"a": {"b": }}`), "documents.1.a.b: "}, {nil, "documents.1: "}, {&mooringv1.Document{}, "documents.1: "},
	} {
		if _, err := validating.List("documents",
			[]*mooringv1.Document{jsonDoc(`{}`), c.doc}); err == nil ||
			!strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("error %v, want %s…", err, c.want)
		}
	}
}

func TestEncodings(t *testing.T) {
	raw := parse(t, `{"n": {"$numberLong": "9007199254740993"}, "i": 1}`)
	for _, c := range []struct {
		header []string
		want   string // the document's, or of the error
	}{
		{nil, ""},
		{[]string{"json"}, `{"n":{"$numberLong":"9007199254740993"},"i":1}`},
		{[]string{"canonical-json"}, `{"n":{"$numberLong":"9007199254740993"},"i":{"$numberInt":"1"}}`},
		{[]string{"bson"}, "error"},
		{[]string{""}, "error"},
		{[]string{"json", "json"}, "error"},
	} {
		ctx := metadata.NewIncomingContext(context.Background(),
			metadata.MD{payload.EncodingKey: c.header})
		enc, err := payload.EncodingFrom(ctx)
		if (err != nil) != (c.want == "error") {
			t.Errorf("%q: %v", c.header, err)
		}
		if err != nil {
			continue
		}
		one, err := enc.Document(raw)
		if err != nil || one.GetJson() != c.want {
			t.Errorf("%q: %v, %v", c.header, one, err)
		}
		many, err := enc.Documents([]bson.Raw{raw, raw})
		if err != nil || len(many) != 2 || many[1].GetJson() != c.want ||
			c.want == "" && &many[1].GetBson()[0] != &raw[0] {
			t.Errorf("%q: %v, %v", c.header, many, err)
		}
		value, err := enc.Value(bson.Int32Value(1))
		if err != nil || (value.GetJson() == "") != (c.want == "") {
			t.Errorf("%q: %v, %v", c.header, value, err)
		}
		if none, err := enc.Document(nil); none != nil || err != nil {
			t.Errorf("%q: %v, %v for no document", c.header, none, err)
		}
		if none, err := enc.Value(bson.Value{}); none != nil || err != nil {
			t.Errorf("%q: %v, %v for no value", c.header, none, err)
		}
	}
}

// TestUnencodable checks that each document or value that JSON cannot represent is an error, and
// that none becomes empty.
func TestUnencodable(t *testing.T) {
	text := bson.NewBuilder(nil).String("a", "\xff").Finish()
	broken := bson.Raw{8, 0, 0, 0, 0x99, 'a', 0, 0}
	good := parse(t, `{"a": 1}`)
	for _, enc := range []payload.Encoding{payload.JSON, payload.CanonicalJSON} {
		for _, c := range []struct {
			raw  bson.Raw
			utf8 bool
		}{{text, true}, {broken, false}} {
			one, oneErr := enc.Document(c.raw)
			many, manyErr := enc.Documents([]bson.Raw{good, c.raw, good})
			value, valueErr := enc.Value(bson.DocumentValue(c.raw))
			if one != nil || len(many) != 1 || value != nil {
				t.Errorf("%v: %v, %v, %v", enc, one, many, value)
			}
			for _, err := range []error{oneErr, manyErr, valueErr} {
				if e, ok := errors.AsType[*payload.EncodeError](err); !ok ||
					e.InvalidUTF8 != c.utf8 || !strings.Contains(err.Error(), "ask for BSON") {
					t.Errorf("%v: %v, want an *EncodeError, InvalidUTF8 %v", enc, err, c.utf8)
				}
			}
		}
		if v, err := enc.Value(bson.StringValue("\xff")); v != nil || err == nil {
			t.Errorf("%v: %v, %v", enc, v, err)
		}
	}
	if many, err := payload.BSON.Documents([]bson.Raw{text, broken}); err != nil || len(many) != 2 {
		t.Errorf("as BSON: %v, %v", many, err)
	}
}

// TestManyValues checks that the messages of many values are those of each.
func TestManyValues(t *testing.T) {
	id := bson.ObjectIDValue(bson.NewObjectID())
	values := []bson.Value{
		id,
		{},
		bson.MinKeyValue(), bson.StringValue("text"),
		bson.DocumentValue(parse(t, `{"a": [1]}`)), id,
	}
	for _, enc := range []payload.Encoding{payload.BSON, payload.JSON, payload.CanonicalJSON} {
		got, err := enc.Values(values)
		if err != nil || len(got) != len(values) {
			t.Fatalf("%v: %v, %v", enc, got, err)
		}
		for i, v := range values {
			if want, err := enc.Value(v); err != nil || !proto.Equal(got[i], want) {
				t.Errorf("%v: value %d is %v, want %v (%v)", enc, i, got[i], want, err)
			}
		}
	}
	got, err := payload.JSON.Values([]bson.Value{id, bson.StringValue("\xff")})
	if got != nil || err == nil {
		t.Errorf("a string that is not UTF-8: %v, %v", got, err)
	}
}

// TestLeading checks that Leading counts the bytes of JSON, not those of BSON.
func TestLeading(t *testing.T) {
	docs := slices.Repeat([]bson.Raw{parse(t, `{"a": 1}`)}, 5) // 7 bytes of JSON, 12 of BSON
	for bytes, want := range map[int]int{0: 1, 7: 1, 13: 1, 14: 2, 34: 4, 35: 5, 1000: 5} {
		if got, err := payload.JSON.Leading(docs, bytes); err != nil || len(got) != want {
			t.Errorf("%d bytes: %d documents, %v, want %d", bytes, len(got), err, want)
		}
		if got, err := payload.BSON.Leading(docs, bytes); err != nil || len(got) != 5 {
			t.Errorf("BSON, %d bytes: %d documents, %v", bytes, len(got), err)
		}
	}
	if got, err := payload.JSON.Leading(nil, 10); err != nil || len(got) != 0 {
		t.Errorf("nothing: %v, %v", got, err)
	}
}

func FuzzAppendPairs(f *testing.F) {
	for _, s := range []string{
		`[]`, `[["a",1]]`, `[["b",1],["2",-1]]`, `[["a",{"$oid":"65a1b2c3d4e5f60718293a4b"}]] x`, `[["a"`, `[[1,2]]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		prefix := []byte("before")
		out, n, err := payload.AppendPairs(prefix, text)
		if err != nil {
			return
		}
		if n > len(text) || !bytes.HasPrefix(out, prefix) {
			t.Fatalf("%d bytes of %d, %q", n, len(text), out)
		}
		if err := bson.Raw(out[len(prefix):]).Validate(); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

// Small numbers take two bytes in JSON, and eleven or more in BSON. A document that becomes too
// large is refused while it is parsed.
func TestTextsThatBecomeTooLarge(t *testing.T) {
	ones := "[" + strings.Repeat("1,", 2<<20) + "1]"
	for name, read := range map[string]func() error{
		"filter": func() error { _, err := validating.Raw("filter", jsonDoc(`{"a": `+ones+`}`)); return err },
		"sort":   func() error { _, err := validating.Keys("sort", jsonDoc(`[["a", `+ones+`]]`)); return err },
		"docs": func() error {
			_, err := validating.List("docs",
				[]*mooringv1.Document{jsonDoc("{}"), jsonDoc(`{"a": ` + ones + `}`)})
			return err
		},
		"comment": func() error { _, err := validating.Value("comment", jsonValue(ones)); return err },
	} {
		err := read()
		e, ok := errors.AsType[*payload.Error](err)
		if !ok || !e.TooLarge || !strings.HasPrefix(e.Field, name) ||
			e.Problem != "too large as BSON" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
