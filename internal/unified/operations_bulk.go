package unified

import (
	"context"
	"fmt"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
)

var writeKinds = map[string]client.WriteKind{
	"insertOne": client.InsertOne, "updateOne": client.UpdateOne, "updateMany": client.UpdateMany,
	"replaceOne": client.ReplaceOne, "deleteOne": client.DeleteOne, "deleteMany": client.DeleteMany,
}

// model returns one of a bulk's requests.
func model(request bson.Raw) (client.WriteModel, error) {
	name := request.FirstKey()
	kind, known := writeKinds[name]
	if !known {
		return client.WriteModel{}, fmt.Errorf("there is no request %q", name)
	}
	a := &arguments{doc: document(request, name)}
	m := client.WriteModel{
		Kind: kind, Document: a.document("document"), Filter: a.document("filter"),
		Update:       a.value("update"),
		ArrayFilters: a.array("arrayFilters"), Collation: a.document("collation"),
		Hint: a.value("hint"),
		Sort: a.document("sort"), Upsert: a.bool("upsert"),
	}
	if replacement := a.document("replacement"); replacement != nil {
		m.Document = replacement
	}
	return m, a.done()
}

func bulkWrite(_ *run, c *collection, a *arguments) action {
	var models []client.WriteModel
	for _, request := range a.must("requests").documents("requests") {
		m, err := model(request)
		if err != nil && a.err == nil {
			a.err = err
		}
		models = append(models, m)
	}
	options := client.BulkWriteOptions{
		Common: c.inherit.writes(a), Ordered: a.bool("ordered"), Let: a.document("let"),
		BypassDocumentValidation: a.bool("bypassDocumentValidation"),
	}
	return func(ctx context.Context) outcome {
		res, err := c.client.BulkWrite(ctx, c.ns, models, options)
		var unconfirmed *mongoerr.WriteConcernError
		if len(res.WriteConcernErrors) > 0 {
			unconfirmed = res.WriteConcernErrors[0]
		}
		return written(err, unconfirmed, res.Acknowledged, func(b *bson.Builder) {
			b.Int64("insertedCount", res.InsertedCount).Int64("matchedCount", res.MatchedCount).
				Int64("modifiedCount", res.ModifiedCount).Int64("deletedCount", res.DeletedCount).
				Int64("upsertedCount", res.UpsertedCount)
			appendIDs(b, "insertedIds", res.InsertedIDs)
			appendIDs(b, "upsertedIds", res.UpsertedIDs)
		})
	}
}

func appendIDs(b *bson.Builder, key string, ids []client.IndexedID) {
	b.OpenDocument(key)
	for _, id := range ids {
		b.Value(strconv.Itoa(id.Index), id.ID)
	}
	b.Close()
}
