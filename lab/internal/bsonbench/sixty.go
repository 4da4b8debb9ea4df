package bsonbench

import (
	"fmt"
	"math/rand/v2"

	"github.com/mooringdb/mooring/core/bson"
)

// sixty returns a page of documents with 60 fields of ten kinds, about 1 KB each: documents of one
// collection have the same keys and types, and other values.
func sixty() []bson.Raw {
	r := rand.New(rand.NewPCG(60, 1))
	docs := make([]bson.Raw, 100)
	for i := range docs {
		docs[i] = sixtyFields(r)
	}
	return docs
}

var words = []string{
	"shipped", "Grace Hopper", "DE", "ada@example.com", "Gdańsk", "standard", "1 \"Harbor\" St",
	"express", "credit card", "EUR", "returned to sender", "A-1042",
}

func sixtyFields(r *rand.Rand) bson.Raw {
	word := func() string { return words[r.IntN(len(words))] }
	id := func() (id bson.ObjectID) {
		for i := range id {
			id[i] = byte(r.Uint32())
		}
		return id
	}
	b := bson.NewBuilder(nil).ObjectID("_id", id())
	for i := 1; i < 60; i++ {
		key := fmt.Sprintf("%s%d", [...]string{
			"ref", "name", "count", "price", "placed", "paid", "status", "views", "share", "note",
		}[i%10], i/10)
		switch i % 10 {
		case 0:
			b.ObjectID(key, id())
		case 1, 6:
			b.String(key, word())
		case 2:
			b.Int32(key, r.Int32N(1000))
		case 3:
			b.Double(key, float64(r.IntN(100_000))/100)
		case 4:
			b.DateTime(key, 1_700_000_000_000+r.Int64N(100_000_000_000))
		case 5:
			b.Bool(key, r.IntN(2) == 1)
		case 7:
			b.Int64(key, r.Int64N(1<<40))
		case 8:
			b.Double(key, r.Float64())
		case 9:
			b.Null(key)
		}
	}
	return b.Finish()
}
