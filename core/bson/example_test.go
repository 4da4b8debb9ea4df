package bson_test

import (
	"bytes"
	"fmt"

	"github.com/mooringdb/mooring/core/bson"
)

func ExampleRaw_All() {
	d := bson.NewBuilder(nil).String("find", "orders").Int32("limit", 5).Finish()
	for key, v := range d.All() {
		fmt.Println(key, v.Type)
	}
	// Output:
	// find string
	// limit int
}

func ExampleBuilder() {
	d := bson.NewBuilder(nil).
		String("name", "ada").
		OpenArray("tags").String("", "a").String("", "b").Close().
		Finish()
	v, _ := d.Lookup("tags", "1")
	s, _ := v.Str()
	fmt.Println(s, d.Validate())
	// Output: b <nil>
}

func ExampleNewReader() {
	var stream []byte
	for n := range int32(2) {
		stream = append(stream, bson.NewBuilder(nil).Int32("n", n).Finish()...)
	}
	for d, err := range bson.NewReader(bytes.NewReader(stream), 0).All() {
		v, _ := d.Lookup("n")
		n, _ := v.Int32()
		fmt.Println(n, err)
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
}
