package document

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
)

// This file maps the fields of requests to the options of core/client: a table for each operation,
// a row for each option. The second argument of a table names the fields that the handler reads.

type (
	findOpt      = client.FindOptions
	aggregateOpt = client.AggregateOptions
	distinctOpt  = client.DistinctOptions
	countOpt     = client.CountDocumentsOptions
	estimateOpt  = client.EstimatedDocumentCountOptions
	insertOneOpt = client.InsertOneOptions
	insertOpt    = client.InsertManyOptions
	updateOpt    = client.UpdateOptions
	deleteOpt    = client.DeleteOptions
	bulkOpt      = client.BulkWriteOptions
	findAndOpt   = client.FindOneAndOptions

	fields   = []protoreflect.Name
	requests = []proto.Message
)

var findOptions = request.NewTable(
	requests{
		&mooringv1.FindRequest{}, &mooringv1.StreamFindRequest{}, &mooringv1.FindOneRequest{},
		&mooringv1.ExplainFindRequest{},
	},
	fields{"verbosity"},
	request.CommonRead(func(o *findOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Document("filter", func(o *findOpt) *bson.Raw { return &o.Filter }),
		request.Keys("sort", func(o *findOpt) *bson.Raw { return &o.Sort }),
		request.Document("projection", func(o *findOpt) *bson.Raw { return &o.Projection }),
		request.Hint(func(o *findOpt) *bson.Value { return &o.Hint }),
		request.NonNegative("skip", func(o *findOpt) **int64 { return &o.Skip }),
		request.Int64("limit", func(o *findOpt) **int64 { return &o.Limit }),
		request.BatchSize(func(o *findOpt) **int32 { return &o.BatchSize }),
		request.NonNegative("max_time_ms", func(o *findOpt) **int64 { return &o.MaxTimeMS }),
		request.NonNegative("max_await_time_ms",
			func(o *findOpt) **int64 { return &o.MaxAwaitTimeMS }),
		request.Keys("min", func(o *findOpt) *bson.Raw { return &o.Min }),
		request.Keys("max", func(o *findOpt) *bson.Raw { return &o.Max }),
		request.Bool("return_key", func(o *findOpt) **bool { return &o.ReturnKey }),
		request.Bool("show_record_id", func(o *findOpt) **bool { return &o.ShowRecordID }),
		request.Bool("tailable", func(o *findOpt) **bool { return &o.Tailable }),
		request.Bool("await_data", func(o *findOpt) **bool { return &o.AwaitData }),
		request.Bool("no_cursor_timeout", func(o *findOpt) **bool { return &o.NoCursorTimeout }),
		request.Bool("allow_partial_results",
			func(o *findOpt) **bool { return &o.AllowPartialResults }),
		request.Bool("allow_disk_use", func(o *findOpt) **bool { return &o.AllowDiskUse }),
		request.Document("collation", func(o *findOpt) *bson.Raw { return &o.Collation }),
		request.Document("let", func(o *findOpt) *bson.Raw { return &o.Let }),
	),
)

var aggregateOptions = request.NewTable(
	requests{
		&mooringv1.AggregateRequest{}, &mooringv1.StreamAggregateRequest{},
		&mooringv1.ExplainAggregateRequest{},
	},
	fields{"verbosity"},
	request.CommonRead(func(o *aggregateOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.WriteConcern(func(o *aggregateOpt) *client.Common { return &o.Common }),
		request.Array("pipeline", func(o *aggregateOpt) *bson.Array { return &o.Pipeline }),
		request.Bool("allow_disk_use", func(o *aggregateOpt) **bool { return &o.AllowDiskUse }),
		request.BatchSize(func(o *aggregateOpt) **int32 { return &o.BatchSize }),
		request.Bool("bypass_document_validation",
			func(o *aggregateOpt) **bool { return &o.BypassDocumentValidation }),
		request.Document("collation", func(o *aggregateOpt) *bson.Raw { return &o.Collation }),
		request.Hint(func(o *aggregateOpt) *bson.Value { return &o.Hint }),
		request.Document("let", func(o *aggregateOpt) *bson.Raw { return &o.Let }),
		request.NonNegative("max_time_ms", func(o *aggregateOpt) **int64 { return &o.MaxTimeMS }),
		request.NonNegative("max_await_time_ms",
			func(o *aggregateOpt) **int64 { return &o.MaxAwaitTimeMS }),
	),
)

var distinctOptions = request.NewTable(
	requests{&mooringv1.DistinctRequest{}},
	fields{"field_name"},
	request.CommonRead(func(o *distinctOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Document("filter", func(o *distinctOpt) *bson.Raw { return &o.Filter }),
		request.Document("collation", func(o *distinctOpt) *bson.Raw { return &o.Collation }),
		request.Hint(func(o *distinctOpt) *bson.Value { return &o.Hint }),
		request.NonNegative("max_time_ms", func(o *distinctOpt) **int64 { return &o.MaxTimeMS }),
	),
)

var countOptions = request.NewTable(
	requests{&mooringv1.CountDocumentsRequest{}},
	nil,
	request.CommonRead(func(o *countOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Document("filter", func(o *countOpt) *bson.Raw { return &o.Filter }),
		request.Document("collation", func(o *countOpt) *bson.Raw { return &o.Collation }),
		request.Hint(func(o *countOpt) *bson.Value { return &o.Hint }),
		request.Int64("limit", func(o *countOpt) **int64 { return &o.Limit }),
		request.NonNegative("skip", func(o *countOpt) **int64 { return &o.Skip }),
		request.NonNegative("max_time_ms", func(o *countOpt) **int64 { return &o.MaxTimeMS }),
	),
)

var estimateOptions = request.NewTable(
	requests{&mooringv1.EstimatedDocumentCountRequest{}},
	nil,
	request.CommonRead(func(o *estimateOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.NonNegative("max_time_ms", func(o *estimateOpt) **int64 { return &o.MaxTimeMS }),
	),
)

var insertOneOptions = request.NewTable(
	requests{&mooringv1.InsertOneRequest{}},
	fields{"document"},
	request.CommonWrite(func(o *insertOneOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Bool("bypass_document_validation",
			func(o *insertOneOpt) **bool { return &o.BypassDocumentValidation }),
	),
)

var insertManyOptions = request.NewTable(
	requests{&mooringv1.InsertManyRequest{}, &mooringv1.ImportRequest{}},
	fields{"documents", "return_partial_success"},
	request.CommonWrite(func(o *insertOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Bool("ordered", func(o *insertOpt) **bool { return &o.Ordered }),
		request.Bool("bypass_document_validation",
			func(o *insertOpt) **bool { return &o.BypassDocumentValidation }),
	),
)

var updateOptions = request.NewTable(
	requests{
		&mooringv1.UpdateOneRequest{},
		&mooringv1.UpdateManyRequest{},
		&mooringv1.ReplaceOneRequest{},
	},
	fields{"filter", "update", "replacement"},
	request.CommonWrite(func(o *updateOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Array("array_filters", func(o *updateOpt) *bson.Array { return &o.ArrayFilters }),
		request.Bool("bypass_document_validation",
			func(o *updateOpt) **bool { return &o.BypassDocumentValidation }),
		request.Document("collation", func(o *updateOpt) *bson.Raw { return &o.Collation }),
		request.Hint(func(o *updateOpt) *bson.Value { return &o.Hint }),
		request.Document("let", func(o *updateOpt) *bson.Raw { return &o.Let }),
		request.Keys("sort", func(o *updateOpt) *bson.Raw { return &o.Sort }),
		request.Bool("upsert", func(o *updateOpt) **bool { return &o.Upsert }),
	),
)

var deleteOptions = request.NewTable(
	requests{&mooringv1.DeleteOneRequest{}, &mooringv1.DeleteManyRequest{}},
	fields{"filter"},
	request.CommonWrite(func(o *deleteOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Document("collation", func(o *deleteOpt) *bson.Raw { return &o.Collation }),
		request.Hint(func(o *deleteOpt) *bson.Value { return &o.Hint }),
		request.Document("let", func(o *deleteOpt) *bson.Raw { return &o.Let }),
	),
)

var findOneAndOptions = request.NewTable(
	requests{
		&mooringv1.FindOneAndUpdateRequest{},
		&mooringv1.FindOneAndReplaceRequest{},
		&mooringv1.FindOneAndDeleteRequest{},
	},
	fields{"filter", "update", "replacement"},
	request.CommonWrite(func(o *findAndOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Array("array_filters", func(o *findAndOpt) *bson.Array { return &o.ArrayFilters }),
		request.Bool("bypass_document_validation",
			func(o *findAndOpt) **bool { return &o.BypassDocumentValidation }),
		request.Document("collation", func(o *findAndOpt) *bson.Raw { return &o.Collation }),
		request.Hint(func(o *findAndOpt) *bson.Value { return &o.Hint }),
		request.Document("let", func(o *findAndOpt) *bson.Raw { return &o.Let }),
		request.NonNegative("max_time_ms", func(o *findAndOpt) **int64 { return &o.MaxTimeMS }),
		request.Document("projection", func(o *findAndOpt) *bson.Raw { return &o.Projection }),
		request.Word("return_document",
			func(o *findAndOpt) *client.ReturnDocument { return &o.ReturnDocument },
			(*request.Reader).ReturnDocument),
		request.Keys("sort", func(o *findAndOpt) *bson.Raw { return &o.Sort }),
		request.Bool("upsert", func(o *findAndOpt) **bool { return &o.Upsert }),
	),
)

var bulkOptions = request.NewTable(
	requests{&mooringv1.BulkWriteRequest{}},
	fields{"models", "return_partial_success", "verbose_results"},
	request.CommonWrite(func(o *bulkOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Document("let", func(o *bulkOpt) *bson.Raw { return &o.Let }),
		request.Bool("ordered", func(o *bulkOpt) **bool { return &o.Ordered }),
		request.Bool("bypass_document_validation",
			func(o *bulkOpt) **bool { return &o.BypassDocumentValidation }),
	),
)
