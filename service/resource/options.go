package resource

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
)

// This file maps the fields of requests to the options of core/client, as service/document does.

type (
	findOpt    = client.FindOptions
	findAndOpt = client.FindOneAndOptions
	deleteOpt  = client.DeleteOptions

	fields   = []protoreflect.Name
	requests = []proto.Message
)

var getOptions = request.NewTable(
	requests{&mooringv1.GetDocumentRequest{}},
	fields{"id"},
	request.CommonRead(func(o *findOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Document("filter", func(o *findOpt) *bson.Raw { return &o.Filter }),
		request.Document("projection", func(o *findOpt) *bson.Raw { return &o.Projection }),
		request.NonNegative("max_time_ms", func(o *findOpt) **int64 { return &o.MaxTimeMS }),
	),
)

var changeOptions = request.NewTable(
	requests{&mooringv1.PutDocumentRequest{}, &mooringv1.PatchDocumentRequest{}},
	fields{"id", "filter", "replacement", "update", "if_match", "only_create"},
	request.CommonWrite(func(o *findAndOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Array("array_filters", func(o *findAndOpt) *bson.Array { return &o.ArrayFilters }),
		request.Bool("bypass_document_validation",
			func(o *findAndOpt) **bool { return &o.BypassDocumentValidation }),
		request.Document("let", func(o *findAndOpt) *bson.Raw { return &o.Let }),
		request.Document("projection", func(o *findAndOpt) *bson.Raw { return &o.Projection }),
	),
)

var deleteOptions = request.NewTable(
	requests{&mooringv1.DeleteDocumentRequest{}},
	fields{"id", "filter", "if_match"},
	request.CommonWrite(func(o *deleteOpt) *client.Common { return &o.Common }),
)
