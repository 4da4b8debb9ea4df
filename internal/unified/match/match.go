// Package match compares BSON with what a test of the unified test format expects of it: flexible
// numbers, documents that may have more keys than expected where the format says so, and the
// special operators, "$$type" and the like. It is pure: what operators look up besides the two
// values comes with the Matcher.
package match

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// Matcher holds the functions of the special operators. A nil function matches nothing.
type Matcher struct {
	// Entity is the value that a test saved under that name ($$matchesEntity, $$matchesHexBytes).
	Entity func(name string) (bson.Value, bool)
	// SessionLsid is the lsid of a session entity ($$sessionLsid).
	SessionLsid func(name string) (bson.Raw, bool)
}

// ErrMalformed is inside the error about an expectation that says nothing: the test is wrong,
// whatever there is.
var ErrMalformed = errors.New("malformed expectation")

// Root compares a value that stands by itself: if it is a document, it may have more keys than
// are expected. Absent values are the zero Value.
func (m Matcher) Root(expected,
	actual bson.Value,
) error {
	return m.match("", expected, actual, true)
}

// RootItems compares a list of values that each stand by themselves, such as the documents that
// find returns.
func (m Matcher) RootItems(expected, actual bson.Value) error {
	want, ok := expected.Array()
	if !ok {
		return m.Root(expected, actual)
	}
	return m.array("", want, actual, true)
}

// Nested compares a value of which nothing may be left over.
func (m Matcher) Nested(expected, actual bson.Value) error {
	return m.match("", expected, actual, false)
}

// mismatch tells where and why.
func mismatch(path, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if path == "" {
		return errors.New(text)
	}
	return errors.New(path + ": " + text)
}

func malformed(path, format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMalformed, mismatch(path, format, args...))
}

func (m Matcher) match(path string, expected, actual bson.Value, root bool) error {
	if doc, ok := expected.Document(); ok {
		if name, ok := operatorOf(doc); ok {
			return m.operator(path, name, doc, actual, root)
		}
		return m.document(path, doc, actual, root)
	}
	if actual.IsZero() {
		return mismatch(path, "is missing, want %s", Text(expected))
	}
	if want, ok := expected.Array(); ok {
		return m.array(path, want, actual, false)
	}
	return scalar(path, expected, actual)
}

// operatorOf returns the name of the special operator that doc is: its only key begins with "$$".
func operatorOf(doc bson.Raw) (string, bool) {
	name := doc.FirstKey()
	return name, strings.HasPrefix(name, "$$") && doc.Len() == 1
}

func (m Matcher) document(path string, expected bson.Raw, actual bson.Value, root bool) error {
	got, ok := actual.Document()
	if !ok {
		return mismatch(path, "is %s, want the document %s", Text(actual),
			Text(bson.DocumentValue(expected)))
	}
	for key, want := range expected.All() {
		value, _ := got.Lookup(key)
		if err := m.match(join(path, key), want, value, false); err != nil {
			return err
		}
	}
	if root {
		return nil
	}
	for key := range got.All() {
		if !expected.Has(key) {
			return mismatch(join(path, key), "is not expected")
		}
	}
	return nil
}

func (m Matcher) array(path string, expected bson.Array, actual bson.Value, rootItems bool) error {
	array, ok := actual.Array()
	if !ok {
		return mismatch(path, "is %s, want the array %s", Text(actual),
			Text(bson.ArrayValue(expected)))
	}
	want, got := items(expected), items(array)
	if len(want) != len(got) {
		return mismatch(path, "has %d elements, want %d: %s, want %s", len(got), len(want),
			Text(actual), Text(bson.ArrayValue(expected)))
	}
	for i := range want {
		if err := m.match(join(path, strconv.Itoa(i)), want[i], got[i], rootItems); err != nil {
			return err
		}
	}
	return nil
}

func items(a bson.Array) []bson.Value {
	var values []bson.Value
	for _, v := range a.All() {
		values = append(values, v)
	}
	return values
}

// scalar compares numbers by what they count, and all else exactly. A Decimal128 is no such number.
func scalar(path string, expected, actual bson.Value) error {
	if isFlexible(expected) && isFlexible(actual) && compare(expected, actual) == 0 ||
		expected.Equal(actual) {
		return nil
	}
	return mismatch(path, "is %s, want %s", Text(actual), Text(expected))
}

func isFlexible(v bson.Value) bool {
	return v.Type == bson.TypeInt32 || v.Type == bson.TypeInt64 || v.Type == bson.TypeDouble
}

// compare returns a negative number, 0 or a positive one; of two integers exactly. Values that
// are not comparable (NaN) are not equal.
func compare(a, b bson.Value) int {
	if a.Type != bson.TypeDouble && b.Type != bson.TypeDouble {
		x, _ := a.AsInt64()
		y, _ := b.AsInt64()
		return order(x, y)
	}
	x, _ := a.AsDouble()
	y, _ := b.AsDouble()
	return order(x, y)
}

func order[T int64 | float64](x, y T) int {
	switch {
	case x < y:
		return -1
	case x == y: //nolint:staticcheck // NaN is neither
		return 0
	}
	return 1
}

func (m Matcher) operator(path, name string, doc bson.Raw, actual bson.Value, root bool) error {
	op, ok := map[string]func(path string, argument, actual bson.Value, root bool) error{
		"$$exists": m.exists, "$$type": m.types, "$$lte": m.lte,
		"$$unsetOrMatches": m.unsetOrMatches,
		"$$matchesEntity":  m.matchesEntity, "$$matchesHexBytes": m.matchesHexBytes,
		"$$sessionLsid":     m.sessionLsid,
		"$$matchAsDocument": m.matchAsDocument, "$$matchAsRoot": m.matchAsRoot,
	}[name]
	if !ok {
		return malformed(path, "there is no operator %s", name)
	}
	argument, _ := doc.Lookup(name)
	return op(path, argument, actual, root)
}

