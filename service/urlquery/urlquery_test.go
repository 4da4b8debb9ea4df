package urlquery_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/urlquery"
)

var parameters = []string{
	"filter", "projection", "sort", "hint", "limit", "skip", "batchSize", "maxTimeMS", "comment",
	"timeout", "order", "select", "count",
}

var ofBody = []string{"session", "tailable"}

// text writes what a query says: "filter | sort | projection".
func text(t testing.TB, find urlquery.Find) string {
	t.Helper()
	var parts []string
	for _, doc := range []bson.Raw{find.Filter, find.Sort, find.Projection} {
		if doc == nil {
			parts = append(parts, "-")
			continue
		}
		json, err := extjson.Append(nil, doc, extjson.Relaxed)
		if err != nil {
			t.Fatalf("%x: %v", []byte(doc), err)
		}
		parts = append(parts, string(json))
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.Join(parts, " | "), " | -"), " | -")
}

func parse(t testing.TB, query string) (string, error) {
	t.Helper()
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	find, err := urlquery.Parse(values, parameters, ofBody)
	return text(t, find), err
}

func TestParse(t *testing.T) {
	for query, want := range map[string]string{
		"":                                  `-`,
		"limit=5&filter={}":                 `-`,
		"status=paid":                       `{"status":"paid"}`,
		"status=paid&total=gt.10&limit=5":   `{"status":"paid","total":{"$gt":10}}`,
		"total=gte.1.5&total=lt.20":         `{"$and":[{"total":{"$gte":1.5}},{"total":{"$lt":20}}]}`,
		"total=lte.20":                      `{"total":{"$lte":20}}`,
		"a=1&b=1.0&c=-2":                    `{"a":1,"b":1.0,"c":-2}`,
		"a=true&b=false&c=null&d=True":      `{"a":true,"b":false,"c":null,"d":"True"}`,
		"_id=5f1d7f3e9d3b2a0001234567":      `{"_id":{"$oid":"5f1d7f3e9d3b2a0001234567"}}`,
		"zip=01234":                         `{"zip":"01234"}`,
		"zip.string()=1234":                 `{"zip":"1234"}`,
		"n.int64()=5":                       `{"n":5}`,
		"at.date()=gte.2026-11-01":          `{"at":{"$gte":{"$date":"2026-11-01T00:00:00Z"}}}`,
		"p.decimal()=1.10":                  `{"p":{"$numberDecimal":"1.10"}}`,
		"a.json()={\"$gt\":1}":              `{"a":{"$eq":{"$gt":1}}}`,
		"a.json()=[1,2]":                    `{"a":{"$eq":[1,2]}}`,
		"status=ne.paid":                    `{"status":{"$ne":"paid"}}`,
		"status=eq.":                        `{"status":""}`,
		"status=eq.gt.10":                   `{"status":"gt.10"}`,
		"status=in.(open,paid,3)":           `{"status":{"$in":["open","paid",3]}}`,
		`status=in.("a,b","3","x\"y",null)`: `{"status":{"$in":["a,b","3","x\"y",null]}}`,
		"status=nin.(a)":                    `{"status":{"$nin":["a"]}}`,
		"status=in.()":                      `{"status":{"$in":[]}}`,
		"zip.string()=in.(1,2)":             `{"zip":{"$in":["1","2"]}}`,
		"a=exists.true&b=exists.false":      `{"a":{"$exists":true},"b":{"$exists":false}}`,
		"a=not.exists.true":                 `{"a":{"$not":{"$exists":true}}}`,
		"status=not.in.(a,b)":               `{"status":{"$not":{"$in":["a","b"]}}}`,
		"status=not.eq.a":                   `{"status":{"$not":{"$eq":"a"}}}`,
		"name=like.A*":                      `{"name":{"$regex":"^A","$options":"s"}}`,
		"name=like.*son":                    `{"name":{"$regex":"son\\z","$options":"s"}}`,
		"name=like.*é.b*":                   `{"name":{"$regex":"é\\.b","$options":"s"}}`,
		`name=like.a\*b`:                    `{"name":{"$regex":"^a\\*b\\z","$options":"s"}}`,
		"name=not.like.A*":                  `{"name":{"$not":{"$regex":"^A","$options":"s"}}}`,
		"site=www.example.com":              `{"site":"www.example.com"}`,
		"mail=john.doe@example.com":         `{"mail":"john.doe@example.com"}`,
		"version=1.2.3":                     `{"version":"1.2.3"}`,
		"address.city=London":               `{"address.city":"London"}`,
		"items.0.sku=a":                     `{"items.0.sku":"a"}`,
		"field.limit=5&limit=9":             `{"limit":5}`,
		"field.a[0]=1&field.session=2":      `{"a[0]":1,"session":2}`,
		"field.field.a=1":                   `{"field.a":1}`,
		"field.order=x&order=-a,b":          `{"order":"x"} | {"a":-1,"b":1}`,
		"order=a.desc,b.asc,c.d":            `- | {"a":-1,"b":1,"c.d":1}`,
		"select=_id,total":                  `- | - | {"_id":1,"total":1}`,
		"select=total":                      `- | - | {"total":1,"_id":0}`,
		"select=-a,-b.c":                    `- | - | {"a":0,"b.c":0}`,
		"select=*":                          `-`,
		"country=SE&amount=5&counter=1":     `{"amount":5,"counter":1,"country":"SE"}`,
		"name=O'Brien%20%26%20Sons":         `{"name":"O'Brien & Sons"}`,
	} {
		if got, err := parse(t, query); err != nil || got != want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", query, err, got, want)
		}
	}
}

