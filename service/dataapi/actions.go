package dataapi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// action describes one action.
type action struct {
	rpc string // that it calls
	// required and optional list the fields of the body, beside everywhere.
	required, optional []string
	run                func(ctx context.Context, c *call, in *input) error
}

// has reports whether the body of the action may have a field.
func (a *action) has(field string) bool {
	return slices.Contains(everywhere, field) || slices.Contains(a.required, field) ||
		slices.Contains(a.optional, field)
}

// actions has all actions by their names.
var actions = map[string]*action{
	"findOne": {
		rpc:      mooringv1.DocumentService_FindOne_FullMethodName,
		optional: []string{"filter", "projection", "sort"}, run: findOne,
	},
	"find": {
		rpc:      mooringv1.DocumentService_StreamFind_FullMethodName,
		optional: []string{"filter", "projection", "sort", "limit", "skip"}, run: find,
	},
	"insertOne": {
		rpc:      mooringv1.DocumentService_InsertOne_FullMethodName,
		required: []string{"document"}, run: insertOne,
	},
	"insertMany": {
		rpc:      mooringv1.DocumentService_InsertMany_FullMethodName,
		required: []string{"documents"}, run: insertMany,
	},
	"updateOne": {
		rpc:      mooringv1.DocumentService_UpdateOne_FullMethodName,
		required: []string{"filter", "update"}, optional: []string{"upsert"}, run: updateOne,
	},
	"updateMany": {
		rpc:      mooringv1.DocumentService_UpdateMany_FullMethodName,
		required: []string{"filter", "update"}, optional: []string{"upsert"}, run: updateMany,
	},
	"replaceOne": {
		rpc:      mooringv1.DocumentService_ReplaceOne_FullMethodName,
		required: []string{"filter", "replacement"}, optional: []string{"upsert"},
		run: replaceOne,
	},
	"deleteOne": {
		rpc:      mooringv1.DocumentService_DeleteOne_FullMethodName,
		required: []string{"filter"}, run: deleteOne,
	},
	"deleteMany": {
		rpc:      mooringv1.DocumentService_DeleteMany_FullMethodName,
		required: []string{"filter"}, run: deleteMany,
	},
	"aggregate": {
		rpc:      mooringv1.DocumentService_StreamAggregate_FullMethodName,
		required: []string{"pipeline"}, run: aggregate,
	},
}

// names lists the actions for an error message.
func names() string { return strings.Join(slices.Sorted(maps.Keys(actions)), ", ") }

// The limits on the documents of a response.
const (
	defaultLimit = 1000 // of a find
	maxLimit     = 50_000
)

func (c *call) documents() mooringv1.DocumentServiceClient {
	return mooringv1.NewDocumentServiceClient(c.x.Conn())
}

func findOne(ctx context.Context, c *call, in *input) error {
	found, err := c.documents().FindOne(c.in(ctx), &mooringv1.FindOneRequest{
		Database: in.database, Collection: in.collection,
		Filter: in.filter, Projection: in.projection, Sort: in.sort,
	})
	if err != nil {
		return err
	}
	return c.reply(200, func(o *output) error { //nolint:contextcheck // of the request
		o.text(`{"document":`)
		defer o.text("}")
		if found.GetDocument() == nil {
			o.text("null")
			return nil
		}
		return c.x.Work(len(found.GetDocument().GetBson()), func() error {
			return o.document(found.GetDocument())
		})
	})
}

func find(ctx context.Context, c *call, in *input) error {
	limit := int64(defaultLimit)
	if in.limit != nil && *in.limit != 0 {
		limit = *in.limit
	}
	if limit < 0 || limit > maxLimit {
		return invalid("limit", "must be a number from 1 to 50000")
	}
	return stream(ctx, c, int(limit), mooringv1.DocumentService_StreamFind_FullMethodName,
		&mooringv1.StreamFindRequest{
			Database: in.database, Collection: in.collection,
			Filter: in.filter, Projection: in.projection, Sort: in.sort,
			Limit: &limit, Skip: in.skip,
		})
}

func aggregate(ctx context.Context, c *call, in *input) error {
	return stream(ctx, c, maxLimit, mooringv1.DocumentService_StreamAggregate_FullMethodName,
		&mooringv1.StreamAggregateRequest{
			Database: in.database, Collection: &in.collection, Pipeline: in.pipeline,
		})
}

// stream writes the documents of a streaming RPC as one response, at most so many.
func stream(ctx context.Context, c *call, most int, rpc string, request proto.Message) error {
	return c.reply(200, func(o *output) error {
		o.text(`{"documents":[`)
		if _, err := c.x.Serve(c.in(ctx), rpc, request, &list{o: o, most: most}); err != nil &&
			!errors.Is(err, errEnough) {
			return err
		}
		o.text("]}")
		return nil
	})
}

