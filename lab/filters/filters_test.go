package filters_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/match"
)

// few is how many pairs are drawn unless LAB_FILTERS says otherwise.
const few = 20000

// answers are what the three say of a pair. An oracle that cannot tell has an error.
type answers struct {
	mooring, lungo bool
	mingo          string // "true", "false", or an error
	err            error  // of lungo
}

// difference is a class of pairs of which an oracle says something else than mooring. The table of
// docs/conformance.md has its name and says who is right.
type difference struct {
	name string
	of   func(p pair, a answers) bool
}

// differences has the classes of each oracle, in the order in which they are tried, and those of
// pairs of which both say something else than mooring.
var differences = [3][]difference{{
	{"integers that JavaScript does not have", says("900719925474099")},
	{"types of numbers", uses("$type")},
	{"$mod of other values", uses("$mod")},
	{"Decimal128", says("$numberDecimal")},
	{"NaN", says("NaN")},
	{"MinKey and MaxKey", says(`Key":1`)},
	{"ranges from null", func(p pair, a answers) bool {
		return uses("$gte", "$lte")(p, a) && says(`te":null`)(p, a)
	}},
	{"negative zero", says(`"-0.0"`)},
	{"binary", says("$binary")},
	{"$all of what is not an array", uses("$all")},
	{"$size of nothing", uses("$size")},
	{"$regex beside other operators", uses("$regex")},
	{"arrays in arrays", says("[[", ",[")},
	{"an empty array on a path", says(`":[]`)},
	{"ranges of documents and arrays", uses("$gt", "$gte", "$lt", "$lte")},
	{"positions of nothing", says(`.0`)},
}, {
	{"the type of a missing field", uses("$type")},
	{"$mod of Decimal128", uses("$mod")},
	{"NaN in ranges", says("NaN")},
	{"Infinity and Decimal128", says("Infinity", "$numberDecimal")},
	{"items of arrays in arrays", says("[[", ",[")},
}, {
	{"documents compare types before keys", uses("$gt", "$gte", "$lt", "$lte")},
	{"$size behind arrays in arrays", uses("$size")},
	{"$elemMatch of items that are not documents", uses("$elemMatch")},
	{"null behind a position", says("null")},
}}

// uses returns what reports whether one of the operators is anywhere in a filter.
func uses(operators ...string) func(pair, answers) bool {
	return func(p pair, _ answers) bool { return has(p.filter, operators...) }
}

// says returns what reports whether a pair has one of the texts.
func says(texts ...string) func(pair, answers) bool {
	return func(p pair, _ answers) bool {
		return slices.ContainsFunc(texts, func(s string) bool {
			return strings.Contains(p.String(), s)
		})
	}
}

// has reports whether one of the keys is anywhere in a filter.
func has(d bson.Raw, keys ...string) bool {
	for key, v := range d.All() {
		sub, _ := v.Document()
		list, _ := v.Array()
		if slices.Contains(keys, key) || has(sub, keys...) || has(bson.Raw(list), keys...) {
			return true
		}
	}
	return false
}

// pairs returns how many pairs are compared: LAB_FILTERS, or few.
func pairs(t *testing.T) int {
	text := os.Getenv("LAB_FILTERS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("LAB_FILTERS: %v", err)
	}
	return n
}

