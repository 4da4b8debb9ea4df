package spectest

import (
	"os"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// Document returns the document in a JSON file. The test fails if there is none.
func Document(t testing.TB, file string) bson.Raw {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := extjson.Parse(nil, text)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return doc
}

// Value returns the value of a key. The test fails if doc has no such key.
func Value(t testing.TB, doc bson.Raw, key string) bson.Value {
	t.Helper()
	v, ok := doc.Lookup(key)
	if !ok {
		t.Fatalf("no %q in %v", key, doc)
	}
	return v
}

// String returns the string of a key. The test fails if doc has none.
func String(t testing.TB, doc bson.Raw, key string) string {
	t.Helper()
	s, ok := Value(t, doc, key).Str()
	if !ok {
		t.Fatalf("%q is not a string in %v", key, doc)
	}
	return s
}
