package bson_test

import (
	"fmt"

	"github.com/mooringdb/mooring/core/bson"
)

// Lookup follows a path into documents and arrays, without decoding what it passes.
func ExampleRaw_Lookup() {
	order := bson.NewBuilder(nil).
		Int32("_id", 7).
		OpenArray("lines").OpenDocument("").String("product", "fender").Int32("quantity", 2).
		Close().Close().
		Finish()
	v, ok := order.Lookup("lines", "0", "quantity")
	n, isNumber := v.AsInt64()
	fmt.Println(n, isNumber, ok)
	_, ok = order.Lookup("lines", "1")
	fmt.Println(ok)
	// Output:
	// 2 true true
	// false
}

// Validate names the first problem and where it is.
func ExampleRaw_Validate() {
	doc := bson.NewBuilder(nil).OpenDocument("product").String("name", "anch\xFFr").Close().Finish()
	fmt.Println(doc.Validate())
	// Output:
	// bson: invalid UTF-8 at product.name (offset 23)
}

// With and Without return changed copies.
func ExampleWith() {
	doc := bson.NewBuilder(nil).String("name", "anchor").Int32("stock", 4).Finish()
	changed := bson.With(doc, "stock", bson.Int32Value(3))
	for _, d := range []bson.Raw{doc, changed, bson.Without(changed, "name")} {
		v, _ := d.Lookup("stock")
		n, _ := v.AsInt64()
		fmt.Println(d.Len(), n)
	}
	// Output:
	// 2 4
	// 2 3
	// 1 3
}

// A vector is a binary with packed elements.
func ExampleNewVector() {
	v, err := bson.NewVector(bson.VectorInt8, []float64{-1, 0, 127}, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(v.Type, v.Len(), v.At(2))
	_, err = bson.NewVector(bson.VectorInt8, []float64{128}, 0)
	fmt.Println(err)
	// Output:
	// INT8 3 127
	// bson: vector element does not fit its type
}

// ParseDecimal128 keeps the digits as they are written.
func ExampleParseDecimal128() {
	d, err := bson.ParseDecimal128("12.50")
	fmt.Println(d, err)
	// Output:
	// 12.50 <nil>
}
