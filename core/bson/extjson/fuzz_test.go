package extjson_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		document, everything, `{}`, `{"a":[1,-2.5,3e4,{"$numberLong":"5"}]}`, `{"a":{"$scope":{"x":1},"$code":"f"}}`, `{"a":"\ud83d\ude00\n"}`,
		`{"a":{"$regularExpression":{"options":"xi","pattern":"p"}}}`, `{"a":{"$dbPointer":{"$id":{"$oid":"56e1fc72e0c917e9c4714161"},"$ref":"r"}}}`,
		`{"a":{"$date":"2012-12-24T12:15:30.501+01:00"}}`, `{"a":{"$uuid":"00112233-4455-6677-8899-aabbccddeeff"}}`, `{"a":{"$timestamp":{"t":1,"i":2}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := extjson.Parse(nil, text)
		if err != nil {
			var syntax *extjson.SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset > len(text) || syntax.Problem == "" {
				t.Errorf("Parse(%q) = %v", text, err)
			}
			return
		}
		if err := bson.Raw(d).Validate(); err != nil {
			t.Fatalf("Parse(%q) = %x, which is not valid: %v", text, d, err)
		}
		canonical, err := extjson.Append(nil, d, extjson.Canonical)
		if err != nil {
			t.Fatalf("Append(%x) = %v", d, err)
		}
		if again, err := extjson.Parse(nil, canonical); err != nil || !bytes.Equal(again, d) {
			t.Errorf("%q → %x → %s → %x, %v", text, d, canonical, again, err)
		}
		out, n, err := extjson.ParsePrefix(nil, append(bytes.Clone(text), "{}"...))
		if err != nil || n > len(text) || !bytes.Equal(out, d) {
			t.Errorf("ParsePrefix(%q) = %x, %d, %v", text, out, n, err)
		}
	})
}

func FuzzAppend(f *testing.F) {
	f.Add([]byte(parse(f, document)))
	f.Add([]byte(parse(f, everything)))
	f.Add([]byte{5, 0, 0, 0, 0})
	f.Add([]byte("\x1c\x00\x00\x00\x0f\x00\x15\x00\x00\x00\x01\x00\x00\x00\x00\x0c\x00\x00\x00\x10x\x00\x01\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 0 {
			both(t, b)
		}
	})
}
