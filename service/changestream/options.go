package changestream

import (
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
)

type watchOpt = client.WatchOptions

var options = request.NewTable(
	[]proto.Message{&mooringv1.WatchRequest{}},
	nil,
	request.CommonRead(func(o *watchOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Array("pipeline", func(o *watchOpt) *bson.Array { return &o.Pipeline }),
		request.String("full_document", func(o *watchOpt) *string { return &o.FullDocument }),
		request.String("full_document_before_change",
			func(o *watchOpt) *string { return &o.FullDocumentBeforeChange }),
		request.Document("resume_after", func(o *watchOpt) *bson.Raw { return &o.ResumeAfter }),
		request.Document("start_after", func(o *watchOpt) *bson.Raw { return &o.StartAfter }),
		request.Value("start_at_operation_time",
			func(o *watchOpt) *bson.Value { return &o.StartAtOperationTime }),
		request.Bool("show_expanded_events",
			func(o *watchOpt) **bool { return &o.ShowExpandedEvents }),
		request.BatchSize(func(o *watchOpt) **int32 { return &o.BatchSize }),
		request.NonNegative("max_await_time_ms",
			func(o *watchOpt) **int64 { return &o.MaxAwaitTimeMS }),
		request.Document("collation", func(o *watchOpt) *bson.Raw { return &o.Collation }),
	),
)

// read returns what a request watches, and how.
func read(r *request.Reader, req *mooringv1.WatchRequest) (client.Namespace, client.WatchOptions) {
	ns := client.Namespace{Database: req.GetDatabase(), Collection: req.GetCollection()}
	switch {
	case req.Collection != nil && ns.Collection == "":
		r.Refuse("collection", "is empty")
	case ns.Database == "" && ns.Collection != "":
		r.Refuse("database", "is required with a collection")
	}
	return ns, options.Read(r, req)
}