// TestErrors has queries that are not a find: each error names the parameter and what to write.
func TestErrors(t *testing.T) {
	long := strings.Repeat("x", 100)
	for query, want := range map[string]string{
		"limt=5":             `limt: there is no such parameter: did you mean limit? For a field of this name, write field.limt`,
		"lmiit=5":            `lmiit: there is no such parameter: did you mean limit?`,
		"Limit=5":            `Limit: there is no such parameter: did you mean limit?`,
		"batch_size=":        `batch_size: there is no such parameter: did you mean batchSize?`,
		"comments=1":         `comments: there is no such parameter: did you mean comment?`,
		"offset=20":          `offset: there is no such parameter: did you mean skip?`,
		"fields=a":           `fields: there is no such parameter: did you mean select?`,
		"or=(a,b)":           `or: there is no such parameter: did you mean filter?`,
		"session=x":          `session: is not a parameter of a GET: send a POST. For a field of this name, write field.session`,
		"filter[a]=1":        `filter[a]: has brackets: write a comparison as name=gt.5`,
		"pretty=true":        `pretty: there is no such parameter. For a field of this name, write field.pretty`,
		"cursor=x":           `cursor: there is no such parameter: did you mean the body of /v1/cursors:next?`,
		"a=gtt.5":            `a: there is no operator "gtt": did you mean gt? For a string, write eq.gtt.5`,
		"a=GT.5":             `a: there is no operator "GT": did you mean gt? For a string, write eq.GT.5`,
		"a=neq.5":            `a: there is no operator "neq": did you mean ne? For a string, write eq.neq.5`,
		"a=is.null":          `a: there is no operator "is": did you mean eq? For a string, write eq.is.null`,
		"a=ilike.x":          `a: there is no operator "ilike": did you mean $regex in filter? For a string`,
		"a=_gte.5":           `a: there is no operator "_gte": did you mean gte?`,
		"a=not.5":            `a: there is no operator "5": the operators are eq, exists, gt, gte, in, like, lt, lte, ne, nin`,
		"a=not.not.eq.5":     `a: there is no operator "not"`,
		"a=":                 `a: has no value: write eq. for the empty string`,
		"a=x&a=y":            `a: is repeated: for any of several values, write in.(a,b)`,
		"a=gt.1&a=gt.2":      `a: is repeated`,
		"a=1&field.a=2":      `field.a: is repeated`,
		"a=in.a,b":           `a: "a,b" is not a list: write (a,b)`,
		"a=in.(a":            `a: "(a" is not a list: write (a,b)`,
		`a=in.("a)`:          `a: a quote in the list is not closed`,
		`a=in.("a"b)`:        `a: expected a comma after the item "a"`,
		"a=exists.1":         `a: "1" is neither true nor false`,
		"a=like.*":           `a: matches every string: write exists.true`,
		"a.int32()=like.x":   `a.int32(): like is for strings, not for int32()`,
		"a.int32()=x":        `a.int32(): "x" is not an integer (x has no operator, which is eq.)`,
		"a.int32()=in.(1,x)": `a.int32(): "x" is not an integer`,
		"a.int()=1":          `a.int(): there is no type "int"()`,
		"$where=1":           `$where: begins with $: fields cannot`,
		"a.$gt=1":            `a.$gt: begins with $: fields cannot`,
		"field.$expr=1":      `field.$expr: begins with $: fields cannot`,
		"=1":                 `: is not the path of a field`,
		"a..b=1":             `a..b: is not the path of a field`,
		".a=1":               `.a: is not the path of a field`,
		"a%00b=1":            `has a zero byte in its name`,
		"order=a,-a":         `order: "a" is listed twice`,
		"order=":             `order: "" is not the path of a field`,
		"order=a,+b":         `order: " b" begins or ends with a space: in a URL, + is one`,
		"order=$natural":     `order: "$natural" begins with $`,
		"select=a,-b":        `select: mixes fields to include with fields to leave out (-b)`,
		"select=a,,b":        `select: "" is not the path of a field`,
		"select=a&select=b":  `select: is repeated`,
		"a=gtt." + long:      `write eq.gtt.` + long[:36] + "…",
	} {
		got, err := parse(t, query)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v\nwant %s", query, got, err, want)
		}
	}
}

