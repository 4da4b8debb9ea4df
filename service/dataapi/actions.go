package dataapi

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// action describes one action.
type action struct {
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
	"findOne": {optional: []string{"filter", "projection", "sort"}, run: findOne},
	"find": {
		optional: []string{"filter", "projection", "sort", "limit", "skip"}, run: find,
	},
	"insertOne":  {required: []string{"document"}, run: insertOne},
	"insertMany": {required: []string{"documents"}, run: insertMany},
	"updateOne": {
		required: []string{"filter", "update"}, optional: []string{"upsert"}, run: updateOne,
	},
	"updateMany": {
		required: []string{"filter", "update"}, optional: []string{"upsert"}, run: updateMany,
	},
	"replaceOne": {
		required: []string{"filter", "replacement"}, optional: []string{"upsert"},
		run: replaceOne,
	},
	"deleteOne":  {required: []string{"filter"}, run: deleteOne},
	"deleteMany": {required: []string{"filter"}, run: deleteMany},
	"aggregate":  {required: []string{"pipeline"}, run: aggregate},
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
	return stream(ctx, c, int(limit), func(ctx context.Context) (
		grpc.ServerStreamingClient[mooringv1.StreamFindResponse], error,
	) {
		return c.documents().StreamFind(c.in(ctx), &mooringv1.StreamFindRequest{
			Database: in.database, Collection: in.collection,
			Filter: in.filter, Projection: in.projection, Sort: in.sort,
			Limit: &limit, Skip: in.skip,
		})
	})
}

func aggregate(ctx context.Context, c *call, in *input) error {
	return stream(ctx, c, maxLimit, func(ctx context.Context) (
		grpc.ServerStreamingClient[mooringv1.StreamAggregateResponse], error,
	) {
		return c.documents().StreamAggregate(c.in(ctx), &mooringv1.StreamAggregateRequest{
			Database: in.database, Collection: &in.collection, Pipeline: in.pipeline,
		})
	})
}

// batch describes the messages that have a part of a result.
type batch interface {
	proto.Message
	GetDocuments() []*mooringv1.Document
}

// stream writes the documents of a stream as one response, at most so many. It returns when the
// stream has ended.
func stream[M any, B interface {
	*M
	batch
}](
	ctx context.Context, c *call, most int,
	open func(context.Context) (grpc.ServerStreamingClient[M], error),
) error {
	ctx, cancel := context.WithCancel(ctx)
	from, err := open(ctx)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel()
		for err := error(nil); err == nil; { // the handler closes the cursor
			_, err = from.Recv()
		}
	}()
	return c.reply(200, func(o *output) error { //nolint:contextcheck // of the request
		o.text(`{"documents":[`)
		for n := 0; n < most; {
			m, err := from.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			documents := B(m).GetDocuments()
			documents = documents[:min(len(documents), most-n)]
			size := proto.Size(B(m))
			if err := c.x.Work(size, func() error {
				return o.documents(documents, n > 0)
			}); err != nil {
				return err
			}
			n += len(documents)
		}
		o.text("]}")
		return nil
	})
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
