package filters_test

import (
	"math"
	"math/rand/v2"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// pair is a filter and a document.
type pair struct{ filter, document bson.Raw }

// generator draws pairs from few names and values, so that many match.
type generator struct {
	*rand.Rand
	// rules says that filters are those that rules of a policy may have.
	rules bool
}

// scalars are the values that may stand in a rule's filter; documents have them, too.
var scalars = values(`[null, true, false, 0, 1, 2, {"$numberInt": "-1"}, {"$numberLong": "1"},
	{"$numberLong": "2"}, {"$numberDouble": "1.0"}, {"$numberDouble": "1.5"},
	{"$numberDouble": "-0.0"}, {"$numberDouble": "Infinity"}, {"$numberLong": "9007199254740993"},
	{"$numberDouble": "9007199254740992"}, "", "1", "a", "A", "é",
	{"$date": {"$numberLong": "0"}}, {"$date": {"$numberLong": "1"}},
	{"$oid": "507f1f77bcf86cd799439011"}, {"$oid": "507f1f77bcf86cd799439012"}]`)

// others are values that only documents have.
var others = append(values(`[{"$numberDecimal": "1"}, {"$timestamp": {"t": 1, "i": 1}},
	{"$binary": {"base64": "AQ==", "subType": "00"}}, {"$regularExpression": {"pattern": "a",
	"options": ""}}, {"$minKey": 1}, {"$maxKey": 1}, {"$code": "1"}]`), bson.DoubleValue(math.NaN()))

func values(text string) (all []bson.Value) {
	doc, err := extjson.Parse(nil, []byte(`{"list": `+text+`}`))
	if err != nil {
		panic("bug: " + err.Error())
	}
	v, _ := bson.Raw(doc).Lookup("list")
	list, _ := v.Array()
	for _, item := range list.All() {
		all = append(all, item)
	}
	return all
}

var names = []string{"a", "b", "c"}

func pick[T any](g generator, of []T) T { return of[g.IntN(len(of))] }

func (g generator) pair() pair { return pair{g.filter(2, g.path), g.document(3)} }

func (g generator) document(depth int) bson.Raw {
	b := bson.NewBuilder(nil)
	for _, name := range names {
		if g.IntN(3) > 0 {
			b.Value(name, g.value(depth-1))
		}
	}
	return b.Finish()
}

func (g generator) value(depth int) bson.Value {
	switch n := g.IntN(20); {
	case depth > 0 && n < 4:
		return bson.DocumentValue(g.document(depth))
	case depth > 0 && n < 7:
		b := bson.NewBuilder(nil).OpenArray("list")
		for range g.IntN(4) {
			b.Value("", g.value(depth-1))
		}
		list, _ := b.Close().Finish().Lookup("list")
		return list
	case n == 7:
		return pick(g, others)
	}
	return pick(g, scalars)
}

// filter returns a filter of up to three conditions, of which some join others.
func (g generator) filter(depth int, path func() string) bson.Raw {
	joins := []string{"$and", "$or", "$nor"}
	if g.rules {
		joins = joins[:2]
	}
	b := bson.NewBuilder(nil)
	used := map[string]bool{}
	for range 1 + g.IntN(3) {
		key := path()
		if depth > 0 && g.IntN(6) == 0 {
			key = pick(g, joins)
		}
		if used[key] {
			continue
		}
		used[key] = true
		if !strings.HasPrefix(key, "$") {
			b.Value(key, g.condition(depth))
			continue
		}
		b.OpenArray(key)
		for range 1 + g.IntN(3) {
			b.Document("", g.filter(depth-1, path))
		}
		b.Close()
	}
	return b.Finish()
}

func (g generator) name() string { return pick(g, names) }

func (g generator) path() string {
	path := g.name()
	for g.IntN(3) == 0 {
		path += "." + g.name()
	}
	if !g.rules && g.IntN(8) == 0 {
		path += pick(g, []string{".0", ".1", ".0.a", ".0.0"})
	}
	return path
}

// operand returns what a field is compared with.
func (g generator) operand() bson.Value {
	switch n := g.IntN(12); {
	case g.rules || n > 3:
		return pick(g, scalars)
	case n == 0:
		return pick(g, comparable)
	}
	return g.value(2)
}

// comparable are operands that are not scalars; see others.
var comparable = values(`[{"$numberDecimal": "1"}, {"$numberDecimal": "1.50"}, {"$minKey": 1},
	{"$maxKey": 1}, {"$timestamp": {"t": 1, "i": 1}}, {"$binary": {"base64": "AQ==",
	"subType": "00"}}]`)

func (g generator) list(most int, item func() bson.Value) bson.Value {
	b := bson.NewBuilder(nil).OpenArray("list")
	for range g.IntN(most) {
		b.Value("", item())
	}
	list, _ := b.Close().Finish().Lookup("list")
	return list
}

// plain returns an operand that is not a regular expression, which some operators do not take.
func (g generator) plain() bson.Value {
	for {
		if v := g.operand(); v.Type != bson.TypeRegex {
			return v
		}
	}
}

func (g generator) condition(depth int) bson.Value {
	if g.IntN(3) == 0 {
		return g.operand()
	}
	operators := []string{
		"$eq", "$ne", "$in", "$nin", "$exists", "$in", "$nin", "$ne", "$gt", "$gte", "$lt", "$lte",
	}
	if !g.rules {
		operators = append(operators, "$type", "$mod", "$size", "$all", "$regex", "$gt", "$lt")
		if depth > 0 {
			operators = append(operators, "$not", "$elemMatch", "$elemMatch", "$elemMatch")
		}
	}
	b := bson.NewBuilder(nil)
	used := map[string]bool{}
	for range 1 + g.IntN(2) {
		operator := pick(g, operators)
		if used[operator] {
			continue
		}
		used[operator] = true
		b.Value(operator, g.argument(operator, depth))
	}
	return bson.DocumentValue(b.Finish())
}

// argument returns what an operator takes.
func (g generator) argument(operator string, depth int) bson.Value {
	switch operator {
	case "$exists":
		return bson.BoolValue(g.IntN(2) == 0)
	case "$in", "$nin":
		return g.list(5, g.operand)
	case "$all":
		return g.list(3, g.plain)
	case "$size":
		return bson.Int32Value(int32(g.IntN(4)))
	case "$mod":
		return pick(g, values(`[[2, 1], [2, 0], [{"$numberLong": "3"}, 1], [-1, 0]]`))
	case "$type":
		return pick(g, values(`["string", "int", "number", "null", "object", "array", "bool", 1, 2,
			["long", "date"], ["double", "array"]]`))
	case "$regex":
		return pick(g, values(`["^a", "^[A-Z]", "^a$", "^(1|é)", "^a{0,1}$"]`))
	case "$not":
		for {
			if v := g.condition(depth - 1); v.Type == bson.TypeDocument {
				if d, _ := v.Document(); strings.HasPrefix(d.FirstKey(), "$") {
					return v
				}
			}
		}
	case "$elemMatch":
		if g.IntN(2) == 0 {
			return bson.DocumentValue(g.filter(depth-1, g.name))
		}
		return g.argument("$not", depth)
	}
	return g.plain()
}
