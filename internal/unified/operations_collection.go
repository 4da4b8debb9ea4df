package unified

import (
	"context"
	"fmt"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// collectionOperations are the operations on a collection.
var collectionOperations = table[*collection]{
	"find":                   find,
	"findOne":                findOne,
	"createFindCursor":       createFindCursor,
	"createChangeStream":     watchCollection,
	"aggregate":              aggregateCollection,
	"distinct":               distinct,
	"countDocuments":         countDocuments,
	"estimatedDocumentCount": estimatedDocumentCount,
	"insertOne":              insertOne,
	"insertMany":             insertMany,
	"updateOne":              update((*client.Client).UpdateOne),
	"updateMany":             update((*client.Client).UpdateMany),
	"replaceOne":             replaceOne,
	"deleteOne":              remove((*client.Client).DeleteOne),
	"deleteMany":             remove((*client.Client).DeleteMany),
	"findOneAndUpdate":       findOneAndUpdate,
	"findOneAndReplace":      findOneAndReplace,
	"findOneAndDelete":       findOneAndDelete,
	"bulkWrite":              bulkWrite,
	"createIndex":            createIndex,
	"dropIndex":              dropIndex,
	"dropIndexes":            dropIndexes,
	"listIndexes":            listIndexes,
	"listIndexNames":         listIndexNames,
	"rename":                 renameCollection,
	"createSearchIndex":      createSearchIndex,
	"createSearchIndexes":    createSearchIndexes,
	"updateSearchIndex":      updateSearchIndex,
	"dropSearchIndex":        dropSearchIndex,
	"listSearchIndexes":      listSearchIndexes,
}

func findCursor(c *collection, a *arguments) opener {
	options := client.FindOptions{
		Common: c.inherit.reads(a),
		Filter: a.must("filter").document("filter"), Sort: a.document("sort"),
		Projection: a.document("projection"),
		Hint:       a.value("hint"), Skip: a.int64("skip"), Limit: a.int64("limit"),
		BatchSize: a.batchSize(),
		MaxTimeMS: a.int64("maxTimeMS"), Collation: a.document("collation"), Let: a.document("let"),
		AllowDiskUse: a.bool("allowDiskUse"), ShowRecordID: a.bool("showRecordId"),
		ReturnKey: a.bool("returnKey"),
		Max:       a.document("max"), Min: a.document("min"),
		NoCursorTimeout: a.bool("noCursorTimeout"),
		MaxAwaitTimeMS:  a.int64("maxAwaitTimeMS"), TimeoutMode: a.timeoutMode(),
	}
	if kind := a.cursorType(); kind != client.NonTailable {
		options.Tailable = new(true)
		if kind == client.TailableAwait {
			options.AwaitData = new(true)
		}
	}
	return func(ctx context.Context) (*cursor.Cursor, error) {
		return c.client.Find(ctx, c.ns, options)
	}
}

func find(_ *run, c *collection, a *arguments) action { return drained(findCursor(c, a)) }

func createFindCursor(_ *run, c *collection, a *arguments) action {
	return opened(findCursor(c, a))
}

func findOne(_ *run, c *collection, a *arguments) action {
	options := client.FindOptions{
		Common: c.inherit.reads(a),
		Filter: a.must("filter").document("filter"), Sort: a.document("sort"),
		Projection: a.document("projection"),
		Hint:       a.value("hint"), Skip: a.int64("skip"), MaxTimeMS: a.int64("maxTimeMS"),
		Collation: a.document("collation"), Let: a.document("let"),
	}
	return func(ctx context.Context) outcome {
		doc, found, err := c.client.FindOne(ctx, c.ns, options)
		return outcome{value: orNull(doc, found), err: err}
	}
}

func orNull(doc bson.Raw, found bool) bson.Value {
	if !found {
		return bson.NullValue()
	}
	return bson.DocumentValue(doc)
}

func aggregateCollection(_ *run, c *collection, a *arguments) action {
	return aggregate(c.client, c.ns, c.inherit, a)
}

func aggregate(c *observed, ns client.Namespace, inherit inherited, a *arguments) action {
	options := client.AggregateOptions{
		Common:   inherit.both(a),
		Pipeline: a.must("pipeline").array("pipeline"), AllowDiskUse: a.bool("allowDiskUse"),
		BatchSize: a.batchSize(), BypassDocumentValidation: a.bool("bypassDocumentValidation"),
		Collation: a.document("collation"), Hint: a.value("hint"), Let: a.document("let"),
		MaxTimeMS: a.int64("maxTimeMS"), MaxAwaitTimeMS: a.int64("maxAwaitTimeMS"),
		TimeoutMode: a.timeoutMode(),
	}
	return drained(func(ctx context.Context) (*cursor.Cursor, error) {
		return c.Aggregate(ctx, ns, options)
	})
}

func distinct(_ *run, c *collection, a *arguments) action {
	name := a.must("fieldName").text("fieldName")
	options := client.DistinctOptions{
		Common: c.inherit.reads(a),
		Filter: a.must("filter").document("filter"), Collation: a.document("collation"),
		Hint:      a.value("hint"),
		MaxTimeMS: a.int64("maxTimeMS"),
	}
	return func(ctx context.Context) outcome {
		values, err := c.client.Distinct(ctx, c.ns, name, options)
		return outcome{value: bson.ArrayValue(values), err: err}
	}
}

func countDocuments(_ *run, c *collection, a *arguments) action {
	options := client.CountDocumentsOptions{
		Common: c.inherit.reads(a),
		Filter: a.must("filter").document("filter"), Collation: a.document("collation"),
		Hint:  a.value("hint"),
		Limit: a.int64("limit"), Skip: a.int64("skip"), MaxTimeMS: a.int64("maxTimeMS"),
	}
	return func(ctx context.Context) outcome {
		n, err := c.client.CountDocuments(ctx, c.ns, options)
		return outcome{value: bson.Int64Value(n), err: err}
	}
}

func estimatedDocumentCount(_ *run, c *collection, a *arguments) action {
	options := client.EstimatedDocumentCountOptions{
		Common:    c.inherit.reads(a),
		MaxTimeMS: a.int64("maxTimeMS"),
	}
	return func(ctx context.Context) outcome {
		n, err := c.client.EstimatedDocumentCount(ctx, c.ns, options)
		return outcome{value: bson.Int64Value(n), err: err}
	}
}

// written returns the outcome of a write. A write concern error alone is an error, too.
func written(
	err error, unconfirmed *mongoerr.WriteConcernError, acknowledged bool, add func(*bson.Builder),
) outcome {
	if err == nil && unconfirmed != nil {
		err = unconfirmed
	}
	b := bson.NewBuilder(nil).Bool("acknowledged", acknowledged)
	if acknowledged {
		add(b)
	}
	return outcome{value: bson.DocumentValue(b.Finish()), err: err}
}

func insertOne(_ *run, c *collection, a *arguments) action {
	doc := a.must("document").document("document")
	options := client.InsertOneOptions{
		Common:                   c.inherit.writes(a),
		BypassDocumentValidation: a.bool("bypassDocumentValidation"),
	}
	return func(ctx context.Context) outcome {
		res, err := c.client.InsertOne(ctx, c.ns, doc, options)
		return written(err, res.WriteConcernError, res.Acknowledged, func(b *bson.Builder) {
			if !res.InsertedID.IsZero() {
				b.Value("insertedId", res.InsertedID)
			}
		})
	}
}

func insertMany(_ *run, c *collection, a *arguments) action {
	docs := a.must("documents").documents("documents")
	options := client.InsertManyOptions{
		Common:  c.inherit.writes(a),
		Ordered: a.bool("ordered"), BypassDocumentValidation: a.bool("bypassDocumentValidation"),
	}
	return func(ctx context.Context) outcome {
		res, err := c.client.InsertMany(ctx, c.ns, docs, options)
		var unconfirmed *mongoerr.WriteConcernError
		if len(res.WriteConcernErrors) > 0 {
			unconfirmed = res.WriteConcernErrors[0]
		}
		return written(err, unconfirmed, res.Acknowledged, func(b *bson.Builder) {
			b.OpenDocument("insertedIds")
			for _, inserted := range res.InsertedIDs {
				b.Value(strconv.Itoa(inserted.Index), inserted.ID)
			}
			b.Close().Int32("insertedCount", int32(len(res.InsertedIDs)))
			// as of a bulk write
			for _, other := range []string{
				"deletedCount", "matchedCount", "modifiedCount",
				"upsertedCount",
			} {
				b.Int32(other, 0)
			}
			b.OpenDocument("upsertedIds").Close()
		})
	}
}

func update(
	run1 func(*client.Client, context.Context, client.Namespace, bson.Raw, bson.Value,
		client.UpdateOptions) (client.UpdateResult, error),
) func(*run, *collection, *arguments) action {
	return func(_ *run, c *collection, a *arguments) action {
		filter, change := a.must("filter").document("filter"), a.must("update").value("update")
		options := client.UpdateOptions{
			Common:                   c.inherit.writes(a),
			ArrayFilters:             a.array("arrayFilters"),
			BypassDocumentValidation: a.bool("bypassDocumentValidation"),
			Collation:                a.document("collation"), Hint: a.value("hint"),
			Let:    a.document("let"),
			Sort:   a.document("sort"),
			Upsert: a.bool("upsert"),
		}
		return func(ctx context.Context) outcome {
			return updated(run1(c.client.Client, ctx, c.ns, filter, change, options))
		}
	}
}

func replaceOne(_ *run, c *collection, a *arguments) action {
	filter, replacement := a.must("filter").document("filter"),
		a.must("replacement").document("replacement")
	options := client.UpdateOptions{
		Common:                   c.inherit.writes(a),
		BypassDocumentValidation: a.bool("bypassDocumentValidation"),
		Collation:                a.document("collation"),
		Hint:                     a.value("hint"), Let: a.document("let"), Sort: a.document("sort"),
		Upsert: a.bool("upsert"),
	}
	return func(ctx context.Context) outcome {
		return updated(c.client.ReplaceOne(ctx, c.ns, filter, replacement, options))
	}
}

func updated(res client.UpdateResult, err error) outcome {
	return written(err, res.WriteConcernError, res.Acknowledged, func(b *bson.Builder) {
		b.Int64("matchedCount", res.MatchedCount).Int64("modifiedCount",
			res.ModifiedCount).Int64("upsertedCount", res.UpsertedCount)
		if !res.UpsertedID.IsZero() {
			b.Value("upsertedId", res.UpsertedID)
		}
	})
}

func remove(
	run1 func(*client.Client, context.Context, client.Namespace, bson.Raw,
		client.DeleteOptions) (client.DeleteResult, error),
) func(*run, *collection, *arguments) action {
	return func(_ *run, c *collection, a *arguments) action {
		filter := a.must("filter").document("filter")
		options := client.DeleteOptions{
			Common:    c.inherit.writes(a),
			Collation: a.document("collation"), Hint: a.value("hint"), Let: a.document("let"),
		}
		return func(ctx context.Context) outcome {
			res, err := run1(c.client.Client, ctx, c.ns, filter, options)
			return written(err, res.WriteConcernError, res.Acknowledged,
				func(b *bson.Builder) { b.Int64("deletedCount", res.DeletedCount) })
		}
	}
}

var returnDocuments = map[string]client.ReturnDocument{
	"": client.ReturnUnset, "Before": client.ReturnBefore, "After": client.ReturnAfter,
}

func returnDocument(a *arguments) client.ReturnDocument {
	name := a.text("returnDocument")
	which, ok := returnDocuments[name]
	if !ok && a.err == nil {
		a.err = fmt.Errorf("there is no returnDocument %q", name)
	}
	return which
}

func findOneAndUpdate(_ *run, c *collection, a *arguments) action {
	filter, change := a.must("filter").document("filter"), a.must("update").value("update")
	options := client.FindOneAndOptions{
		Common:                   c.inherit.writes(a),
		ArrayFilters:             a.array("arrayFilters"),
		BypassDocumentValidation: a.bool("bypassDocumentValidation"),
		Collation:                a.document("collation"), Hint: a.value("hint"),
		Let:       a.document("let"),
		MaxTimeMS: a.int64("maxTimeMS"), Projection: a.document("projection"),
		ReturnDocument: returnDocument(a),
		Sort:           a.document("sort"), Upsert: a.bool("upsert"),
	}
	return func(ctx context.Context) outcome {
		return foundOne(c.client.FindOneAndUpdate(ctx, c.ns, filter, change, options))
	}
}

func findOneAndReplace(_ *run, c *collection, a *arguments) action {
	filter, replacement := a.must("filter").document("filter"),
		a.must("replacement").document("replacement")
	options := client.FindOneAndOptions{
		Common:                   c.inherit.writes(a),
		BypassDocumentValidation: a.bool("bypassDocumentValidation"),
		Collation:                a.document("collation"),
		Hint:                     a.value("hint"), Let: a.document("let"),
		MaxTimeMS:  a.int64("maxTimeMS"),
		Projection: a.document("projection"), ReturnDocument: returnDocument(a),
		Sort:   a.document("sort"),
		Upsert: a.bool("upsert"),
	}
	return func(ctx context.Context) outcome {
		return foundOne(c.client.FindOneAndReplace(ctx, c.ns, filter, replacement, options))
	}
}

func findOneAndDelete(_ *run, c *collection, a *arguments) action {
	filter := a.must("filter").document("filter")
	options := client.FindOneAndOptions{
		Common:    c.inherit.writes(a),
		Collation: a.document("collation"), Hint: a.value("hint"), Let: a.document("let"),
		MaxTimeMS: a.int64("maxTimeMS"), Projection: a.document("projection"),
		Sort: a.document("sort"),
	}
	return func(ctx context.Context) outcome {
		return foundOne(c.client.FindOneAndDelete(ctx, c.ns, filter, options))
	}
}

func foundOne(res client.FindOneAndResult, err error) outcome {
	if err == nil && res.WriteConcernError != nil {
		err = res.WriteConcernError
	}
	return outcome{value: orNull(res.Document, res.Document != nil), err: err}
}

func renameCollection(_ *run, c *collection, a *arguments) action {
	to := client.Namespace{Database: c.ns.Database, Collection: a.must("to").text("to")}
	options := client.RenameCollectionOptions{
		Common: c.inherit.writes(a), DropTarget: a.bool("dropTarget"),
	}
	return func(ctx context.Context) outcome {
		return failed(c.client.RenameCollection(ctx, c.ns, to, options))
	}
}
