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
type generator struct{ *rand.Rand }

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

func (g generator) pair() pair { return pair{g.filter(2), g.document(3)} }

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
func (g generator) filter(depth int) bson.Raw {
	b := bson.NewBuilder(nil)
	used := map[string]bool{}
	for range 1 + g.IntN(3) {
		key := g.path()
		if depth > 0 && g.IntN(6) == 0 {
			key = pick(g, []string{"$and", "$or"})
		}
		if used[key] {
			continue
		}
		used[key] = true
		if !strings.HasPrefix(key, "$") {
			b.Value(key, g.condition())
			continue
		}
		b.OpenArray(key)
		for range 1 + g.IntN(3) {
			b.Document("", g.filter(depth-1))
		}
		b.Close()
	}
	return b.Finish()
}

func (g generator) path() string {
	path := pick(g, names)
	for g.IntN(3) == 0 {
		path += "." + pick(g, names)
	}
	return path
}

func (g generator) condition() bson.Value {
	if g.IntN(3) == 0 {
		return pick(g, scalars)
	}
	b := bson.NewBuilder(nil)
	used := map[string]bool{}
	for range 1 + g.IntN(2) {
		operator := pick(g, []string{
			"$eq", "$ne", "$in", "$nin", "$exists", "$in", "$nin", "$ne", "$gt", "$gte", "$lt", "$lte",
		})
		if used[operator] {
			continue
		}
		used[operator] = true
		switch operator {
		case "$exists":
			b.Bool(operator, g.IntN(2) == 0)
		case "$in", "$nin":
			b.OpenArray(operator)
			for range g.IntN(5) {
				b.Value("", pick(g, scalars))
			}
			b.Close()
		default:
			b.Value(operator, pick(g, scalars))
		}
	}
	return bson.DocumentValue(b.Finish())
}