// TestFilters compares what service/match says of random pairs with what two oracles say. Each
// difference is in a class. LAB_FILTERS is the number of pairs.
func TestFilters(t *testing.T) {
	n := pairs(t)
	g := generator{Rand: rand.New(rand.NewPCG(14, 14))}
	var all []pair
	var compiled []*match.Filter
	refused := 0
	for len(all) < n {
		p := g.pair()
		f, err := match.Compile(p.filter)
		if err != nil {
			refused++ // a regular expression that has no bound
			if !strings.Contains(err.Error(), "regular expression") {
				t.Errorf("%v: %v", p, err)
			}
			continue
		}
		all, compiled = append(all, p), append(compiled, f)
	}
	counts, matched, judged := map[string]int{}, 0, [2]int{}
	for i, said := range mingo(t, all) {
		a := answers{mooring: compiled[i].Match(all[i].document) == match.Yes, mingo: said}
		a.lungo, a.err = lungo(all[i])
		if a.mooring {
			matched++
		}
		against := 0 // the classes in which the difference may be: of one oracle, or of both
		if a.mingo == "true" || a.mingo == "false" {
			judged[0]++
			if a.mingo != fmt.Sprint(a.mooring) {
				against++
			}
		}
		if a.err == nil {
			judged[1]++
			if a.lungo != a.mooring {
				against += 2
			}
		}
		if against > 0 && !count(counts, differences[against-1], all[i], a) {
			t.Errorf("not explained: %s says otherwise: %+v of %v", oracles[against-1], a, all[i])
		}
	}
	t.Logf("%d pairs (%d more were refused), of which %d match; mingo judges %d, mongokit %d: %v",
		n, refused, matched, judged[0], judged[1], counts)
	if matched < n/20 || judged[0] < n*9/10 || judged[1] < n/2 {
		t.Errorf("too few pairs match, or are judged")
	}
	explained, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	for k, classes := range differences {
		for _, d := range classes {
			if counts[d.name] == 0 && n >= 5*few {
				t.Errorf("no pair differs by this: %s", d.name)
			}
			if !strings.Contains(string(explained), "\n| "+d.name+" | "+oracles[k]) {
				t.Errorf("docs/conformance.md has no row for this of %s: %s", oracles[k], d.name)
			}
		}
	}
}

var oracles = [3]string{"mingo", "mongokit", "mingo, mongokit"}

// TestPolicy checks on random pairs that an event shows if, and only if, its document matches the
// filter of the rule, and that no document is inserted that does not match it.
func TestPolicy(t *testing.T) {
	g := generator{Rand: rand.New(rand.NewPCG(15, 15)), rules: true}
	matched, inserted := 0, 0
	for range few {
		p := g.pair()
		e, err := enforcer(p.filter)
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		f, err := match.Compile(p.filter)
		if err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		matches := f.Match(p.document) == match.Yes
		if shown := shows(e, p.document); shown != matches {
			t.Errorf("matches: %t, shown as an event: %t: %v", matches, shown, p)
		}
		inserts := inserts(t, e, p.document)
		if inserts && !matches {
			t.Errorf("inserted, which does not match: %v", p)
		}
		if matches {
			matched++
		}
		if inserts {
			inserted++
		}
	}
	t.Logf("%d pairs, of which %d match and %d may be inserted", few, matched, inserted)
	if inserted < few/50 {
		t.Errorf("only %d of %d pairs may be inserted", inserted, few)
	}
}

// count counts the first class that a pair is in, and reports whether there is one.
func count(counts map[string]int, classes []difference, p pair, a answers) bool {
	for _, d := range classes {
		if d.of(p, a) {
			counts[d.name]++
			return true
		}
	}
	return false
}

// TestRefused checks that a rule's filter cannot have what the policy does not know.
func TestRefused(t *testing.T) {
	for _, filter := range []string{
		`{"a": {"$not": {"$gt": 1}}}`, `{"a": {"$elemMatch": {"b": 1}}}`, `{"a": {"$size": 1}}`,
		`{"a": {"$type": "int"}}`, `{"a": {"$all": [1]}}`, `{"a": {"$regex": "a"}}`,
		`{"$nor": [{"a": 1}]}`, `{"a": [1]}`, `{"a": {"b": 1}}`, `{"a.0": 1}`, `{"a": {}}`,
		`{"a": {"$mod": [2, 0]}}`, `{"$expr": true}`, `{"$where": "1"}`, `{"a": {"$in": [[1]]}}`,
		`{"a": {"$numberDecimal": "1"}}`, `{"a": {"$eq": {"$minKey": 1}}}`,
	} {
		filters := values(`[` + filter + `]`)
		d, _ := filters[0].Document()
		if _, err := enforcer(d); err == nil {
			t.Errorf("a rule can have the filter %s", filter)
		}
	}
}
