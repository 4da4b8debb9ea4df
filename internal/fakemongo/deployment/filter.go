package deployment

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// matches tells whether a document is one that the filter is about.
func (s scope) matches(filter, doc bson.Raw) (bool, error) {
	all := true
	for key, condition := range filter.All() {
		ok, err := s.matchesElement(key, condition, doc)
		if err != nil {
			return false, err
		}
		all = all && ok
	}
	return all, nil
}

func (s scope) matchesElement(key string, condition bson.Value, doc bson.Raw) (bool, error) {
	switch {
	case key == "$and" || key == "$or":
		return s.matchesSome(key, condition, doc)
	case key == "$where":
		_, err := sleepOf(condition)
		return true, err
	case key == "$comment":
		return true, nil
	case key == "$expr":
		v, err := s.evaluate(condition, doc)
		return v.Truthy(), err
	case strings.HasPrefix(key, "$"):
		return false, failure.BadValue.Errorf("unknown top level operator: %s", key)
	}
	value, _ := doc.Lookup(strings.Split(key, ".")...)
	operators, ok := condition.Document()
	if !ok || !strings.HasPrefix(operators.FirstKey(), "$") {
		return s.equal(value, condition), nil
	}
	all := true
	for name, argument := range operators.All() {
		op, ok := comparisons[name]
		if !ok {
			return false, failure.BadValue.Errorf("unknown operator: %s", name)
		}
		all = all && op(s, value, argument)
	}
	return all, nil
}

func (s scope) matchesSome(operator string, condition bson.Value, doc bson.Raw) (bool, error) {
	filters, ok := condition.Array()
	if !ok || filters.IsEmpty() {
		return false, failure.BadValue.Errorf("%s must be a nonempty array", operator)
	}
	some, all := false, true
	for _, v := range filters.All() {
		filter, ok := v.Document()
		if !ok {
			return false, failure.BadValue.Errorf("%s argument's entries must be objects", operator)
		}
		ok, err := s.matches(filter, doc)
		if err != nil {
			return false, err
		}
		some, all = some || ok, all && ok
	}
	if operator == "$or" {
		return some, nil
	}
	return all, nil
}

var comparisons = map[string]func(s scope, value, argument bson.Value) bool{
	"$eq":  scope.equal,
	"$ne":  func(s scope, v, a bson.Value) bool { return !s.equal(v, a) },
	"$gt":  func(s scope, v, a bson.Value) bool { return comparable(v, a) && s.compare(v, a) > 0 },
	"$gte": func(s scope, v, a bson.Value) bool { return comparable(v, a) && s.compare(v, a) >= 0 },
	"$lt":  func(s scope, v, a bson.Value) bool { return comparable(v, a) && s.compare(v, a) < 0 },
	"$lte": func(s scope, v, a bson.Value) bool { return comparable(v, a) && s.compare(v, a) <= 0 },
	"$in":  scope.isIn,
	"$nin": func(s scope, v, a bson.Value) bool { return !s.isIn(v, a) },
	"$exists": func(_ scope, v, a bson.Value) bool {
		return a.Truthy() != v.IsZero()
	},
	"$type": func(_ scope, v, a bson.Value) bool { return !v.IsZero() && isOfType(v, a) },
}

// isOfType reports whether a value is of the type that a name or a number stands for, or of one of
// an array of these.
func isOfType(v, of bson.Value) bool {
	if name, ok := of.Str(); ok {
		return v.Type.String() == name
	}
	if n, ok := of.AsInt64(); ok {
		return int64(int8(v.Type)) == n // that of MinKey is -1
	}
	list, _ := of.Array()
	for _, item := range list.All() {
		if isOfType(v, item) {
			return true
		}
	}
	return false
}

func (s scope) isIn(v, list bson.Value) bool {
	array, _ := list.Array()
	for _, item := range array.All() {
		if s.equal(v, item) {
			return true
		}
	}
	return false
}

func isNumber(v bson.Value) bool {
	return v.Type == bson.TypeInt32 || v.Type == bson.TypeInt64 || v.Type == bson.TypeDouble
}

func comparable(a, b bson.Value) bool { return isNumber(a) && isNumber(b) || a.Type == b.Type }

// equal compares as a filter does: numbers by value, whatever their type, and a missing value as
// null.
func (s scope) equal(a, b bson.Value) bool {
	switch {
	case isNumber(a) && isNumber(b):
		return s.compare(a, b) == 0
	case a.IsZero() || b.IsZero():
		return (a.IsZero() || a.IsNull()) && (b.IsZero() || b.IsNull())
	}
	return a.Equal(b) || s.fold && a.Type == b.Type && s.compare(a, b) == 0
}

// compare orders values: those of different types by their type.
func (s scope) compare(a, b bson.Value) int {
	if isNumber(a) && isNumber(b) {
		x, _ := a.AsDouble()
		y, _ := b.AsDouble()
		return cmp.Compare(x, y)
	}
	if a.Type != b.Type {
		return cmp.Compare(rank(a.Type), rank(b.Type))
	}
	if x, ok := a.Str(); ok {
		y, _ := b.Str()
		if s.fold {
			x, y = strings.ToLower(x), strings.ToLower(y)
		}
		return cmp.Compare(x, y)
	}
	return bytes.Compare(a.Data, b.Data)
}

// ranks lists the types in the order in which a server sorts their values. Those that it does not
// list come last.
var ranks = []bson.Type{
	0, bson.TypeMinKey, bson.TypeUndefined, bson.TypeNull, bson.TypeDouble, bson.TypeInt32,
	bson.TypeInt64, bson.TypeDecimal128, bson.TypeSymbol, bson.TypeString, bson.TypeDocument,
	bson.TypeArray, bson.TypeBinary, bson.TypeObjectID, bson.TypeBool, bson.TypeDateTime,
	bson.TypeTimestamp, bson.TypeRegex,
}

func rank(t bson.Type) int {
	if i := slices.Index(ranks, t); i >= 0 {
		return i
	}
	return len(ranks)
}

// sleep is the only JavaScript that is understood.
var sleep = regexp.MustCompile(`^sleep\((\d+)\) \|\| true;?$`)

// sleepOf returns how long a $where sleeps for each document.
func sleepOf(where bson.Value) (time.Duration, error) {
	if where.IsZero() {
		return 0, nil
	}
	code, ok := where.Str()
	if !ok {
		code, _ = where.JavaScript()
	}
	parts := sleep.FindStringSubmatch(code)
	if parts == nil {
		return 0, failure.BadValue.Errorf("no JavaScript engine for $where: %s", code)
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0, failure.BadValue.Errorf("sleep: %v", err)
	}
	return time.Duration(n) * time.Millisecond, nil
}
