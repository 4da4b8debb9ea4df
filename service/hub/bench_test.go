package hub

import (
	"fmt"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/match"
)

// BenchmarkFilters decides about an event for 1,000 subscribers, each with another filter or few of
// them with equal ones, and for one filter of all. One in a hundred filters keeps the event.
func BenchmarkFilters(b *testing.B) {
	document := bson.NewBuilder(nil).Int32("_id", 7).Int32("shop", 42).String("status", "open").
		Double("total", 12.5).OpenDocument("customer").String("name", "Ada").
		String("country", "pt").Close().OpenArray("lines")
	for i := range 5 {
		document.OpenDocument("").Int32("article", int32(i)).Int32("count", 3).Close()
	}
	event := bson.NewBuilder(nil).Document("_id", tokenAt(2, true)).
		String("operationType", "insert").
		OpenDocument("ns").String("db", "shop").String("coll", "orders").Close().
		OpenDocument("documentKey").Int32("_id", 7).Close().
		Document("fullDocument", document.Close().Finish()).Finish()
	for _, filters := range []int{1000, 50, 1} {
		b.Run(fmt.Sprint(filters), func(b *testing.B) {
			h := New(Config{Account: &ledger{limit: 1 << 30}, RingBytes: 1 << 20})
			defer h.Close()
			f := newFeed(h, Key{}, nil)
			f.begin(nil)
			for i := range 1000 {
				f.joinLocked(shopFilter(b, i%filters))
			}
			b.ReportAllocs()
			for b.Loop() {
				f.add(Batch{Events: []bson.Raw{event}})
			}
			perFilter := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(filters)
			b.ReportMetric(perFilter, "ns/filter")
		})
	}
}

// shopFilter returns a filter of the events of one shop of a hundred.
func shopFilter(b *testing.B, i int) Filter {
	b.Helper()
	filter := bson.NewBuilder(nil).Int32("fullDocument.shop", int32(i%100)).
		OpenDocument("fullDocument.status").OpenArray("$in").String("", "open").String("", "paid").
		Close().Close().
		OpenDocument("fullDocument.total").Double("$gte", float64(i)/1000).Close().Finish()
	compiled, err := match.Compile(filter)
	if err != nil {
		b.Fatal(err)
	}
	return Filter{Text: string(filter), Match: func(event bson.Raw) bool {
		return compiled.Match(event) != match.No
	}}
}
