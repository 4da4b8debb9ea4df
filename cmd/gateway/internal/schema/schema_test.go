package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/schema"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

var kinds = []struct {
	kind schema.Kinds
	name string
}{
	{schema.Double, "double"},
	{schema.String, "string"},
	{schema.Object, "object"},
	{schema.Array, "array"},
	{schema.Binary, "binary"},
	{schema.ObjectID, "objectId"},
	{schema.Bool, "bool"},
	{schema.Date, "date"},
	{schema.Null, "null"},
	{schema.Int, "int"},
	{schema.Long, "long"},
	{schema.Decimal, "decimal"},
	{schema.Timestamp, "timestamp"},
}

// show writes a type on one line.
func show(t *schema.Type) string {
	if t == nil {
		return "unknown"
	}
	if t.Kinds == schema.Any && len(t.Fields) == 0 {
		return "any"
	}
	var parts []string
	for _, k := range kinds {
		if !t.May(k.kind) {
			continue
		}
		part := k.name
		switch {
		case k.kind == schema.Object && len(t.Fields) > 0:
			var fields []string
			for _, f := range t.Fields {
				optional := ""
				if f.Optional {
					optional = "?"
				}
				fields = append(fields, f.Name+optional+": "+show(f.Type))
			}
			part = "{" + strings.Join(fields, ", ") + "}"
		case k.kind == schema.Object && t.Values != nil:
			part = "map of " + show(t.Values)
		case k.kind == schema.Array && t.Elements != nil:
			part = "[" + show(t.Elements) + "]"
		case k.kind == schema.String && t.Strings != nil:
			part = fmt.Sprintf("%q", t.Strings)
		case k.kind&schema.Number != 0 && t.Numbers != nil:
			part += fmt.Sprint(t.Numbers)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "|")
}

func document(t *testing.T, text string) bson.Raw {
	t.Helper()
	doc, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return doc
}

func TestParse(t *testing.T) {
	for _, row := range []struct{ name, schema, want string }{
		{"kinds", `{"properties": {"a": {"bsonType": "int"}, "b": {"bsonType": ["string", "null"]},
			"c": {"type": "number"}}}`, "{a?: int, b?: string|null, c?: double|int|long|decimal}"},
		{
			"required", `{"required": ["b", "c"], "properties": {"b": {"bsonType": "date"}}}`,
			"{b: date, c: any}",
		},
		{"keywords in any order", `{"properties": {"a": {"enum": ["x", "y", null],
			"bsonType": ["string", "null"]}}}`, `{a?: ["x" "y"]|null}`},
		{
			"an enum without a type", `{"properties": {"a": {"enum": ["x", 1]}}}`,
			`{a?: double[1]|["x"]|int[1]|long[1]|decimal[1]}`,
		},
		{
			"an enum of decimals", `{"properties": {"a": {"enum": [{"$numberDecimal": "1"}, 2]}}}`,
			`{a?: double|int|long|decimal}`,
		},
		{
			"an enum of a kind", `{"properties": {"a": {"enum": [1.0, 2.5], "bsonType": "double"}}}`,
			`{a?: double[1 2.5]}`,
		},
		{
			"nested", `{"properties": {"a": {"properties": {"b": {"bsonType": "bool"}}}}}`,
			"{a?: {b?: bool}}",
		},
		{"elements", `{"properties": {"a": {"items": {"bsonType": "objectId"}}}}`, "{a?: [objectId]}"},
		{"elements one by one", `{"properties": {"a": {"items": [{"bsonType": "int"},
			{"bsonType": "string"}]}}}`, "{a?: [string|int]}"},
		{
			"a map", `{"properties": {"a": {"additionalProperties": {"bsonType": "int"}}}}`,
			"{a?: map of int}",
		},
		{"patterns", `{"properties": {"a": {"patternProperties": {"^x": {"bsonType": "int"},
			"^y": {"bsonType": "long"}}}}}`, "{a?: map of int|long}"},
		{"no further fields", `{"additionalProperties": false,
			"properties": {"a": {"bsonType": "int"}}}`, "{a?: int}"},
		{"one of", `{"properties": {"a": {"oneOf": [{"bsonType": "string"},
			{"properties": {"b": {}}, "required": ["b"]}]}}}`, "{a?: string|{b: any}}"},
		{
			"one of two documents", `{"oneOf": [
			{"properties": {"kind": {"enum": ["x"]}, "a": {"bsonType": "int"}}, "required": ["kind", "a"]},
			{"properties": {"kind": {"enum": ["y"]}, "b": {"bsonType": "int"}}, "required": ["kind"]}]}`,
			`{kind: ["x" "y"], a?: int, b?: int}`,
		},
		{"an alternative that says nothing", `{"properties": {"a": {"anyOf": [
			{"properties": {"b": {"bsonType": "int"}}}, {"bsonType": "object"}]}}}`, "{a?: object}"},
		{"any of two fields", `{"properties": {"a": {"bsonType": "int"}, "b": {"bsonType": "int"}},
			"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}`, "{a?: int, b?: int}"},
		{"all of", `{"allOf": [{"properties": {"a": {"bsonType": ["int", "string"]}}},
			{"required": ["a"]}, {"properties": {"a": {"bsonType": ["int", "null"]}}}]}`, "{a: int}"},
		{
			"nothing is both", `{"properties": {"a": {"allOf": [{"enum": ["x"]}, {"enum": ["y"]}]}}}`,
			"{a?: }",
		},
		{"other keywords", `{"title": "t", "not": {"required": ["z"]},
			"properties": {"a": {"bsonType": "int", "minimum": 1}}}`, "{a?: int}"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := schema.Parse(document(t, `{"$jsonSchema": `+row.schema+`}`))
			if err != nil || show(got) != row.want {
				t.Errorf("Parse = %s, %v, want %s", show(got), err, row.want)
			}
		})
	}
}