func (m Matcher) exists(path string, argument, actual bson.Value, _ bool) error {
	want, ok := argument.Bool()
	switch {
	case !ok:
		return malformed(path, "$$exists takes a boolean, not %s", Text(argument))
	case want && actual.IsZero():
		return mismatch(path, "is missing")
	case !want && !actual.IsZero():
		return mismatch(path, "is %s, must not be there", Text(actual))
	}
	return nil
}

// typeNames are the types as $$type writes them; "number" stands for four.
var typeNames = map[string][]bson.Type{
	"double": {bson.TypeDouble}, "string": {bson.TypeString}, "object": {bson.TypeDocument},
	"array":   {bson.TypeArray},
	"binData": {bson.TypeBinary}, "undefined": {bson.TypeUndefined},
	"objectId": {bson.TypeObjectID}, "bool": {bson.TypeBool},
	"date": {bson.TypeDateTime}, "null": {bson.TypeNull}, "regex": {bson.TypeRegex},
	"dbPointer":  {bson.TypeDBPointer},
	"javascript": {bson.TypeJavaScript}, "symbol": {bson.TypeSymbol},
	"javascriptWithScope": {bson.TypeCodeWithScope},
	"int":                 {bson.TypeInt32},
	"timestamp":           {bson.TypeTimestamp}, "long": {bson.TypeInt64},
	"decimal": {bson.TypeDecimal128},
	"minKey":  {bson.TypeMinKey}, "maxKey": {bson.TypeMaxKey},
	"number": {bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128},
}

func (m Matcher) types(path string, argument, actual bson.Value, _ bool) error {
	names := []bson.Value{argument}
	if array, ok := argument.Array(); ok {
		names = items(array)
	}
	var want []bson.Type
	for _, v := range names {
		name, _ := v.Str()
		types, ok := typeNames[name]
		if !ok {
			return malformed(path, "there is no type %s", Text(v))
		}
		want = append(want, types...)
	}
	switch {
	case actual.IsZero():
		return mismatch(path, "is missing, want a value of type %s", Text(argument))
	case !slices.Contains(want, actual.Type):
		return mismatch(path, "is %s, a %v, want type %s", Text(actual), actual.Type,
			Text(argument))
	}
	return nil
}

func (m Matcher) unsetOrMatches(path string, argument, actual bson.Value, root bool) error {
	if actual.IsZero() {
		return nil
	}
	return m.match(path, argument, actual, root)
}

func (m Matcher) matchesEntity(path string, argument, actual bson.Value, root bool) error {
	want, err := m.entity(path, argument)
	if err != nil {
		return err
	}
	return m.match(path, want, actual, root)
}

func (m Matcher) entity(path string, argument bson.Value) (bson.Value, error) {
	name, ok := argument.Str()
	if !ok || m.Entity == nil {
		return bson.Value{}, malformed(path, "%s is not an entity's name", Text(argument))
	}
	value, ok := m.Entity(name)
	if !ok {
		return bson.Value{}, malformed(path, "there is no entity %q that has a value", name)
	}
	return value, nil
}

func (m Matcher) matchesHexBytes(path string, argument, actual bson.Value, _ bool) error {
	text, _ := argument.Str()
	want, err := hex.DecodeString(text)
	if err != nil || argument.Type != bson.TypeString {
		return malformed(path, "%s is not hexadecimal text", Text(argument))
	}
	if _, got, ok := actual.Binary(); !ok || !bytes.Equal(got, want) {
		return mismatch(path, "is %s, want the bytes %x", Text(actual), want)
	}
	return nil
}

func (m Matcher) sessionLsid(path string, argument, actual bson.Value, _ bool) error {
	name, ok := argument.Str()
	if !ok || m.SessionLsid == nil {
		return malformed(path, "%s is not a session's name", Text(argument))
	}
	want, ok := m.SessionLsid(name)
	if !ok {
		return malformed(path, "there is no session %q", name)
	}
	return m.match(path, bson.DocumentValue(want), actual, false)
}

func (m Matcher) lte(path string, argument, actual bson.Value, _ bool) error {
	switch {
	case !isFlexible(argument):
		return malformed(path, "$$lte takes a number, not %s", Text(argument))
	case !isFlexible(actual) || compare(actual, argument) > 0:
		return mismatch(path, "is %s, want at most %s", Text(actual), Text(argument))
	}
	return nil
}

func (m Matcher) matchAsDocument(path string, argument, actual bson.Value, _ bool) error {
	if _, ok := argument.Document(); !ok {
		return malformed(path, "$$matchAsDocument takes a document, not %s", Text(argument))
	}
	text, ok := actual.Str()
	if !ok {
		return mismatch(path, "is %s, want a text that is a document", Text(actual))
	}
	doc, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		return mismatch(path, "is not Extended JSON: %v", err)
	}
	return m.match(path, argument, bson.DocumentValue(doc), false)
}

func (m Matcher) matchAsRoot(path string, argument, actual bson.Value, _ bool) error {
	if _, ok := argument.Document(); !ok {
		return malformed(path, "$$matchAsRoot takes a document, not %s", Text(argument))
	}
	return m.match(path, argument, actual, true)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Text returns a value for the report of a failed test.
func Text(v bson.Value) string {
	if v.IsZero() {
		return "nothing"
	}
	json, err := extjson.AppendValue(nil, v, extjson.Relaxed)
	if err != nil {
		return "malformed: " + err.Error()
	}
	return string(json)
}
