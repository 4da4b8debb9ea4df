package csv_test

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/csv"
)

func ExampleDecoder() {
	const file = "name,age.int32(),address.city\nAda,36,London\nAlan,many,\nGrace,,Arlington\n"
	d := csv.NewDecoder(strings.NewReader(file), csv.Options{})
	for {
		doc, err := d.Next(nil)
		wrong, isRow := errors.AsType[*csv.Error](err)
		switch {
		case errors.Is(err, io.EOF):
			return
		case isRow && !wrong.Fatal:
			fmt.Println(err)
		case err != nil:
			panic(err)
		default:
			text, _ := extjson.Append(nil, doc, extjson.Relaxed)
			fmt.Println(string(text))
		}
	}
	// Output:
	// {"name":"Ada","age":36,"address":{"city":"London"}}
	// line 3, column 6 (age.int32()): "many" is not an integer
	// {"name":"Grace","address":{"city":"Arlington"}}
}

func ExampleEncoder() {
	columns, err := csv.ParseColumns("name,born.date(2006-01-02),likes.json()")
	if err != nil {
		panic(err)
	}
	e, err := csv.NewEncoder(columns, csv.EncoderOptions{})
	if err != nil {
		panic(err)
	}
	doc, err := extjson.Parse(nil, []byte(
		`{"name": "Ada", "born": {"$date": "1815-12-10T00:00:00Z"}, "likes": ["engines"]}`))
	if err != nil {
		panic(err)
	}
	file, err := e.AppendRow(e.AppendHeader(nil), doc)
	if err != nil {
		panic(err)
	}
	fmt.Print(string(file))
	// Output:
	// name,born.date(2006-01-02),likes.json()
	// Ada,1815-12-10,"[""engines""]"
}
