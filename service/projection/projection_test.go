package projection_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/projection"
)

func parse(t testing.TB, json string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatalf("%s: %v", json, err)
	}
	return d
}

// TestApply has what servers answer to a find with these projections (MongoDB's manual, "Project
// Fields to Return from Query").
func TestApply(t *testing.T) {
	const all = `{"_id":1,"a":{"b":1,"c":{"d":2}},"l":[{"b":1,"c":2},5,[{"b":3,"c":4},6]],"s":"x"}`
	for _, row := range []struct{ projection, want string }{
		{`{}`, all},
		{`{"_id": 1}`, `{"_id":1}`},
		{`{"s": 1}`, `{"_id":1,"s":"x"}`},
		{`{"s": true, "a": 2}`, `{"_id":1,"a":{"b":1,"c":{"d":2}},"s":"x"}`},
		{`{"_id": 1, "missing": 1}`, `{"_id":1}`},
		{`{"a.b": 1}`, `{"_id":1,"a":{"b":1}}`},
		{`{"a.c.d": 1, "s.t": 1}`, `{"_id":1,"a":{"c":{"d":2}}}`},
		{`{"a": {"b": 1, "c": {"e": 1}}}`, `{"_id":1,"a":{"b":1,"c":{}}}`},
		{`{"l.b": 1}`, `{"_id":1,"l":[{"b":1},[{"b":3}]]}`},
		{`{"s": 0}`, `{"_id":1,"a":{"b":1,"c":{"d":2}},"l":[{"b":1,"c":2},5,[{"b":3,"c":4},6]]}`},
		{`{"a": false, "s": 0, "_id": 1}`, `{"_id":1,"l":[{"b":1,"c":2},5,[{"b":3,"c":4},6]]}`},
		{`{"a.c.d": 0, "l.c": 0}`, `{"_id":1,"a":{"b":1,"c":{}},"l":[{"b":1},5,[{"b":3},6]],"s":"x"}`},
		{`{"a": {"b": 0}, "s.t": 0, "l": 0}`, `{"_id":1,"a":{"c":{"d":2}},"s":"x"}`},
	} {
		p, err := projection.Compile(parse(t, row.projection))
		if err != nil {
			t.Errorf("%s: %v", row.projection, err)
			continue
		}
		got, err := extjson.Append(nil, p.Apply(parse(t, all)), extjson.Relaxed)
		if err != nil || string(got) != row.want {
			t.Errorf("%s: %s, %v, want %s", row.projection, got, err, row.want)
		}
	}
}

// TestRefusals lists what is not evaluated, with the path that is wrong.
func TestRefusals(t *testing.T) {
	for _, row := range []struct{ projection, want string }{
		{`{"_id": 0}`, "projection: _id: must not leave out _id, by which documents are told apart"},
		{`{"_id.a": 1}`, "projection: _id.a: must not leave out _id, by which documents are told apart"},
		{`{"a": 1, "b": 0}`, "projection: b: mixes fields to include with fields to leave out"},
		{`{"a": {"$slice": 1}}`, "projection: a: computes a value, which is not supported here"},
		{`{"a": {"$elemMatch": {"b": 1}}}`, "projection: a: computes a value, which is not supported here"},
		{`{"a.$": 1}`, "projection: a.$: computes a value, which is not supported here"},
		{`{"a": "$b"}`, "projection: a: computes a value, which is not supported here"},
		{`{"a": {}}`, "projection: a: computes a value, which is not supported here"},
		{`{"a": [1]}`, "projection: a: computes a value, which is not supported here"},
		{`{"a": 1, "a.b": 1}`, "projection: a.b: overlaps with another path"},
		{`{"a.b": 1, "a": 1}`, "projection: a: overlaps with another path"},
		{`{"a": 1, "a": 1}`, "projection: a: overlaps with another path"},
		{`{"": 1}`, "projection: : has an empty name"},
		{`{"a.": 1}`, "projection: a.: has an empty name"},
		{`{"a..b": 1}`, "projection: a..b: has an empty name"},
	} {
		if _, err := projection.Compile(parse(t, row.projection)); err == nil ||
			err.Error() != row.want {
			t.Errorf("%s: %v, want %q", row.projection, err, row.want)
		}
	}
	deep := parse(t, `{"a": 1}`)
	for range 60 {
		deep = bson.NewBuilder(nil).Document("a", deep).Finish()
	}
	if _, err := projection.Compile(deep); err == nil {
		t.Error("a projection 60 deep is taken")
	}
}

// FuzzApply has any projection and any document: what comes out is a document, has the _id, and is
// the same when it is projected again.
func FuzzApply(f *testing.F) {
	for _, p := range []string{`{"a": 1}`, `{"a.b": 0}`, `{"_id": 1}`, `{"a": {"b": 1}}`} {
		f.Add([]byte(parse(f, p)), []byte(parse(f, `{"_id": 1, "a": [{"b": 1}, {"b": {"c": 2}}]}`)))
	}
	f.Fuzz(func(t *testing.T, spec, document []byte) {
		if bson.Raw(spec).Validate() != nil || bson.Raw(document).Validate() != nil {
			t.Skip()
		}
		p, err := projection.Compile(spec)
		if err != nil {
			return
		}
		once := p.Apply(document)
		if err := once.Validate(); err != nil {
			t.Fatalf("%x: %v", once, err)
		}
		before, _ := bson.Raw(document).Lookup("_id")
		after, _ := once.Lookup("_id")
		if !before.Equal(after) {
			t.Errorf("the _id is %v after %v", after, before)
		}
		if again := p.Apply(once); string(again) != string(once) {
			t.Errorf("%x becomes %x", once, again)
		}
	})
}
