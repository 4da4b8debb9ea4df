package declare_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/mooringdb/mooring/cmd/gateway/internal/declare"
	"github.com/mooringdb/mooring/cmd/gateway/internal/schema"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

func document(t *testing.T, text string) bson.Raw {
	t.Helper()
	doc, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return doc
}

// TestWrite runs the files in testdata. "validator collection=c" and "sample collection=c" take a
// $jsonSchema, or a document on each line; "write" writes all in a language. Rewrite them with
// -rewrite, and read the diff.
func TestWrite(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var collections []declare.Collection
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			c := declare.Collection{}
			switch d.Cmd {
			case "validator":
				d.ScanArgs(t, "collection", &c.Name)
				found, err := schema.Parse(document(t, `{"$jsonSchema": `+d.Input+`}`))
				if err != nil {
					return err.Error()
				}
				c.Type, c.Doc = found, "Its validator describes it."
			case "sample":
				d.ScanArgs(t, "collection", &c.Name)
				if d.HasArg("as") {
					d.ScanArgs(t, "as", &c.As)
				}
				var s schema.Sample
				for line := range strings.Lines(d.Input) {
					s.Add(document(t, line))
				}
				c.Type = s.Type()
			case "write":
				o := declare.Options{
					Package: "shop", Head: []string{"The database shop."}, BSON: d.HasArg("bson"),
				}
				d.ScanArgs(t, "language", &o.Language)
				out, err := declare.Write(collections, o)
				if err != nil {
					return err.Error()
				}
				return string(out)
			}
			collections = append(collections, c)
			return ""
		})
	})
}

// FuzzWrite checks that no validator, name or description makes declarations that cannot be read:
// Write fails if what it wrote is not Go, and comments end on their lines.
func FuzzWrite(f *testing.F) {
	f.Add(`{"properties": {"a": {"bsonType": "int", "description": "*/ x"}}}`, "orders")
	f.Add(`{"properties": {"a-b": {"enum": ["x", "\\u0000"]}, "": {}}, "required": ["\\ufeff"]}`,
		"a\nb")
	f.Fuzz(func(t *testing.T, text, name string) {
		d, err := extjson.Parse(nil, []byte(`{"$jsonSchema": `+text+`}`))
		if err != nil {
			return
		}
		found, err := schema.Parse(d)
		if err != nil || found == nil {
			return
		}
		all := []declare.Collection{{Name: name, Type: found, Doc: name}}
		for _, language := range declare.Languages {
			for _, bson := range []bool{false, true} {
				o := declare.Options{
					Language: language, Package: "p", BSON: bson, Head: []string{name, "head"},
				}
				out, err := declare.Write(all, o)
				if err != nil {
					t.Fatalf("%s: %v", language, err)
				}
				if bytes.ContainsAny(out, "\x00\r\v\f") {
					t.Errorf("%s: there are control characters in\n%q", language, out)
				}
			}
		}
	})
}