// list writes the documents of a stream's messages: see inproc.Outlet.
type list struct {
	o       *output
	n, most int // documents
}

// errEnough ends a stream that has more documents than a response may have.
var errEnough = &rpcerr.Error{
	Reason: rpcerr.Canceled, Message: "the response has as many documents as it may",
}

// Header implements inproc.Outlet.
func (*list) Header(context.Context, metadata.MD) {}

// Message implements inproc.Outlet.
func (l *list) Message(_ context.Context, m any) error {
	message, _ := m.(interface { // always
		proto.Message
		GetDocuments() []*mooringv1.Document
	})
	documents := message.GetDocuments()
	fit := documents[:min(len(documents), l.most-l.n)]
	if err := l.o.x.Work(proto.Size(message), func() error { //nolint:contextcheck // a turn comes soon
		return l.o.documents(fit, l.n > 0)
	}); err != nil {
		return err
	}
	if l.n += len(fit); len(fit) < len(documents) {
		return errEnough
	}
	return nil
}

func insertOne(ctx context.Context, c *call, in *input) error {
	done, err := c.documents().InsertOne(c.in(ctx), &mooringv1.InsertOneRequest{
		Database: in.database, Collection: in.collection, Document: in.document,
	})
	if err != nil {
		return err
	}
	return c.reply(c.api.created, func(o *output) error {
		o.text(`{"insertedId":`)
		defer o.text("}")
		return o.value(done.GetInsertedId())
	})
}

func insertMany(ctx context.Context, c *call, in *input) error {
	if len(in.documents) == 0 {
		return invalid("documents", "must have at least one document")
	}
	done, err := c.documents().InsertMany(c.in(ctx), &mooringv1.InsertManyRequest{
		Database: in.database, Collection: in.collection, Documents: in.documents,
	})
	if err != nil {
		return err
	}
	return c.reply(c.api.created, func(o *output) error {
		o.text(`{"insertedIds":[`)
		defer o.text("]}")
		for i, inserted := range done.GetInsertedIds() {
			if i > 0 {
				o.text(",")
			}
			if err := o.value(inserted.GetId()); err != nil {
				return err
			}
		}
		return nil
	})
}

// updated describes the responses of updates.
type updated interface {
	GetMatchedCount() int64
	GetModifiedCount() int64
	GetUpsertedId() *mooringv1.Value
}

func (c *call) replyUpdated(done updated, err error) error {
	if err != nil {
		return err
	}
	return c.reply(200, func(o *output) error {
		o.text(`{"matchedCount":`)
		defer o.text("}")
		o.count(done.GetMatchedCount())
		o.text(`,"modifiedCount":`)
		o.count(done.GetModifiedCount())
		if done.GetUpsertedId() == nil {
			return nil
		}
		o.text(`,"upsertedId":`)
		return o.value(done.GetUpsertedId())
	})
}

func updateOne(ctx context.Context, c *call, in *input) error {
	return c.replyUpdated(c.documents().UpdateOne(c.in(ctx), &mooringv1.UpdateOneRequest{
		Database: in.database, Collection: in.collection,
		Filter: in.filter, Update: in.update, Upsert: in.upsert,
	}))
}

func updateMany(ctx context.Context, c *call, in *input) error {
	return c.replyUpdated(c.documents().UpdateMany(c.in(ctx), &mooringv1.UpdateManyRequest{
		Database: in.database, Collection: in.collection,
		Filter: in.filter, Update: in.update, Upsert: in.upsert,
	}))
}

func replaceOne(ctx context.Context, c *call, in *input) error {
	return c.replyUpdated(c.documents().ReplaceOne(c.in(ctx), &mooringv1.ReplaceOneRequest{
		Database: in.database, Collection: in.collection,
		Filter: in.filter, Replacement: in.replacement, Upsert: in.upsert,
	}))
}

func (c *call) replyDeleted(done interface{ GetDeletedCount() int64 }, err error) error {
	if err != nil {
		return err
	}
	return c.reply(200, func(o *output) error {
		o.text(`{"deletedCount":`)
		defer o.text("}")
		o.count(done.GetDeletedCount())
		return nil
	})
}

func deleteOne(ctx context.Context, c *call, in *input) error {
	return c.replyDeleted(c.documents().DeleteOne(c.in(ctx), &mooringv1.DeleteOneRequest{
		Database: in.database, Collection: in.collection, Filter: in.filter,
	}))
}

func deleteMany(ctx context.Context, c *call, in *input) error {
	return c.replyDeleted(c.documents().DeleteMany(c.in(ctx), &mooringv1.DeleteManyRequest{
		Database: in.database, Collection: in.collection, Filter: in.filter,
	}))
}
