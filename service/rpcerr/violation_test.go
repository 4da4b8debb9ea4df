package rpcerr_test

import (
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// violationsOf returns the violations of a write error, a line for each: pointer, rule, message.
func violationsOf(w mongoerr.WriteError) []string {
	var lines []string
	for _, v := range rpcerr.WriteError(w, payload.BSON).GetViolations() {
		lines = append(lines, v.GetPointer()+" | "+v.GetRule()+" | "+v.GetMessage())
	}
	return lines
}

// refusedBy is the error of a write that a validator refused with these details.
func refusedBy(t testing.TB, details string) mongoerr.WriteError {
	t.Helper()
	raw, err := extjson.Parse(nil, []byte(`{"code":121,"errInfo":{"details":`+details+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	return mongoerr.WriteError{Code: 121, Raw: raw}
}

func TestViolations(t *testing.T) {
	schema := func(rules string) string {
		return `{"operatorName":"$jsonSchema","schemaRulesNotSatisfied":[` + rules + `]}`
	}
	property := func(name, details string) string {
		return `{"operatorName":"properties","propertiesNotSatisfied":[{"propertyName":"` + name +
			`","details":[` + details + `]}]}`
	}
	const minimum = `{"operatorName":"minimum","specifiedAs":{"minimum":1},` +
		`"reason":"comparison failed","consideredValue":0}`
	const below = `comparison failed: {"minimum":1}`
	for _, row := range []struct {
		name, details string
		want          []string
	}{
		{"a property", schema(property("age", minimum)), []string{"/age | minimum | " + below}},
		{"a property of a property", schema(property("a", property("b", minimum))), []string{"/a/b | minimum | " + below}},
		{"a name with signs", schema(property("a/b~c", minimum)), []string{"/a~1b~0c | minimum | " + below}},
		{"an empty name", schema(property("", minimum)), []string{"/ | minimum | " + below}},
		{"missing fields", schema(`{"operatorName":"required","specifiedAs":{"required":["a","b"]},"missingProperties":["a","b"]}`), []string{"/a | required | the field is missing", "/b | required | the field is missing"}},
		{"a missing field within another", schema(property("address", `{"operatorName":"required","specifiedAs":{"required":["city"]},"missingProperties":["city"]}`)), []string{"/address/city | required | the field is missing"}},
		{"fields too many", schema(`{"operatorName":"additionalProperties","specifiedAs":{"additionalProperties":false},"additionalProperties":["x","y"]}`), []string{"/x | additionalProperties | the field is not allowed", "/y | additionalProperties | the field is not allowed"}},
		{"an item", schema(property("items", `{"operatorName":"items","reason":"At least one item did not match the sub-schema","itemIndex":2,"details":[`+property("price", minimum)+`]}`)), []string{"/items/2/price | minimum | " + below}},
		{"the wrong type", schema(property("name", `{"operatorName":"bsonType","specifiedAs":{"bsonType":"string"},"reason":"type did not match","consideredValue":7,"consideredType":"int"}`)), []string{`/name | bsonType | type did not match: {"bsonType":"string"}`}},
		{"two schemas", schema(property("a", `{"operatorName":"anyOf","schemasNotSatisfied":[{"index":0,"details":[`+minimum+`]},{"index":1,"details":[`+property("b", minimum)+`]}]}`)), []string{"/a | minimum | " + below, "/a/b | minimum | " + below}},
		{"more than one schema", schema(`{"operatorName":"oneOf","reason":"more than one subschema matched","matchingSchemaIndexes":[0,1]}`), []string{" | oneOf | more than one subschema matched"}},
		{"a dependency", schema(`{"operatorName":"dependencies","failingDependencies":[{"conditionalProperty":"card","missingProperties":["address"]}]}`), []string{`/address | dependencies | the field is missing, which "card" requires`}},
		{"a dependency by a schema", schema(`{"operatorName":"dependencies","failingDependencies":[{"conditionalProperty":"card","details":[` + property("age", minimum) + `]}]}`), []string{"/age | minimum | " + below}},
		{"a pattern of names", schema(`{"operatorName":"patternProperties","details":[{"propertyName":"n1","regexMatched":"^n","details":[` + minimum + `]}]}`), []string{"/n1 | minimum | " + below}},
		{"too few fields", schema(`{"operatorName":"minProperties","specifiedAs":{"minProperties":3},"reason":"specified number of properties was not satisfied","numberOfProperties":2}`), []string{` | minProperties | specified number of properties was not satisfied: {"minProperties":3}`}},
		{"a description of a property", schema(`{"operatorName":"properties","propertiesNotSatisfied":[{"propertyName":"gpa","title":"GPA","description":"from 0 to 4","details":[` + minimum + `]}]}`), []string{"/gpa | minimum | from 0 to 4"}},
		{"a description above a property", `{"operatorName":"$jsonSchema","description":"a student","schemaRulesNotSatisfied":[` + property("gpa", minimum) + `]}`, []string{"/gpa | minimum | " + below}},
		{"a query", `{"operatorName":"$gt","specifiedAs":{"a.b":{"$gt":5}},"reason":"comparison failed","consideredValue":3}`, []string{`/a/b | $gt | comparison failed: {"a.b":{"$gt":5}}`}},
		{"a query without the field", `{"operatorName":"$or","clausesNotSatisfied":[{"index":0,"details":{"operatorName":"$type","specifiedAs":{"phone":{"$type":"string"}},"reason":"field was missing"}}]}`, []string{`/phone | $type | field was missing: {"phone":{"$type":"string"}}`}},
		{"a query and a schema", `{"operatorName":"$and","clausesNotSatisfied":[{"index":1,"details":` + schema(property("b", minimum)) + `}]}`, []string{"/b | minimum | " + below}},
		{"a query that must not match", `{"operatorName":"$not","details":{"operatorName":"$lt","specifiedAs":{"a":{"$lt":10}},"reason":"comparison succeeded","consideredValue":9}}`, []string{`/a | $lt | comparison succeeded: {"a":{"$lt":10}}`}},
		{"clauses that must not match", `{"operatorName":"$nor","clausesSatisfied":[{"index":0,"details":{"operatorName":"$jsonSchema","reason":"schema matched"}}]}`, []string{" | $jsonSchema | schema matched"}},
		{"an expression", `{"operatorName":"$expr","specifiedAs":{"$expr":{"$gt":["$a","$b"]}},"reason":"expression did not match","expressionResult":false}`, []string{` | $expr | expression did not match: {"$expr":{"$gt":["$a","$b"]}}`}},
		{"no reason", `{"operatorName":"$alwaysFalse","specifiedAs":{"$alwaysFalse":1}}`, []string{` | $alwaysFalse | {"$alwaysFalse":1}`}},
		{"another form", `{"operatorName":5,"details":[7,{"x":1},{"operatorName":"q","missingProperties":3}]}`, nil},
		{"another field's value", schema(`{"operatorName":"additionalProperties","reason":"at least one additional property did not match the subschema","failingProperty":"x","details":[` + minimum + `]}`), []string{"/x | minimum | " + below}},
		{"an expression that fails", `{"operatorName":"$expr","specifiedAs":{"$expr":1},"reason":"failed to evaluate aggregation expression","details":{"code":2,"errmsg":"x"}}`, []string{` | $expr | failed to evaluate aggregation expression: {"$expr":1}`}},
		{"only a name", `{"operatorName":"$jsonSchema"}`, nil},
		{"no details", `7`, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := violationsOf(refusedBy(t, row.details))
			if g, w := strings.Join(got, "\n"), strings.Join(row.want, "\n"); g != w {
				t.Errorf("got\n%s\nwant\n%s", g, w)
			}
		})
	}
}

func TestViolationsOnlyOfValidators(t *testing.T) {
	w := refusedBy(t, `{"operatorName":"$gt","specifiedAs":{"a":{"$gt":5}},"reason":"r"}`)
	w.Code = 2
	if got := violationsOf(w); got != nil {
		t.Errorf("got %q of code 2", got)
	}
}

// TestViolationsAreFew checks that the violations of an error take 4 KiB at most, and at most four
// times what its errInfo takes.
func TestViolationsAreFew(t *testing.T) {
	for name, row := range map[string]struct {
		field string
		count int
		least int // violations
	}{
		"one":            {"a", 1, 1},
		"twenty":         {"customer", 20, 20},
		"long names":     {strings.Repeat("n", 100), 1000, 15},
		"empty names":    {"", 40, 8},
		"one too long":   {strings.Repeat("n", 5000), 1, 0},
		"many too long":  {strings.Repeat("n", 5000), 1000, 0},
		"thousand empty": {"", 1000, 30},
	} {
		names := strings.TrimSuffix(strings.Repeat(strconv.Quote(row.field)+",", row.count), ",")
		w := refusedBy(t, `{"operatorName":"required","specifiedAs":{"required":[`+names+
			`]},"missingProperties":[`+names+`]}`)
		info, _ := w.Raw.Lookup("errInfo")
		found := rpcerr.WriteError(w, payload.BSON).GetViolations()
		if size := heapOf(found); size > 4096 || size > 4*len(info.Data) ||
			len(found) < row.least {
			t.Errorf("%s: %d violations of %d bytes, errInfo has %d",
				name, len(found), size, len(info.Data))
		}
	}
}

// heapOf returns what violations take in memory, with a pointer for each.
func heapOf(vs []*mooringv1.Violation) int {
	size := 0
	for _, v := range vs {
		size += int(unsafe.Sizeof(*v)+unsafe.Sizeof(v)) +
			len(v.GetPointer()) + len(v.GetRule()) + len(v.GetMessage())
	}
	return size
}

// TestViolationsOnEachWay checks the errors of a command and of a write, on REST and on gRPC, and
// that a quiet call gets none.
func TestViolationsOnEachWay(t *testing.T) {
	w := refusedBy(t, `{"operatorName":"required","missingProperties":["a"]}`)
	for name, err := range map[string]error{
		"command": &mongoerr.CommandError{Code: 121, Message: "refused", Reply: w.Raw},
		"write":   &mongoerr.WriteException{WriteErrors: []mongoerr.WriteError{w}},
	} {
		for _, quiet := range []bool{false, true} {
			failure := rpcerr.Explain(err, call.Call{Local: call.Local{Quiet: quiet}})
			body := failure.HTTP().Body.GetError()
			found := [][]*mooringv1.Violation{body.GetServer().GetViolations()}
			for _, detail := range failure.GRPCStatus().Details() {
				if server, ok := detail.(*mooringv1.ServerError); ok {
					found = append(found, server.GetViolations())
				}
			}
			for _, w := range body.GetWriteErrors() {
				found = append(found, w.GetViolations())
			}
			answer := &mooringv1.InsertManyResponse{
				WriteErrors: []*mooringv1.WriteError{rpcerr.WriteError(w, payload.BSON)},
			}
			rpcerr.Hush(answer, hider(quiet))
			found = append(found, answer.GetWriteErrors()[0].GetViolations())
			if len(found) < 3 {
				t.Errorf("%s: no detail in %v", name, failure)
			}
			for i, vs := range found {
				if len(vs) == 0 != quiet || !quiet && vs[0].GetPointer() != "/a" {
					t.Errorf("%s, quiet %v, place %d: %v", name, quiet, i, vs)
				}
			}
		}
	}
}

func FuzzViolations(f *testing.F) {
	f.Add([]byte(refusedBy(f, `{"operatorName":"required","missingProperties":["a"]}`).Raw))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if bson.Raw(raw).Validate() != nil {
			return
		}
		m := rpcerr.WriteError(mongoerr.WriteError{Code: 121, Raw: raw}, payload.BSON)
		for _, v := range m.GetViolations() {
			if p := v.GetPointer(); p != "" && p[0] != '/' {
				t.Errorf("pointer %q", p)
			}
		}
		if size := heapOf(m.GetViolations()); size > 4096 || size > 4*len(raw) {
			t.Errorf("%d bytes of %d", size, len(raw))
		}
	})
}
