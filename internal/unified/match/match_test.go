package match_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/internal/unified/match"
)

// value reads the Extended JSON of a value; the empty text is an absent one.
func value(t *testing.T, json string) bson.Value {
	t.Helper()
	if json == "" {
		return bson.Value{}
	}
	v, _, err := extjson.ParseValue(nil, []byte(json))
	if err != nil {
		t.Fatalf("ParseValue(%s) = %v", json, err)
	}
	return v
}

func matcher(t *testing.T) match.Matcher {
	saved := map[string]bson.Value{
		"one": value(t, `1`), "doc": value(t, `{"a": {"$$type": "int"}}`),
	}
	return match.Matcher{
		Entity: func(name string) (bson.Value, bool) { v, ok := saved[name]; return v, ok },
		SessionLsid: func(name string) (bson.Raw, bool) {
			return bson.NewBuilder(nil).Int32("id", 7).Finish(), name == "session"
		},
	}
}

func TestMatch(t *testing.T) {
	const fine = ""
	for name, test := range map[string]struct {
		how              string // root, items or nested
		expected, actual string
		want             string // what the error says; empty: none
	}{
		"more keys in a root document":      {"root", `{"a": 1}`, `{"b": 2, "a": 1}`, fine},
		"more keys in a nested document":    {"root", `{"a": {"b": 1}}`, `{"a": {"b": 1, "c": 2}}`, "a.c: is not expected"},
		"more keys in a value of its own":   {"nested", `{"a": 1}`, `{"a": 1, "b": 2}`, "b: is not expected"},
		"a key is missing":                  {"root", `{"a": 1}`, `{}`, "a: is missing, want 1"},
		"another order of keys":             {"nested", `{"a": 1, "b": 2}`, `{"b": 2, "a": 1}`, fine},
		"another value":                     {"root", `{"a": "x"}`, `{"a": "y"}`, `a: is "y", want "x"`},
		"a document that is none":           {"root", `{"a": {}}`, `{"a": 1}`, "a: is 1, want the document {}"},
		"an empty root document":            {"root", `{}`, `{"a": 1}`, fine},
		"an empty nested document":          {"root", `{"a": {}}`, `{"a": {"b": 1}}`, "a.b: is not expected"},
		"int and long and double":           {"root", `[1, {"$numberLong": "2"}, 3.0]`, `[{"$numberDouble": "1.0"}, 2, {"$numberLong": "3"}]`, fine},
		"numbers that differ":               {"root", `1`, `1.5`, "is 1.5, want 1"},
		"longs that are equal as doubles":   {"root", `{"$numberLong": "9007199254740993"}`, `{"$numberLong": "9007199254740992"}`, "want 9007199254740993"},
		"NaN is not a number's equal":       {"root", `1`, `{"$numberDouble": "NaN"}`, "want 1"},
		"a decimal is not flexible":         {"root", `1`, `{"$numberDecimal": "1"}`, "want 1"},
		"a number is not a text":            {"root", `1`, `"1"`, `is "1", want 1`},
		"null is null":                      {"root", `{"a": null}`, `{"a": null}`, fine},
		"null is not absent":                {"root", `{"a": null}`, `{}`, "a: is missing"},
		"array too long":                    {"root", `{"a": [1]}`, `{"a": [1, 2]}`, "a: has 2 elements, want 1"},
		"array too short":                   {"root", `{"a": [1, 2]}`, `{"a": [1]}`, "a: has 1 elements, want 2"},
		"array that is none":                {"root", `{"a": [1]}`, `{"a": 1}`, "a: is 1, want the array [1]"},
		"array in another order":            {"root", `[1, 2]`, `[2, 1]`, "0: is 2, want 1"},
		"more keys in an array's item":      {"root", `[{"a": 1}]`, `[{"a": 1, "b": 2}]`, "0.b: is not expected"},
		"more keys in a result's item":      {"items", `[{"a": 1}]`, `[{"a": 1, "b": 2}]`, fine},
		"more keys below a result's item":   {"items", `[{"a": {}}]`, `[{"a": {"b": 2}}]`, "0.a.b: is not expected"},
		"items that are operators":          {"items", `{"$$type": "array"}`, `[1]`, fine},
		"exists":                            {"root", `{"a": {"$$exists": true}}`, `{"a": null}`, fine},
		"exists, and does not":              {"root", `{"a": {"$$exists": true}}`, `{}`, "a: is missing"},
		"must not exist":                    {"root", `{"a": {"$$exists": false}}`, `{}`, fine},
		"must not exist, and does":          {"root", `{"a": {"$$exists": false}}`, `{"a": 1}`, "a: is 1, must not be there"},
		"type":                              {"root", `{"a": {"$$type": "string"}}`, `{"a": "x"}`, fine},
		"one of several types":              {"root", `{"a": {"$$type": ["int", "long"]}}`, `{"a": {"$numberLong": "1"}}`, fine},
		"none of several types":             {"root", `{"a": {"$$type": ["int", "long"]}}`, `{"a": 1.5}`, "want type"},
		"type of nothing":                   {"root", `{"a": {"$$type": "int"}}`, `{}`, "a: is missing"},
		"number is four types":              {"root", `{"a": {"$$type": "number"}}`, `{"a": {"$numberDecimal": "1"}}`, fine},
		"unset or matches: unset":           {"root", `{"a": {"$$unsetOrMatches": 1}}`, `{}`, fine},
		"unset or matches: matches":         {"root", `{"a": {"$$unsetOrMatches": 1}}`, `{"a": 1}`, fine},
		"unset or matches: does not":        {"root", `{"a": {"$$unsetOrMatches": 1}}`, `{"a": 2}`, "a: is 2, want 1"},
		"unset or matches at the root":      {"root", `{"$$unsetOrMatches": {"a": 1}}`, `{"a": 1, "b": 1}`, fine},
		"unset or matches a nested one":     {"root", `{"x": {"$$unsetOrMatches": {"a": 1}}}`, `{"x": {"a": 1, "b": 1}}`, "x.b: is not expected"},
		"unset or matches an operator":      {"root", `{"a": {"$$unsetOrMatches": {"$$type": "int"}}}`, `{"a": 2}`, fine},
		"nothing at all, unset or matches":  {"root", `{"$$unsetOrMatches": 1}`, ``, fine},
		"nothing at all":                    {"root", `1`, ``, "is missing, want 1"},
		"entity":                            {"root", `{"a": {"$$matchesEntity": "one"}}`, `{"a": 1}`, fine},
		"entity that differs":               {"root", `{"a": {"$$matchesEntity": "one"}}`, `{"a": 2}`, "a: is 2, want 1"},
		"entity with an operator in it":     {"root", `{"$$matchesEntity": "doc"}`, `{"a": 5}`, fine},
		"bytes":                             {"root", `{"$$matchesHexBytes": "00ff"}`, `{"$binary": {"base64": "AP8=", "subType": "00"}}`, fine},
		"bytes that differ":                 {"root", `{"$$matchesHexBytes": "00fe"}`, `{"$binary": {"base64": "AP8=", "subType": "00"}}`, "want the bytes 00fe"},
		"session":                           {"root", `{"lsid": {"$$sessionLsid": "session"}}`, `{"lsid": {"id": 7}}`, fine},
		"another session":                   {"root", `{"lsid": {"$$sessionLsid": "session"}}`, `{"lsid": {"id": 8}}`, "lsid.id: is 8, want 7"},
		"at most":                           {"root", `{"a": {"$$lte": 5}}`, `{"a": 5}`, fine},
		"more than at most":                 {"root", `{"a": {"$$lte": 5}}`, `{"a": 5.1}`, "a: is 5.1, want at most 5"},
		"at most of nothing":                {"root", `{"a": {"$$lte": 5}}`, `{}`, "want at most 5"},
		"as document":                       {"root", `{"$$matchAsDocument": {"a": {"$$type": "int"}}}`, `"{\"a\": 1}"`, fine},
		"as document, more keys":            {"root", `{"$$matchAsDocument": {"a": 1}}`, `"{\"a\": 1, \"b\": 2}"`, "b: is not expected"},
		"as document and root":              {"root", `{"$$matchAsDocument": {"$$matchAsRoot": {"a": 1}}}`, `"{\"a\": 1, \"b\": 2}"`, fine},
		"as document, of what is none":      {"root", `{"$$matchAsDocument": {"a": 1}}`, `"{"`, "is not Extended JSON"},
		"as root":                           {"root", `{"x": {"$$matchAsRoot": {"a": 1}}}`, `{"x": {"a": 1, "b": 2}}`, fine},
		"as root, a key missing":            {"root", `{"x": {"$$matchAsRoot": {"a": 1}}}`, `{"x": {"b": 2}}`, "x.a: is missing"},
		"two operators are a document":      {"root", `{"x": {"$$type": "int", "$$exists": true}}`, `{"x": 1}`, "x: is 1, want the document"},
		"malformed: exists":                 {"root", `{"a": {"$$exists": 1}}`, `{"a": 1}`, "malformed expectation: a: $$exists takes a boolean"},
		"malformed: type":                   {"root", `{"a": {"$$type": "integer"}}`, `{"a": 1}`, "malformed expectation: a: there is no type"},
		"malformed: entity":                 {"root", `{"$$matchesEntity": "two"}`, `1`, `malformed expectation: there is no entity "two"`},
		"malformed: bytes":                  {"root", `{"$$matchesHexBytes": "0"}`, `1`, "malformed expectation"},
		"malformed: session":                {"root", `{"$$sessionLsid": "other"}`, `1`, "malformed expectation"},
		"malformed: at most":                {"root", `{"$$lte": "x"}`, `1`, "malformed expectation"},
		"malformed: as document":            {"root", `{"$$matchAsDocument": 1}`, `"{}"`, "malformed expectation"},
		"malformed: as root":                {"root", `{"$$matchAsRoot": 1}`, `{}`, "malformed expectation"},
		"malformed: there is no such thing": {"root", `{"$$nope": 1}`, `{}`, "malformed expectation: there is no operator $$nope"},
	} {
		t.Run(name, func(t *testing.T) {
			m := matcher(t)
			how := map[string]func(expected, actual bson.Value) error{
				"root": m.Root, "items": m.RootItems, "nested": m.Nested,
			}[test.how]
			err := how(value(t, test.expected), value(t, test.actual))
			switch {
			case err == nil && test.want != fine:
				t.Errorf("match(%s, %s) = nil, want an error with %q", test.expected, test.actual,
					test.want)
			case err != nil && (test.want == fine || !strings.Contains(err.Error(), test.want)):
				t.Errorf("match(%s, %s) = %v, want %q", test.expected, test.actual, err, test.want)
			case errors.Is(err, match.ErrMalformed) != strings.HasPrefix(test.want, "malformed"):
				t.Errorf("match(%s, %s) = %v: is ErrMalformed: %v", test.expected, test.actual, err,
					errors.Is(err, match.ErrMalformed))
			}
		})
	}
}

func TestWithoutEntities(t *testing.T) {
	for _, expected := range []string{
		`{"$$matchesEntity": "one"}`, `{"$$sessionLsid": "session"}`,
	} {
		if err := (match.Matcher{}).
			Root(value(t, expected), value(t, `1`)); !errors.Is(err, match.ErrMalformed) {
			t.Errorf("Root(%s) = %v, want ErrMalformed", expected, err)
		}
	}
}