func TestParseValidators(t *testing.T) {
	for _, row := range []struct{ name, validator, want string }{
		{"none", `{}`, "unknown"},
		{"other operators", `{"a": {"$gt": 1}}`, "unknown"},
		{"beside others", `{"b": 1, "$jsonSchema": {"required": ["a"]}}`, "{a: any}"},
		{"in $and", `{"$and": [{"b": 1}, {"$jsonSchema": {"required": ["a"]}},
			{"$jsonSchema": {"properties": {"a": {"bsonType": "int"}}}}]}`, "{a: int}"},
	} {
		got, err := schema.Parse(document(t, row.validator))
		if err != nil || show(got) != row.want {
			t.Errorf("%s: Parse = %s, %v, want %s", row.name, show(got), err, row.want)
		}
	}
	for _, row := range []struct{ schema, want string }{
		{
			`{"properties": {"a": {"bsonType": "integer"}}}`,
			`$jsonSchema: properties: a: bsonType: "integer" is not a type`,
		},
		{`{"properties": {"a": 5}}`, "$jsonSchema: properties: a: must be a document"},
		{`{"allOf": [{"enum": 5}]}`, "$jsonSchema: allOf: enum: must be an array"},
	} {
		_, err := schema.Parse(document(t, `{"$jsonSchema": `+row.schema+`}`))
		if err == nil || err.Error() != row.want {
			t.Errorf("Parse(%s) = %v, want %s", row.schema, err, row.want)
		}
	}
}

// TestDepth checks that schemas and documents that nest deeply end in something of any kind.
func TestDepth(t *testing.T) {
	const deep = 90
	nested := strings.Repeat(`{"properties": {"a": `, deep) + `{}` + strings.Repeat("}}", deep)
	got, err := schema.Parse(document(t, `{"$jsonSchema": `+nested+`}`))
	if n := strings.Count(show(got), "a?:"); err != nil || n < 10 || n > 30 {
		t.Errorf("Parse has %d levels, %v", n, err)
	}
	var s schema.Sample
	s.Add(document(t, strings.Repeat(`{"a": `, deep)+`{}`+strings.Repeat("}", deep)))
	if n := strings.Count(show(s.Type()), "a:"); n < 10 || n > 30 {
		t.Errorf("Type has %d levels", n)
	}
}

func TestSample(t *testing.T) {
	names := func(prefix string, n int) string {
		var fields []string
		for i := range n {
			fields = append(fields, fmt.Sprintf(`"%s%d": {"n": %d}`, prefix, i, i))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	}
	for _, row := range []struct {
		name      string
		documents []string
		want      string
	}{
		{"none", nil, "object"},
		{"optional", []string{`{"_id": 1, "a": 1}`, `{"_id": 2}`}, "{_id: int, a?: int}"},
		{
			"kinds",
			[]string{`{"a": 1}`, `{"a": "x"}`, `{"a": null}`, `{"a": {"$numberDecimal": "1"}}`},
			"{a: string|null|int|decimal}",
		},
		{
			"elements",
			[]string{`{"a": []}`, `{"a": [{"b": 1}, {"b": 2.5, "c": true}, "x"]}`},
			"{a: [string|{b: double|int, c?: bool}]}",
		},
		{"no elements", []string{`{"a": []}`}, "{a: array}"},
		{
			"names that are data",
			[]string{`{"a": ` + names("x", 70) + `}`, `{"a": ` + names("y", 70) + `}`},
			"{a: map of {n: int}}",
		},
		{"not yet", []string{`{"a": ` + names("x", 2) + `}`}, "{a: {x0: {n: int}, x1: {n: int}}}"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var s schema.Sample
			for _, text := range row.documents {
				s.Add(document(t, text))
			}
			if got := show(s.Type()); got != row.want || s.Len() != len(row.documents) {
				t.Errorf("Type of %d = %s, want %s", s.Len(), got, row.want)
			}
		})
	}
}

func TestWithField(t *testing.T) {
	id := schema.Field{Name: "_id", Type: &schema.Type{Kinds: schema.Int}}
	parsed, err := schema.Parse(document(t, `{"$jsonSchema": {"required": ["a"], "properties": {
		"b": {"bsonType": "int"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		got  *schema.Type
		want string
	}{
		{parsed.WithField(id), "{_id: int, b?: int, a: any}"},
		{parsed.WithField(id).WithField(id), "{_id: int, b?: int, a: any}"},
		{parsed.Required("b"), "{b: int, a: any}"},
		{parsed.Required("c"), "{b?: int, a: any}"},
		{parsed, "{b?: int, a: any}"},
	} {
		if got := show(row.got); got != row.want {
			t.Errorf("got %s, want %s", got, row.want)
		}
	}
	if !parsed.Has("a") || parsed.Has("_id") {
		t.Error("Has says what is not true")
	}
}
