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
)

// few is how many pairs are drawn unless LAB_FILTERS says otherwise.
const few = 20000

// answers are what the three say of a pair.
type answers struct {
	mooring, lungo bool
	mingo          string // "true", "false", or an error
	err            error  // of lungo
}

// difference is a class of pairs of which an oracle says something else than the policy, or than
// the other oracle. The table of docs/conformance.md has its name and says who is right.
type difference struct {
	name string
	of   func(p pair, a answers) bool
}

// differences are in the order in which they are tried. The first ones are about what the policy
// does not decide, which it takes for no match.
var differences = []difference{
	{"ranges", func(p pair, a answers) bool {
		return !a.mooring && has(p.filter, "$gt", "$gte", "$lt", "$lte")
	}},
	{"arrays", func(p pair, a answers) bool {
		return !a.mooring && p.meets(func(v bson.Value) bool { return v.Type == bson.TypeArray })
	}},
	{"not a scalar", func(p pair, a answers) bool { return !a.mooring && p.meets(isOther) }},
	{"integers that JavaScript does not have", isBig},
}

// apart are the classes of pairs of which the two oracles say different things.
var apart = []difference{
	{"integers that JavaScript does not have", isBig},
	{"Decimal128", func(p pair, _ answers) bool {
		return p.meets(func(v bson.Value) bool {
			list, _ := v.Array()
			for _, item := range list.All() {
				if item.Type == bson.TypeDecimal128 {
					return true
				}
			}
			return v.Type == bson.TypeDecimal128
		})
	}},
	{"NaN", func(p pair, _ answers) bool { return p.meets(isNaN) }},
	{"arrays in arrays", func(p pair, _ answers) bool { return p.meets(isNested) }},
	{"ranges from null", func(p pair, _ answers) bool {
		return has(p.filter, "$gte", "$lte") && strings.Contains(p.String(), "te\":null")
	}},
}

// isBig reports whether mingo compares an integer with its neighbour.
func isBig(p pair, a answers) bool {
	return a.mingo != strconv.FormatBool(a.lungo) && (strings.Contains(p.String(),
		"9007199254740993") || strings.Contains(p.String(), "9.007199254740992E+15"))
}

func isNaN(v bson.Value) bool {
	f, isDouble := v.Double()
	return isDouble && f != f
}

// isNested reports whether a value is an array with another one in it.
func isNested(v bson.Value) bool {
	list, _ := v.Array()
	for _, item := range list.All() {
		if item.Type == bson.TypeArray {
			return true
		}
	}
	return false
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

// meets reports whether a path of the filter meets such a value in the document, on the way or at
// its end.
func (p pair) meets(is func(bson.Value) bool) bool {
	return slices.ContainsFunc(paths(p.filter), func(path string) bool {
		d := p.document
		for _, key := range strings.Split(path, ".") {
			v, _ := d.Lookup(key)
			if is(v) {
				return true
			}
			d, _ = v.Document()
		}
		return false
	})
}

func paths(filter bson.Raw) (all []string) {
	for key, v := range filter.All() {
		if !strings.HasPrefix(key, "$") {
			all = append(all, key)
			continue
		}
		list, _ := v.Array()
		for sub := range list.Documents() {
			all = append(all, paths(sub)...)
		}
	}
	return all
}

// isOther reports whether a value is none that a rule's filter may have, or NaN.
func isOther(v bson.Value) bool {
	return isNaN(v) || !v.IsZero() && !slices.ContainsFunc(scalars,
		func(s bson.Value) bool { return s.Type == v.Type })
}

// TestFilters compares the policy with two oracles on random pairs. What the policy lets through,
// both find as well; what it holds back although one of them finds it is in a class of differences,
// as is everything else. LAB_FILTERS is the number of pairs.
func TestFilters(t *testing.T) {
	n := few
	if text := os.Getenv("LAB_FILTERS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("LAB_FILTERS: %v", err)
		}
	}
	g := generator{rand.New(rand.NewPCG(14, 14))}
	var pairs []pair
	for range n {
		pairs = append(pairs, g.pair())
	}
	counts, matched := map[string]int{}, 0
	for i, said := range mingo(t, pairs) {
		a := ask(t, pairs[i], said)
		if a.mooring {
			matched++
		}
		p := pairs[i]
		if !a.agree() && !count(counts, differences, p, a) {
			t.Errorf("not explained: %+v of %v", a, p)
		}
		if a.err == nil && a.mingo != fmt.Sprint(a.lungo) && !count(counts, apart, p, a) {
			t.Errorf("the oracles differ, which is not explained: %+v of %v", a, p)
		}
		if a.mooring && !a.lungo && a.err == nil {
			t.Errorf("the policy lets through what lungo does not find: %v", pairs[i])
		}
	}
	t.Logf("%d pairs, of which the policy finds %d: %v", n, matched, counts)
	if matched < n/50 {
		t.Errorf("only %d of %d pairs match", matched, n)
	}
	explained, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range slices.Concat(differences, apart) {
		if counts[d.name] == 0 && n >= 5*few {
			t.Errorf("no pair differs by this: %s", d.name)
		}
		if !strings.Contains(string(explained), "\n| "+d.name+" |") {
			t.Errorf("docs/conformance.md has no row for this: %s", d.name)
		}
	}
}

// ask returns what the three say.
func ask(t *testing.T, p pair, mingo string) answers {
	t.Helper()
	e, err := enforcer(p.filter)
	if err != nil {
		t.Fatalf("%v: %v", p, err)
	}
	a := answers{mooring: inserts(t, e, p.document), mingo: mingo}
	if shown := shows(e, p.document); shown != a.mooring {
		t.Errorf("inserted: %t, shown as an event: %t: %v", a.mooring, shown, p)
	}
	a.lungo, a.err = lungo(p)
	return a
}

// agree reports whether the policy and the oracles that have an answer say the same.
func (a answers) agree() bool {
	return a.mingo == fmt.Sprint(a.mooring) && (a.err != nil || a.lungo == a.mooring)
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