// TestBounds has queries of very many parameters and values: the work and the answer are bounded.
func TestBounds(t *testing.T) {
	many, items := url.Values{}, strings.Repeat("a,", 100_000)
	for i := range 100_000 {
		many.Set(fmt.Sprintf("f%06d", i), "1")
	}
	for name, query := range map[string]url.Values{
		"parameters": many, "conditions on a field": {"a": strings.Split(items, ",")},
		"values": {"a": {"in.(" + items + ")"}}, "fields": {"order": {items + "b"}},
		"selected": {"select": {strings.Join(strings.Fields(fmt.Sprint(make([]int, 2000))), ",")}},
	} {
		_, err := urlquery.Parse(query, parameters, ofBody)
		if err == nil || len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzParse has a query that is an error with a parameter's name, or a find whose filter has no
// operators but those of package urlquery.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"a=1", "a=not.in.(1,\"b\")", "a=like.x*", "a.json()={\"$where\":1}", "order=-a&select=b", "limt=1",
		"field.a=gt.1&a=lt.2", "a.date()=2026-11-01", "a=exists.true",
	} {
		f.Add(seed)
	}
	allowed := map[string]bool{
		"$eq": true, "$ne": true, "$gt": true, "$gte": true, "$lt": true, "$lte": true, "$in": true,
		"$nin": true, "$exists": true, "$not": true, "$regex": true, "$options": true,
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		find, err := urlquery.Parse(values, parameters, ofBody)
		if err != nil {
			return
		}
		check := func(v bson.Value) {
			doc, ok := v.Document()
			if not, isNot := doc.Lookup("$not"); ok && isNot {
				doc, _ = not.Document()
			}
			for key := range doc.All() {
				if !allowed[key] {
					t.Errorf("%q has the operator %s", query, key)
				}
			}
		}
		for key, v := range find.Filter.All() {
			if list, isAnd := v.Array(); key == "$and" && isAnd {
				for _, c := range bson.Raw(list).All() {
					inner, _ := c.Document()
					check(firstOf(inner))
				}
				continue
			}
			if strings.HasPrefix(key, "$") {
				t.Errorf("%q has the operator %s", query, key)
			}
			check(v)
		}
	})
}

func firstOf(d bson.Raw) bson.Value {
	for _, v := range d.All() {
		return v
	}
	return bson.Value{}
}
