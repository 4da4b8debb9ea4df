package document_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/document"
	"github.com/mooringdb/mooring/service/request"
)

// BenchmarkFindOneOptions reads the options of a findOne that has a filter alone.
func BenchmarkFindOneOptions(b *testing.B) {
	filter := bson.NewBuilder(nil).Int32("total", 10).Finish()
	req := &mooringv1.FindOneRequest{
		Database: "shop", Collection: "orders",
		Filter: &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: filter}},
	}
	ctx := &call.Context{Context: b.Context()}
	b.ReportAllocs()
	for b.Loop() {
		document.FindOptions.Read(request.Read(ctx, req, nil), req)
	}
}
