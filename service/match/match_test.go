package match_test

import (
	"fmt"
	"runtime"
	"sort"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/match"
)

func parse(t testing.TB, text string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

func compile(t testing.TB, text string) *match.Filter {
	t.Helper()
	f, err := match.Compile(parse(t, text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return f
}

// TestMatch has for each filter documents that match, and others that do not.
func TestMatch(t *testing.T) {
	for _, row := range []struct{ filter, yes, no string }{
		{`{}`, `{} | {"a": 1}`, ``},
		{`{"$comment": 1, "a": 1}`, `{"a": 1}`, `{}`},
		{`{"a": 1, "b": 2}`, `{"a": 1, "b": 2}`, `{"a": 1} | {"a": 1, "b": 3}`},
		// Numbers are equal by value, whatever their types are.
		{
			`{"a": 1}`, `{"a": {"$numberLong": "1"}} | {"a": 1.0} | {"a": {"$numberDecimal": "1.00"}} | {"a": [2, 1]}`,
			`{"a": "1"} | {"a": true} | {"a": [[1]]} | {}`,
		},
		{`{"a": {"$gt": {"$numberLong": "9007199254740992"}}}`, `{"a": {"$numberLong": "9007199254740993"}} | {"a": 1e300}`, `{"a": 9007199254740992.0} | {"a": {"$numberDouble": "NaN"}}`},
		{`{"a": {"$lt": 0.5}}`, `{"a": 0} | {"a": {"$numberDecimal": "-1E+6000"}} | {"a": {"$numberDouble": "-Infinity"}}`, `{"a": {"$numberDecimal": "0.5"}} | {"a": {"$numberDecimal": "NaN"}}`},
		{`{"a": {"$gt": -1e19}}`, `{"a": {"$numberLong": "-9223372036854775808"}}`, `{"a": {"$numberDouble": "-Infinity"}} | {"a": -1e20}`},
		{`{"a": {"$gte": {"$numberDouble": "NaN"}}}`, `{"a": {"$numberDouble": "NaN"}} | {"a": {"$numberDecimal": "NaN"}}`, `{"a": 1}`},
		// Null is a missing field, too.
		{`{"a": null}`, `{} | {"a": null} | {"a": [1, null]}`, `{"a": 1} | {"a": []}`},
		{`{"a": {"$gte": null}}`, `{} | {"a": null}`, `{"a": 1}`},
		{`{"a": {"$gt": null}}`, ``, `{} | {"a": null} | {"a": 1}`},
		{`{"a.b": null}`, `{"a": 1} | {"a": {}} | {"a": [{"b": 1}, {}]}`, `{"a": {"b": 1}} | {"a": []} | {"a": [1]} | {"a": [{"b": 1}]}`},
		{`{"a": {"$ne": null}}`, `{"a": 1} | {"a": []}`, `{} | {"a": null} | {"a": [null]}`},
		{`{"a": {"$lt": {"$maxKey": 1}}}`, `{"a": 1} | {}`, `{"a": {"$maxKey": 1}}`},
		{`{"a": {"$gte": {"$minKey": 1}}}`, `{"a": "x"} | {"a": {"$minKey": 1}}`, ``},
		// Values of different types do not compare.
		{`{"a": {"$gt": "b"}}`, `{"a": "c"} | {"a": "ba"} | {"a": ["a", "c"]}`, `{"a": "b"} | {"a": 5} | {}`},
		{`{"a": {"$lte": {"$date": {"$numberLong": "-5"}}}}`, `{"a": {"$date": {"$numberLong": "-6"}}}`, `{"a": {"$date": {"$numberLong": "5"}}} | {"a": -6}`},
		{`{"a": {"$gt": {"$timestamp": {"t": 1, "i": 2}}}}`, `{"a": {"$timestamp": {"t": 1, "i": 3}}} | {"a": {"$timestamp": {"t": 2, "i": 0}}}`, `{"a": {"$timestamp": {"t": 1, "i": 2}}}`},
		{`{"a": {"$gt": {"$binary": {"base64": "/w==", "subType": "00"}}}}`, `{"a": {"$binary": {"base64": "AAA=", "subType": "00"}}} | {"a": {"$binary": {"base64": "AA==", "subType": "05"}}}`, `{"a": {"$binary": {"base64": "/w==", "subType": "00"}}}`},
		{`{"a": {"$gt": false}}`, `{"a": true}`, `{"a": false} | {"a": 1}`},
		// Documents and arrays are equal element by element.
		{`{"a": {"b": 1, "c": 2}}`, `{"a": {"b": 1.0, "c": 2}} | {"a": [{"b": 1, "c": 2}]}`, `{"a": {"c": 2, "b": 1}} | {"a": {"b": 1}}`},
		{`{"a": {"$lt": {"b": 2}}}`, `{"a": {"b": 1}} | {"a": {}} | {"a": {"a": 9}}`, `{"a": {"b": 2}} | {"a": {"b": "1"}} | {"a": {"c": 1}}`},
		{`{"a": [1, 2]}`, `{"a": [1, 2]} | {"a": [[1, 2], 3]}`, `{"a": [2, 1]} | {"a": 1}`},
		// Paths go into documents in arrays, and to positions.
		{`{"a.b": 1}`, `{"a": [{"b": 2}, {"b": 1}]} | {"a": [{"b": [2, 1]}]}`, `{"a": [[{"b": 1}]]} | {"a": [1]}`},
		{`{"a.1": 2}`, `{"a": [1, 2]} | {"a": {"1": 2}} | {"a": [{"1": 2}]}`, `{"a": [2, 1]} | {"a": [1, [2]]}`},
		{`{"a.0.b": 1}`, `{"a": [{"b": 1}]} | {"a": [[{"b": 1}]]}`, `{"a": [{"b": 2}, {"b": 1}]}`},
		{`{"a.01": 2}`, `{"a": {"01": 2}}`, `{"a": [1, 2]}`},
		{`{"a.0": {"$size": 2}}`, `{"a": [[1, 2]]}`, `{"a": [1, 2]}`},
		// Operators.
		{`{"a": {"$in": [1, "x", null]}}`, `{"a": 1.0} | {"a": ["y", "x"]} | {}`, `{"a": 2} | {"a": []}`},
		{`{"a": {"$in": []}}`, ``, `{} | {"a": 1}`},
		{`{"a": {"$in": [[1]]}}`, `{"a": [1]} | {"a": [[1]]}`, `{"a": 1}`},
		{`{"a": {"$nin": [1, null]}}`, `{"a": 2} | {"a": []}`, `{"a": [2, 1]} | {}`},
		{`{"a": {"$exists": true}}`, `{"a": null} | {"a": []}`, `{}`},
		{`{"a.b": {"$exists": 0}}`, `{"a": []} | {"a": [1]} | {}`, `{"a": {"b": null}} | {"a": [{}, {"b": 1}]}`},
		{`{"a": {"$type": "number"}}`, `{"a": 1} | {"a": {"$numberDecimal": "1"}} | {"a": ["x", 1]}`, `{"a": "1"} | {}`},
		{`{"a": {"$type": ["array", 2]}}`, `{"a": []} | {"a": "x"}`, `{"a": 1}`},
		{`{"a": {"$type": -1}}`, `{"a": {"$minKey": 1}}`, `{"a": {"$maxKey": 1}}`},
		{`{"a": {"$mod": [4, 1.9]}}`, `{"a": 5} | {"a": 5.9} | {"a": {"$numberDecimal": "9.5"}} | {"a": [0, 1]}`, `{"a": 4} | {"a": "5"} | {"a": {"$numberDouble": "NaN"}} | {"a": 1e300} | {"a": {"$numberDecimal": "1E+6000"}}`},
		{`{"a": {"$mod": [-1, 0]}}`, `{"a": {"$numberLong": "-9223372036854775808"}}`, `{"a": "1"}`},
		{`{"a": {"$size": 2}}`, `{"a": [1, [2]]}`, `{"a": [1]} | {"a": 2} | {"a": [[1, 2]]}`},
		{`{"a": {"$all": [1, 2]}}`, `{"a": [2, 3, 1]}`, `{"a": [1]} | {"a": 1}`},
		{`{"a": {"$all": [1]}}`, `{"a": 1} | {"a": [1]}`, `{}`},
		{`{"a": {"$all": [[1, 2]]}}`, `{"a": [1, 2]} | {"a": [[1, 2]]}`, `{"a": [1]}`},
		{`{"a": {"$all": []}}`, ``, `{} | {"a": []}`},
		{`{"a": {"$all": [{"$elemMatch": {"b": 1, "c": 1}}, {"$elemMatch": {"b": 2}}]}}`, `{"a": [{"b": 2}, {"b": 1, "c": 1}]}`, `{"a": [{"b": 1}, {"c": 1}, {"b": 2}]}`},
		{`{"a": {"$elemMatch": {"$gt": 1, "$lt": 3}}}`, `{"a": [0, 2]}`, `{"a": [0, 4]} | {"a": 2} | {"a": [[2]]}`},
		{`{"a": {"$elemMatch": {"b": 1, "c": 2}}}`, `{"a": [{}, {"b": 1, "c": 2}]}`, `{"a": [{"b": 1}, {"c": 2}]} | {"a": {"b": 1, "c": 2}}`},
		{`{"a": {"$elemMatch": {"0": 1}}}`, `{"a": [[1]]}`, `{"a": [1]}`},
		{`{"a": {"$elemMatch": {"$or": [{"b": 1}, {"b": 2}]}}}`, `{"a": [{"b": 2}]}`, `{"a": [{"b": 3}]}`},
		{`{"a": {"$elemMatch": {"$not": {"$gt": 1}}}}`, `{"a": [1, 2]}`, `{"a": [2]} | {"a": []}`},
		{`{"a": {"$not": {"$gt": 1, "$lt": 3}}}`, `{} | {"a": 1} | {"a": "x"}`, `{"a": 2} | {"a": [0, 4]}`},
		{`{"$or": [{"a": 1}, {"b": 1}]}`, `{"a": 1} | {"b": 1}`, `{"a": 2}`},
		{`{"$nor": [{"a": 1}, {"b": 1}]}`, `{"a": 2}`, `{"a": 1} | {"b": 1}`},
		{`{"$and": [{"a": {"$gt": 1}}, {"a": {"$lt": 3}}, {}]}`, `{"a": 2} | {"a": [0, 4]}`, `{"a": 3}`},
		// Regular expressions.
		{`{"a": {"$regex": "^ab", "$options": "i"}}`, `{"a": "ABC"} | {"a": ["x", "ab"]}`, `{"a": "xab"} | {"a": 1}`},
		{`{"a": {"$regularExpression": {"pattern": "^a.c$", "options": ""}}}`, `{"a": "abc"} | {"a": "abc\n"} | {"a": {"$regularExpression": {"pattern": "^a.c$", "options": ""}}}`, `{"a": "abcd"} | {"a": "a\nc"} | {"a": "abc\n\n"}`},
		{`{"a": {"$not": {"$regularExpression": {"pattern": "^(a|b)x{2}", "options": ""}}}}`, `{"a": "ax"} | {}`, `{"a": "bxx"}`},
		{`{"a": {"$in": [{"$regularExpression": {"pattern": "^a\\d+", "options": ""}}, "z"]}}`, `{"a": "a1"} | {"a": "z"}`, `{"a": "a"}`},
		{`{"a": {"$regex": "^a.*"}}`, `{"a": "a` + strings.Repeat("x", 5000) + `"}`, `{"a": "b"}`},
		{`{"a": {"$regex": "^ab\\z", "$options": "s"}}`, `{"a": "ab"}`, `{"a": "ab\n"} | {"a": "abc"}`},
		{`{"a": {"$regex": "^a{2}\\z"}}`, `{"a": "aa"}`, `{"a": "a` + strings.Repeat("a", 100) + `"}`},
	} {
		f := compile(t, row.filter)
		for list, want := range map[string]match.Answer{row.yes: match.Yes, row.no: match.No} {
			for text := range strings.SplitSeq(list, " | ") {
				if text == "" {
					continue
				}
				if got := f.Match(parse(t, text)); got != want {
					t.Errorf("%s of %s = %v, want %v", row.filter, text, got, want)
				}
			}
		}
	}
}

// TestRefused checks what is not evaluated, and that the error says what that is.
func TestRefused(t *testing.T) {
	deep := strings.Repeat(`{"$and": [`, 52) + `{}` + strings.Repeat(`]}`, 52)
	for _, row := range []struct{ filter, want string }{
		{`{"$expr": true}`, "$expr is not supported"},
		{`{"$where": "1"}`, "$where is not supported"},
		{`{"$text": {"$search": "x"}}`, "$text is not supported"},
		{`{"a": {"$geoWithin": {}}}`, "a: $geoWithin is not supported"},
		{`{"a": {"$bitsAllSet": 1}}`, "$bitsAllSet is not supported"},
		{`{"a": {"$gt": 1, "b": 2}}`, "b is not supported"},
		{`{"a": {"$ref": "c", "$id": 1}}`, "$ref"},
		{`{"$and": []}`, "must be an array of filters"},
		{`{"$or": [1]}`, "not a filter"},
		{`{"a": {"$in": 1}}`, "must be an array"},
		{`{"a": {"$in": [{"$gt": 1}]}}`, "operator in its array"},
		{`{"a": {"$size": -1}}`, "$size must be"},
		{`{"a": {"$size": 1.5}}`, "$size must be"},
		{`{"a": {"$mod": [0, 1]}}`, "not 0"},
		{`{"a": {"$mod": [1]}}`, "two numbers"},
		{`{"a": {"$type": "text"}}`, "unknown type"},
		{`{"a": {"$type": []}}`, "at least one type"},
		{`{"a": {"$type": 0}}`, "unknown type"},
		{`{"a": {"$all": 1}}`, "must be an array"},
		{`{"a": {"$all": [{"$gt": 1}]}}`, "operator"},
		{`{"a": {"$all": [1, {"$elemMatch": {"b": 1}}]}}`, "both $elemMatch and values"},
		{`{"a": {"$elemMatch": 1}}`, "must be a document"},
		{`{"a": {"$not": 1}}`, "$not must have operators or"},
		{`{"a": {"$not": {}}}`, "$not must have operators or"},
		{`{"a": {"$ne": {"$regularExpression": {"pattern": "^a", "options": ""}}}}`, "regular expression"},
		{`{"a": {"$gt": {"$regularExpression": {"pattern": "^a", "options": ""}}}}`, "regular expression"},
		{`{"a": {"$undefined": true}}`, "undefined"},
		{`{"a": {"$options": "i"}}`, "$options"},
		{`{"a": {"$regex": "a"}}`, "must begin with ^"},
		{`{"a": {"$regex": "^a|b"}}`, "must begin with ^"},
		{`{"a": {"$regex": "^a", "$options": "m"}}`, "option m"},
		{`{"a": {"$regex": "(?m)^a"}}`, "must begin with ^"},
		{`{"a": {"$regex": "^a.*b"}}`, "must limit"},
		{`{"a": {"$regex": "^(a{100}){100}"}}`, "regular expression"},
		{`{"a": {"$regex": "^a(?=b)"}}`, "not supported"},
		{`{"a": {"$regex": "^a\\s"}}`, `\s`},
		{`{"a": {"$regex": "^a$b"}}`, "$ only at its end"},
		{`{"a": {"$regex": "^` + strings.Repeat("a", 300) + `"}}`, "too long"},
		{`{"a": {"$regex": "^(?:` + strings.Repeat(`\\b`, 100) + `){1000}"}}`, "too large"},
		{`{"a": {"$regex": "^\\pL{250}"}}`, "too large together"},
		{`{"a": {"$in": [` + strings.Repeat(`{"$regularExpression": {"pattern": "^\\pL{2}", "options": ""}},`, 20) + `1]}}`, "too large together"},
		{`{"$or": [` + strings.Repeat(`{"a": {"$regex": "^\\pL{2}"}},`, 20) + `{}]}`, "too large together"},
		{`{"$nor": [{` + strings.Repeat(`"": null,`, 8000) + `"a": 1}]}`, "too many conditions"},
		{`{"a": {"$regex": 1}}`, "must be a regular expression"},
		{deep, "too deep"},
	} {
		_, err := match.Compile(parse(t, row.filter))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%.60s: %v, want an error with %q", row.filter, err, row.want)
		}
	}
	if _, err := match.Compile(bson.Raw("\x09\x00\x00\x00\x10a\x00\x01\x00")); err == nil {
		t.Error("a malformed filter compiles")
	}
}

// TestSize compiles filters with as many of some part as they may have in 16 KiB. None takes more
// than 1 MiB of the heap, nor much more than it says.
func TestSize(t *testing.T) {
	const text, heap = 16 << 10, 1 << 20
	list := func(before, item, after string) func(int) string {
		return func(n int) string {
			return before + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + after
		}
	}
	patterns := func(pattern string) func(int) string {
		return list(`{"a": {"$in": [`, `{"$regularExpression": {"pattern": "`+pattern+
			`", "options": "i"}}`, `]}}`)
	}
	for name, filter := range map[string]func(int) string{
		"conditions":  list(`{`, `"": null`, `}`),
		"filters":     list(`{"$or": [`, `{}`, `]}`),
		"conjunction": list(`{"$and": [`, `{"": null, "": null}`, `]}`),
		"operators":   list(`{"a": {`, `"$ne": null`, `}}`),
		"negations":   list(`{"a": {`, `"$not": {"$not": {"$in": []}}`, `}}`),
		"values":      list(`{"a": {"$in": [`, `null`, `]}}`),
		"each value":  list(`{"a": {"$all": [`, `null`, `]}}`),
		"types":       list(`{"a": {"$type": [`, `"number"`, `]}}`),
		"names":       list(`{"`, `.`, `": 1}`),
		"elements":    list(`{"a": {`, `"$elemMatch": {"": null}`, `}}`),
		"^":           patterns(`^`),
		"^user":       patterns(`^user-12345`),
		"repeated":    patterns(`^\\w{250}`),
		"letters":     patterns(`^\\pL`),
		"a choice":    patterns(`^(ab|c|\\d){50}$`),
		"forks":       patterns(`^` + `1?2?3?4?5?6?7?8?` + `\\pL$`),
	} {
		// The largest that compiles has n-1 items.
		n := sort.Search(text, func(n int) bool {
			d := parse(t, filter(n+1))
			_, err := match.Compile(d)
			return err != nil || len(d) > text
		})
		d := parse(t, filter(n))
		before := inUse()
		f, err := match.Compile(d)
		took := inUse() - before
		if err != nil || n == 0 {
			t.Errorf("%s: at most %d of them: %v", name, n, err)
			continue
		}
		if took > heap || took > int64(f.Size())*5/4 {
			t.Errorf("%s: %d of them take %d bytes, and say %d", name, n, took, f.Size())
		}
		runtime.KeepAlive(d)
		runtime.KeepAlive(f)
	}
}

// inUse returns how many bytes of the heap are in use.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSteps checks that a decision that would look at more than MaxSteps elements is Unknown, also
// under a negation.
func TestSteps(t *testing.T) {
	b := bson.NewBuilder(nil).OpenArray("a")
	for range match.MaxSteps {
		b.Int32("", 1)
	}
	d := b.Close().Finish()
	// Each position of this path is also a key: without a bound the ways double with each level.
	nested := `{"0": 1}`
	for range 24 {
		nested = `{"0": [` + nested + `]}`
	}
	b, l := bson.NewBuilder(nil).OpenArray("a"), bson.NewBuilder(nil).OpenArray("a")
	for i := range 20_000 {
		b.Double("", float64(i)+0.5)
		l.OpenDocument("").Double("", 1e-300).Close()
	}
	doubles, documents := b.Close().Finish(), l.Close().Finish()
	var decimals, longs, none []string
	for i := range 560 {
		decimals = append(decimals, fmt.Sprintf(`{"$numberDecimal": "%d.1"}`, i))
		longs = append(longs, fmt.Sprintf(`{"$numberLong": "%d"}`, i))
		none = append(none, `"$not": {"$all": []}`)
	}
	for _, row := range []struct {
		filter string
		d      bson.Raw
		want   match.Answer
	}{
		// What takes longer than a look is more than a step.
		{`{"a": {"$in": [` + strings.Join(decimals, ",") + `]}}`, doubles, match.Unknown},
		{`{"a": {"$in": [` + strings.Join(longs, ",") + `]}}`, doubles, match.Unknown},
		{`{"a": {"$gt": ` + decimals[0] + `}}`, doubles, match.Yes},
		{`{"a": {"$lt": {"$numberDecimal": "-1"}}}`, doubles, match.Unknown},
		{`{"a": {"$lt": {"": {"$numberDecimal": "1E-300"}}}}`, documents, match.Unknown},
		{`{"a": {"$elemMatch": {` + strings.Join(none, ",") + `, "$lt": 0}}}`, doubles, match.Unknown},
		{`{"a": {"$lt": -1}}`, doubles, match.No},
		{`{"a": 2}`, d, match.Unknown},
		{`{"a": {"$ne": 2}}`, d, match.Unknown},
		{`{"$nor": [{"a": 2}]}`, d, match.Unknown},
		{`{"a": 1}`, d, match.Yes},
		{`{"0` + strings.Repeat(".0", 40) + `": 2}`, parse(t, nested), match.Unknown},
	} {
		if got := compile(t, row.filter).Match(row.d); got != row.want {
			t.Errorf("%s = %v, want %v", row.filter, got, row.want)
		}
	}
}

// everyday is a filter as pages have them, on an event of a change stream.
const everyday = `{"operationType": {"$in": ["insert", "update", "replace"]}, "fullDocument.status": "open",
	"fullDocument.total": {"$gt": 10, "$lte": 500}, "fullDocument.items.sku": {"$in": ["a", "b", "c"]},
	"fullDocument.customer": {"$regex": "^a"}, "fullDocument.gone": {"$exists": false}}`

const event = `{"_id": {"_data": "8265"}, "operationType": "insert", "clusterTime": {"$timestamp": {"t": 1, "i": 1}},
	"ns": {"db": "shop", "coll": "orders"}, "documentKey": {"_id": 7}, "fullDocument": {"_id": 7, "customer": "ann",
	"status": "open", "total": 99.5, "items": [{"sku": "x", "n": 1}, {"sku": "b", "n": 2}]}}`

func TestAllocations(t *testing.T) {
	f, d := compile(t, everyday), parse(t, event)
	if f.Match(d) != match.Yes {
		t.Fatal("the event does not match")
	}
	if n := testing.AllocsPerRun(100, func() { f.Match(d) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	for name, filter := range map[string]string{
		"everyday": everyday, "equal": `{"fullDocument.status": "open"}`,
	} {
		f, d := compile(b, filter), parse(b, event)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.Match(d)
			}
		})
	}
}

// FuzzMatch checks that no filter and no document panic, and that $nor turns each answer round.
func FuzzMatch(f *testing.F) {
	for _, text := range []string{
		everyday, `{"a.0.b": {"$elemMatch": {"$not": {"$in": [1, null]}}}}`, `{"a": {"$all": [{"$elemMatch": {"b": 1}}]}}`,
		`{"a": {"$mod": [2, 1], "$type": ["int", 1], "$size": 1, "$regex": "^a{1,3}$", "$options": "i"}}`,
		`{"$or": [{"a": {"$numberDecimal": "1"}}, {"a": {"$gt": {"b": [1, {"$minKey": 1}]}}}]}`,
	} {
		f.Add([]byte(parse(f, text)), []byte(parse(f, event)))
	}
	f.Fuzz(func(t *testing.T, filter, document []byte) {
		if bson.Raw(filter).Validate() != nil || bson.Raw(document).Validate() != nil {
			return
		}
		c, err := match.Compile(filter)
		if err != nil {
			return
		}
		turned := bson.NewBuilder(nil).OpenArray("$nor").Document("", filter).Close().Finish()
		not, err := match.Compile(turned)
		if err != nil {
			return // it is nested too deeply now
		}
		is, isNot := c.Match(document), not.Match(document)
		if is == isNot && is != match.Unknown {
			t.Errorf("%v of %v, and as much of its opposite: %v", bson.Raw(filter),
				bson.Raw(document), is)
		}
	})
}
