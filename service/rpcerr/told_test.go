package rpcerr_test

import (
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestTold checks which texts of servers a client sees whose errors are quiet or terse: those that
// can only quote its own request, as DocumentDB and MongoDB word them. They are the answers to
// requests on a document {_id: 1, a: "STORED"}.
func TestTold(t *testing.T) {
	for _, row := range []struct {
		code int32
		text string
		told bool
	}{
		{40324, "Pipeline stage name not recognized: $grup", true},
		{40324, "Unrecognized pipeline stage name: '$grup'", true},
		{40323, "A pipeline stage specification object is required to have one and only one field.", true},
		{15952, "unknown group operator '$summ'", true},
		{15955, "_id is missing from group specification", true},
		{31325, "Unrecognized expression format: $foo", true},
		{168, "Unrecognized expression '$foo'", true},
		{31254, "exclusion cannot be applied to field b within the inclusion projection.", true},
		{28818, "The path option provided to the $unwind stage must start with the '$' symbol: a", true},
		{5107201, "the limit must be specified as a number", true},
		{16020, "The expression $substrBytes requires exactly 3 arguments, but 1 arguments were actually provided.", true},
		{51091, "Regular expression is invalid: missing closing parenthesis", true},
		{40415, "BSON field 'find.bogus' is an unknown field.", true},
		{59, "no such command: 'nosuch'", true},
		{73, "Invalid namespace specified 'd.$x'", true},
		{40, "Updating the path 'a' would create a conflict at 'a'", true},
		{56, "An empty update path is not valid.", true},
		{9, "Unknown modifier: $foo. Expected a valid update modifier or pipeline-style update specified as an array", true},
		{9, "The 'cursor' option is required, except for aggregate with the explain argument", true},
		{2, "unknown top level operator: $foo. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.", true},
		{2, "unknown top level operator: $foo", true},
		{2, "unknown operator: $grup", true},
		{2, "Unrecognized operator specified: $foo", true},
		{2, "Expected 'array' type for $and", true},
		{2, "$in needs an array", true},
		{2, "$and/$or/$nor must be a nonempty array", true},
		{2, "$or/$and/$nor arrays must have at least one entry", true},
		{2, "$elemMatch needs an Object", true},
		{2, "$not needs a regex or a document", true},
		{2, "Unknown type name alias: zzz", true},
		{2, "malformed mod, not enough elements", true},
		{2, `Failed to parse $size. Expected a number in: $size: "x"`, true},
		{2, "bogus is an unknown field", true},
		{2, "Expected document for sort specification", true},
		{14, "The BSON field 'sort' has an incorrect type 'int'; it should be of type 'object'.", true},
		{14, "BSON field 'find.filter' is the wrong type 'int', expected type 'object'", true},
		{14, "BSON field 'delete.hint' is the wrong type 'int', expected types '[string, object]'", true},
		{14, "Increment should be numeric", true},

		{2, "", false},
		{2, "The field 'a' is required to be an array, however it is currently of type string in document { _id: 1 }", false},
		{2, "The field 'a' must be an array but is of type string in document {_id: 1}", false},
		{2, "Expected 'array' type for $addToSet but field 'a' has 'string' type", false},
		{2, "$bit cannot be used on a value that is not of an integral type. The document with _id = 1 contains the field a, which has a non-integer type string.", false},
		{2, "error processing query: ns=d.c tree: tenant $eq \"STORED\" planner returned error: bad hint", false},
		{2, "$divide by zero is not allowed", false},
		{2, "unknown operator: $x STORED", false},
		{2, "STORED unknown operator: $x", false},
		{2, "unknown operator: $x\nSTORED", false},
		{14, "Cannot apply $inc to a value of non-numeric type. {_id: 1} has the field 'a' of non-numeric type string", false},
		{14, "Operation $inc cannot be performed because the target value is not numeric. Document { _id: 1 } contains the field 'a' which is of non-numeric type string.", false},
		{14, "$add can only process numeric or date types, not string", false},
		{241, "Failed to parse number 'STORED' in $convert with no onError value: Did not consume whole string.", false},
		{84148253, "Unable to interpret number 'STORED' within $convert", false},
		{28, `Cannot create field 'b' in element {a: "STORED"}`, false},
		{40228, `'newRoot' expression must evaluate to an object, but resulting value was: "STORED".`, false},
		{16702, "$concat only supports strings, not int", false},
		{11000, `E11000 duplicate key error collection: d.c index: u dup key: { u: "STORED" }`, false},
		{121, "Document failed validation", false},
		{66, "Performing an update on the path '_id' would modify the immutable field '_id'", false},
		{1, "STORED", false},
		{0, "STORED", false},
		{9, strings.Repeat("x", 5000), false},
	} {
		raw := bson.NewBuilder(nil).OpenDocument("keyValue").String("a", "STORED").Close().Finish()
		write := mongoerr.WriteError{Code: row.code, Message: row.text, Raw: raw}
		for name, err := range map[string]error{
			"command": &mongoerr.CommandError{Code: row.code, Message: row.text, Reply: raw},
			"write":   &mongoerr.WriteException{WriteErrors: []mongoerr.WriteError{write}},
		} {
			for _, of := range []call.Call{{Terse: true}, {Local: call.Local{Quiet: true}}} {
				f := rpcerr.Explain(err, of)
				if got := f.Message() == row.text && row.text != ""; got != row.told {
					t.Errorf("%s, %d %q: the client sees %q", name, row.code, row.text, f.Message())
				}
				if kept := !row.told && row.code != 11000; f.IsKept() != kept ||
					kept != strings.Contains(f.Message(), "errors.serverTexts") {
					t.Errorf("%s, %d %q: kept %t: %q", name, row.code, row.text, f.IsKept(),
						f.Message())
				}
				if e := f.HTTP().Body.GetError(); e.GetServer().GetKeyValue() != nil {
					t.Errorf("%s, %d: the client sees %v", name, row.code, e)
				}
			}
			if f := rpcerr.Explain(err, call.Call{}); f.IsKept() ||
				f.Message() != row.text && len(row.text) < 1000 {
				t.Errorf("%s, %d %q: a client that may see all sees %q", name, row.code, row.text,
					f.Message())
			}
		}
	}
}
