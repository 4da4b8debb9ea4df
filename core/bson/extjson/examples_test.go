package extjson_test

import (
	"fmt"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// Canonical keeps every type; Relaxed is shorter and loses the width of numbers.
func ExampleAppend_modes() {
	doc := bson.NewBuilder(nil).Int32("stock", 4).DateTime("since", 0).Finish()
	for _, mode := range []extjson.Mode{extjson.Canonical, extjson.Relaxed} {
		text, err := extjson.Append(nil, doc, mode)
		fmt.Println(string(text), err)
	}
	// Output:
	// {"stock":{"$numberInt":"4"},"since":{"$date":{"$numberLong":"0"}}} <nil>
	// {"stock":4,"since":{"$date":"1970-01-01T00:00:00Z"}} <nil>
}

// Parse appends to a buffer and names the place of an error.
func ExampleParse_error() {
	_, err := extjson.Parse(nil, []byte(`{"price": {"$numberDecimal": "twelve"}}`))
	fmt.Println(err)
	// Output:
	// extended JSON: $numberDecimal must be a decimal number at price (offset 29)
}
