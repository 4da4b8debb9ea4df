package extjson_test

import (
	"fmt"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

func ExampleAppend() {
	doc := bson.NewBuilder(nil).String("name", "ada").Int64("visits", 3).
		DateTime("at", 1356351330501).Finish()
	relaxed, _ := extjson.Append(nil, doc, extjson.Relaxed)
	canonical, _ := extjson.Append(nil, doc, extjson.Canonical)
	plain, _ := extjson.Append(nil, doc, extjson.Plain)
	fmt.Println(string(relaxed))
	fmt.Println(string(canonical))
	fmt.Println(string(plain))
	// Output:
	// {"name":"ada","visits":3,"at":{"$date":"2012-12-24T12:15:30.501Z"}}
	// {"name":"ada","visits":{"$numberLong":"3"},"at":{"$date":{"$numberLong":"1356351330501"}}}
	// {"name":"ada","visits":3,"at":"2012-12-24T12:15:30.501Z"}
}

func ExampleParse() {
	doc, err := extjson.Parse(nil,
		[]byte(`{"total": {"$gt": 10}, "_id": {"$oid": "56e1fc72e0c917e9c4714161"}}`))
	v, _ := bson.Raw(doc).Lookup("_id")
	id, _ := v.ObjectID()
	fmt.Println(id, err)
	_, err = extjson.Parse(nil, []byte(`{"total": {"$gt": ten}}`))
	fmt.Println(err)
	// Output:
	// 56e1fc72e0c917e9c4714161 <nil>
	// extended JSON: unexpected 't', expected a value at total.$gt (offset 18)
}

func ExampleNewReader() {
	lines := strings.NewReader("{\"n\": 1}\n{\"n\": 2}\n")
	for doc, err := range extjson.NewReader(lines, 0).All() {
		v, _ := doc.Lookup("n")
		n, _ := v.Int32()
		fmt.Println(n, err)
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
}
