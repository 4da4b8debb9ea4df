package bson_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// document makes one from its Extended JSON.
func document(t testing.TB, text string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The prose tests of the DBRef specification.
func TestDBRefDecode(t *testing.T) {
	for _, c := range []struct{ name, in, out string }{
		{"valid", `{"$ref": "coll0", "$id": {"$oid": "60a6fe9a54f4180c86309efa"}}`, ""},
		{"valid, any id", `{"$ref": "coll0", "$id": 1}`, ""},
		{"valid, null id", `{"$ref": "coll0", "$id": null}`, ""},
		{"valid, database", `{"$ref": "coll0", "$id": 1, "$db": "db0"}`, ""},
		{"extra fields", `{"$ref": "coll0", "$id": 1, "$db": "db0", "foo": "bar"}`, ""},
		{"extra fields, no database", `{"$ref": "coll0", "$id": 1, "foo": true, "bar": false}`, ""},
		{"dollar and dot", `{"$ref": "coll0", "$id": 1, "$foo": 1, "foo.bar": 2}`, ""},
		{"names", `{"$ref": "", "$id": 1, "$db": "a b$"}`, ""},
		{"out of order", `{"$id": 1, "$ref": "coll0"}`, `{"$ref": "coll0", "$id": 1}`},
		{"database first", `{"$db": "db0", "$ref": "coll0", "$id": 1}`, `{"$ref": "coll0", "$id": 1, "$db": "db0"}`},
		{"extra first", `{"foo": 1, "$id": 1, "$ref": "coll0"}`, `{"$ref": "coll0", "$id": 1, "foo": 1}`},
		{
			"extra between", `{"foo": 1, "$ref": "coll0", "$id": 1, "$db": "db0", "bar": 1}`,
			`{"$ref": "coll0", "$id": 1, "$db": "db0", "foo": 1, "bar": 1}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := document(t, c.in)
			r, err := in.DBRef()
			if err != nil {
				t.Fatal(err)
			}
			want := in
			if c.out != "" {
				want = document(t, c.out)
			}
			if database, ok := in.Lookup("$db"); ok != r.HasDatabase ||
				ok && !strings.Contains(string(database.Data), r.Database) {
				t.Errorf("DBRef() = %+v, HasDatabase want %v", r, ok)
			}
			if got := r.Document(); !bytes.Equal(got, want) {
				t.Errorf("Document() = %x, want %x", []byte(got), []byte(want))
			}
		})
	}
	for _, in := range []string{
		`{}`, `{"$ref": "coll0"}`, `{"$id": 1}`, `{"$ref": true, "$id": 1}`, `{"$ref": "coll0", "$id": 1, "$db": true}`,
	} {
		if _, err := document(t, in).DBRef(); !errors.Is(err, bson.ErrDBRef) {
			t.Errorf("DBRef of %s: error = %v, want ErrDBRef", in, err)
		}
	}
}

func TestDBRefEncode(t *testing.T) {
	extra := document(t, `{"foo": "bar", "$x": 1}`)
	for _, c := range []struct {
		name string
		r    bson.DBRef
		want string
	}{
		{"plain", bson.DBRef{Collection: "coll0", ID: bson.Int32Value(1)}, `{"$ref": "coll0", "$id": 1}`},
		{"no id", bson.DBRef{Collection: "coll0"}, `{"$ref": "coll0", "$id": null}`},
		{"database", bson.DBRef{Collection: "coll0", ID: bson.NullValue(), Database: "db0"}, `{"$ref": "coll0", "$id": null, "$db": "db0"}`},
		{
			"extra", bson.DBRef{Collection: "coll0", ID: bson.Int32Value(1), Database: "db0"}.WithExtra(extra),
			`{"$ref": "coll0", "$id": 1, "$db": "db0", "foo": "bar", "$x": 1}`,
		},
	} {
		if got := c.r.Document(); !bytes.Equal(got, document(t, c.want)) {
			t.Errorf("%s: Document() = %x, want %s", c.name, []byte(got), c.want)
		}
	}
}
