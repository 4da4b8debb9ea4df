package extjson_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		document, everything, `{}`, `{"a":[1,-2.5,3e4,{"$numberLong":"5"}]}`, `{"a":{"$scope":{"x":1},"$code":"f"}}`, `{"a":"\ud83d\ude00\n"}`,
		`{"a":{"$regularExpression":{"options":"xié","pattern":"p"}}}`, `{"a":{"$dbPointer":{"$id":{"$oid":"56e1fc72e0c917e9c4714161"},"$ref":"r"}}}`,
		`{"a":{"$date":"2012-12-24T12:15:30.501+01:00"}}`, `{"a":{"$uuid":"00112233-4455-6677-8899-aabbccddeeff"}}`, `{"a":{"$timestamp":{"t":1,"i":2}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := extjson.Parse(nil, text)
		if err != nil {
			if syntax, ok := errors.AsType[*extjson.SyntaxError](err); !ok ||
				syntax.Offset > len(text) || syntax.Problem == "" {
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

// A value alone is what it is in a document.
func FuzzParseValue(f *testing.F) {
	for _, text := range []string{
		`1`, `-0.0`, ` "a\u00e9" `, `null`, `[1,{"a":[]}]`, `{"$oid":"56e1fc72e0c917e9c4714161"}`, `{"$date":{"$numberLong":"5"}}`, `{"$date":"1970-01-01T00:00:00.1Z"}`,
		`{"$code":"","$scope":{}}`, `{"$binary":{"base64":"AQID","subType":"02"}}`, `{"$numberDecimal":"1E-6176"}`, `{"$numberDouble":"NaN"}`, `{"$minKey":1}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, _, err := extjson.ParseValue(nil, text)
		doc, docErr := extjson.Parse(nil, append(append([]byte(`{"v":`), text...), '}'))
		if err != nil {
			return // text may hold a document's end and further keys
		}
		if docErr != nil || !bytes.Equal(doc, bson.NewBuilder(nil).Value("v", v).Finish()) {
			t.Fatalf("ParseValue(%q) = %v %x, in a document %x, %v", text, v.Type, v.Data, doc,
				docErr)
		}
		again, err := extjson.AppendValue(nil, v, extjson.Canonical)
		if err != nil {
			t.Fatalf("AppendValue(%v %x) = %v", v.Type, v.Data, err)
		}
		if w, _, n, err := extjson.ParseValuePrefix(nil, again); err != nil || n != len(again) ||
			!w.Equal(v) {
			t.Errorf("%q → %s → %v %x, %v", text, again, w.Type, w.Data, err)
		}
	})
}

// A stream is its lines.
func FuzzReader(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n\n{\"b\":[]}\r\nx\n {} "), 0)
	f.Add([]byte(document+"\n"+everything), 100)
	f.Fuzz(func(t *testing.T, text []byte, limit int) {
		limit %= 1 << 20
		r := extjson.NewReader(bytes.NewReader(text), limit)
		for line := range bytes.Lines(text) {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			got, err := r.Next()
			want, wantErr := extjson.Parse(nil, line)
			switch {
			case errors.Is(err, bson.ErrTooLarge):
				if limit <= 0 || len(want) <= limit && len(line) <= 12*limit {
					t.Fatalf("limit %d: %q is too large", limit, line)
				}
				if len(line) > 12*limit {
					return // the line may have been, which ends the stream
				}
			case (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, want):
				t.Fatalf("line %q: %x, %v, want %x, %v", line, []byte(got), err, want, wantErr)
			}
		}
		if d, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last line: %x, %v", []byte(d), err)
		}
	})
}
