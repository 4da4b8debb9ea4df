package bson_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// A document is bytes; values are views on them.
func Example_read() {
	order, err := extjson.Parse(nil,
		[]byte(`{"_id": 7, "lines": [{"product": "fender", "quantity": 2}], "paid": true}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	doc := bson.Raw(order)
	v, ok := doc.Lookup("lines", "0", "quantity")
	n, _ := v.AsInt64()
	fmt.Println(n, ok)
	for key, v := range doc.All() {
		fmt.Println(key, v.Type)
	}
	// Output:
	// 2 true
	// _id int
	// lines array
	// paid bool
}

// The Builder appends to a buffer that can be used again and again.
func Example_build() {
	var b bson.Builder
	buffer := make([]byte, 0, 512)
	for _, name := range []string{"anchor", "buoy"} {
		b.Reset(buffer)
		doc := b.String("name", name).
			OpenDocument("price").Double("amount", 9.5).String("currency", "EUR").Close().
			OpenArray("tags").String("", "new").Int32("", 1).Close().
			Finish()
		text, err := extjson.Append(nil, doc, extjson.Relaxed)
		fmt.Println(string(text), err)
	}
	// Output:
	// {"name":"anchor","price":{"amount":9.5,"currency":"EUR"},"tags":["new",1]} <nil>
	// {"name":"buoy","price":{"amount":9.5,"currency":"EUR"},"tags":["new",1]} <nil>
}

// A change is a copy; what is kept is not encoded again.
func Example_edit() {
	doc := bson.NewBuilder(nil).String("name", "anchor").Int32("stock", 4).String("secret", "x").
		Finish()
	doc = bson.With(doc, "stock", bson.Int32Value(3))
	doc = bson.Without(doc, "secret")
	doc = bson.PrependID(doc, "_id", bson.Int64Value(1))
	text, err := extjson.Append(nil, doc, extjson.Canonical)
	fmt.Println(string(text), err)
	// Output: {"_id":{"$numberLong":"1"},"name":"anchor","stock":{"$numberInt":"3"}} <nil>
}

// What comes from outside is validated once. Errors say where.
func Example_errors() {
	_, err := extjson.Parse(nil, []byte(`{"a": [{"at": {"$date": "yesterday"}}]}`))
	fmt.Println(err)
	if syntax, ok := errors.AsType[*extjson.SyntaxError](err); ok {
		fmt.Println(syntax.Path, syntax.Offset)
	}
	doc := bson.NewBuilder(nil).OpenDocument("a").Bool("b", true).Close().Finish()
	doc[len(doc)-3] = 7 // not a boolean
	fmt.Println(doc.Validate())
	// Output:
	// extended JSON: $date must be as in RFC 3339, with a zone at a.0.at (offset 24)
	// a.0.at 24
	// bson: boolean is neither 0 nor 1 at a.b (offset 14)
}

// NDJSON becomes concatenated BSON, one document at a time.
func Example_convert() {
	lines := strings.NewReader("{\"n\": 1}\n{\"n\": {\"$numberLong\": \"2\"}}\n")
	var out bytes.Buffer
	for doc, err := range extjson.NewReader(lines, 0).All() {
		if err != nil {
			fmt.Println(err)
			return
		}
		out.Write(doc)
	}
	for doc, err := range bson.NewReader(&out, 0).All() {
		v, _ := doc.Lookup("n")
		n, _ := v.AsInt64()
		fmt.Println(v.Type, n, err)
	}
	// Output:
	// int 1 <nil>
	// long 2 <nil>
}

func Example_decimal128() {
	price, err := bson.ParseDecimal128("19.90")
	fmt.Println(price, err)
	_, err = bson.ParseDecimal128("0.1234567890123456789012345678901234567")
	fmt.Println(errors.Is(err, bson.ErrDecimal128Inexact))
	// Output:
	// 19.90 <nil>
	// true
}

func Example_vector() {
	v, err := bson.NewVector(bson.VectorPackedBit, []float64{238, 224}, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(v.Type, v.Len(), v.At(0), v.At(3))
	value, err := v.Value()
	doc := bson.NewBuilder(nil).Value("embedding", value).Finish()
	text, _ := extjson.Append(nil, doc, extjson.Relaxed)
	fmt.Println(string(text), err)
	// Output:
	// PACKED_BIT 12 1 0
	// {"embedding":{"$binary":{"base64":"EATu4A==","subType":"09"}}} <nil>
}

func Example_uuid() {
	id, err := bson.ParseUUID("00112233-4455-6677-8899-aabbccddeeff")
	if err != nil {
		fmt.Println(err)
		return
	}
	v, err := id.Value(bson.UUIDJavaLegacy)
	subtype, data, _ := v.Binary()
	fmt.Printf("%d %x %v\n", subtype, data, err)
	_, err = v.UUID(bson.UUIDStandard)
	fmt.Println(err)
	// Output:
	// 3 7766554433221100ffeeddccbbaa9988 <nil>
	// bson: binary is not a UUID of this representation
}

func Example_dbRef() {
	doc := bson.NewBuilder(nil).Int32("$id", 7).String("$ref", "orders").Finish()
	ref, err := doc.DBRef()
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := extjson.Append(nil, ref.Document(), extjson.Relaxed)
	fmt.Println(ref.Collection, string(text), err)
	// Output: orders {"$ref":"orders","$id":7} <nil>
}
