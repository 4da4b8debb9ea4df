package unified

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
)

// namespacedModel returns one of the models of a client's bulk write.
func namespacedModel(request bson.Raw) (client.NamespacedWriteModel, error) {
	kind := request.FirstKey()
	doc := document(request, kind)
	database, collection, ok := strings.Cut(text(doc, "namespace"), ".")
	if !ok {
		return client.NamespacedWriteModel{}, fmt.Errorf("the model %s has no namespace", kind)
	}
	m, err := model(bson.NewBuilder(nil).Document(kind, bson.Without(doc, "namespace")).Finish())
	return client.NamespacedWriteModel{
		Namespace:  client.Namespace{Database: database, Collection: collection},
		WriteModel: m,
	}, err
}

func clientBulkWrite(_ *run, c *observed, a *arguments) action {
	var models []client.NamespacedWriteModel
	for _, request := range a.must("models").documents("models") {
		m, err := namespacedModel(request)
		if err != nil && a.err == nil {
			a.err = err
		}
		models = append(models, m)
	}
	options := client.NamespacedBulkWriteOptions{
		Common: inherited{}.writes(a), Ordered: a.bool("ordered"), Let: a.document("let"),
		BypassDocumentValidation: a.bool("bypassDocumentValidation"),
		VerboseResults:           a.bool("verboseResults"),
	}
	if concern := a.document("writeConcern"); concern != nil {
		wc, err := newWriteConcern(concern)
		if err != nil && a.err == nil {
			a.err = err
		}
		options.WriteConcern = wc
	}
	return func(ctx context.Context) outcome {
		res, err := c.ClientBulkWrite(ctx, models, options)
		if err != nil && !res.AnySucceeded {
			return failed(err)
		}
		return written(err, nil, res.Acknowledged, func(b *bson.Builder) {
			b.Int64("insertedCount", res.InsertedCount).Int64("matchedCount", res.MatchedCount).
				Int64("modifiedCount", res.ModifiedCount).Int64("deletedCount", res.DeletedCount).
				Int64("upsertedCount", res.UpsertedCount)
			if res.Verbose {
				appendResults(b, res)
			}
		})
	}
}

// appendResults appends the results of each model, by its number.
func appendResults(b *bson.Builder, res client.NamespacedBulkWriteResult) {
	b.OpenDocument("insertResults")
	for _, one := range res.InsertResults {
		b.OpenDocument(strconv.Itoa(one.Index)).Value("insertedId", one.ID).Close()
	}
	b.Close().OpenDocument("updateResults")
	for _, one := range res.UpdateResults {
		b.OpenDocument(strconv.Itoa(one.Index)).Int64("matchedCount", one.MatchedCount).
			Int64("modifiedCount", one.ModifiedCount)
		if !one.UpsertedID.IsZero() {
			b.Value("upsertedId", one.UpsertedID)
		}
		b.Close()
	}
	b.Close().OpenDocument("deleteResults")
	for _, one := range res.DeleteResults {
		b.OpenDocument(strconv.Itoa(one.Index)).Int64("deletedCount", one.DeletedCount).Close()
	}
	b.Close()
}
