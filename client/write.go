package client

import (
	"context"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// InsertOne inserts a document. The gateway gives it an _id, an ObjectID, if it has none.
func (c *Collection[T]) InsertOne(
	ctx context.Context, document T, options ...func(*mooringv1.InsertOneRequest),
) (*mooringv1.InsertOneResponse, error) {
	d, err := c.client.Document(document)
	if err != nil {
		return nil, err
	}
	return Call(ctx, c.client, c.client.documents.InsertOne, apply(
		&mooringv1.InsertOneRequest{Database: c.database, Collection: c.name, Document: d}, options,
	))
}

// InsertMany inserts documents. If it fails in part, Error.Result says what was inserted.
func (c *Collection[T]) InsertMany(
	ctx context.Context, documents []T, options ...func(*mooringv1.InsertManyRequest),
) (*mooringv1.InsertManyResponse, error) {
	docs, err := every(c.client, documents)
	if err != nil {
		return nil, err
	}
	return Call(ctx, c.client, c.client.documents.InsertMany, apply(&mooringv1.InsertManyRequest{
		Database: c.database, Collection: c.name, Documents: docs,
	}, options))
}

// change makes the filter and the update of a request.
func (c *Collection[T]) change(filter, update any) (
	*mooringv1.Document, *mooringv1.Update, error,
) {
	f, err := c.client.Document(filter)
	if err != nil {
		return nil, nil, err
	}
	u, err := c.client.update(update)
	return f, u, err
}

// update makes the update of a request.
func (c *Client) update(update any) (*mooringv1.Update, error) {
	if u, ok := update.(*mooringv1.Update); ok {
		return u, nil
	}
	d, err := c.Document(update)
	return &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: d}}, err
}

// UpdateOne updates the first document that matches.
func (c *Collection[T]) UpdateOne(
	ctx context.Context, filter, update any, options ...func(*mooringv1.UpdateOneRequest),
) (*mooringv1.UpdateOneResponse, error) {
	f, u, err := c.change(filter, update)
	if err != nil {
		return nil, err
	}
	return Call(ctx, c.client, c.client.documents.UpdateOne, apply(&mooringv1.UpdateOneRequest{
		Database: c.database, Collection: c.name, Filter: f, Update: u,
	}, options))
}

// UpdateMany updates all documents that match.
func (c *Collection[T]) UpdateMany(
	ctx context.Context, filter, update any, options ...func(*mooringv1.UpdateManyRequest),
) (*mooringv1.UpdateManyResponse, error) {
	f, u, err := c.change(filter, update)
	if err != nil {
		return nil, err
	}
	return Call(ctx, c.client, c.client.documents.UpdateMany, apply(&mooringv1.UpdateManyRequest{
		Database: c.database, Collection: c.name, Filter: f, Update: u,
	}, options))
}

// ReplaceOne replaces the first document that matches.
func (c *Collection[T]) ReplaceOne(
	ctx context.Context, filter any, replacement T, options ...func(*mooringv1.ReplaceOneRequest),
) (*mooringv1.ReplaceOneResponse, error) {
	f, err := c.client.Document(filter)
	if err != nil {
		return nil, err
	}
	r, err := c.client.Document(replacement)
	if err != nil {
		return nil, err
	}
	return Call(ctx, c.client, c.client.documents.ReplaceOne, apply(&mooringv1.ReplaceOneRequest{
		Database: c.database, Collection: c.name, Filter: f, Replacement: r,
	}, options))
}

// DeleteOne deletes the first document that matches.
func (c *Collection[T]) DeleteOne(
	ctx context.Context, filter any, options ...func(*mooringv1.DeleteOneRequest),
) (*mooringv1.DeleteOneResponse, error) {
	f, err := c.client.Document(filter)
	if err != nil {
		return nil, err
	}
	return Call(ctx, c.client, c.client.documents.DeleteOne, apply(
		&mooringv1.DeleteOneRequest{Database: c.database, Collection: c.name, Filter: f}, options,
	))
}

// DeleteMany deletes all documents that match.
func (c *Collection[T]) DeleteMany(
	ctx context.Context, filter any, options ...func(*mooringv1.DeleteManyRequest),
) (*mooringv1.DeleteManyResponse, error) {
	f, err := c.client.Document(filter)
	if err != nil {
		return nil, err
	}
	return Call(ctx, c.client, c.client.documents.DeleteMany, apply(
		&mooringv1.DeleteManyRequest{Database: c.database, Collection: c.name, Filter: f}, options,
	))
}

// CountDocuments returns how many documents match.
func (c *Collection[T]) CountDocuments(
	ctx context.Context, filter any, options ...func(*mooringv1.CountDocumentsRequest),
) (int64, error) {
	f, err := c.client.Document(filter)
	if err != nil {
		return 0, err
	}
	response, err := Call(ctx, c.client, c.client.documents.CountDocuments, apply(
		&mooringv1.CountDocumentsRequest{
			Database: c.database, Collection: c.name, Filter: f,
		}, options,
	))
	return response.GetCount(), err
}

// written returns the document of a response to a write, also if its write concern was not met.
func written[T any](c *Client, response interface {
	hasConcern
	GetDocument() *mooringv1.Document
}, err error,
) (T, error) {
	document, err := one[T](c, response.GetDocument(), err)
	return document, withConcern(err, response)
}

// FindOneAndUpdate updates the first document that matches, and returns it as it was before or, if
// ReturnDocument is "after", as it is now. If there is no document to return, the error is
// ErrNoDocument, also after an upsert that inserted one. If the write concern was not met, it
// returns the document and an error whose Error.Reason is WriteConcernFailed.
func (c *Collection[T]) FindOneAndUpdate(
	ctx context.Context, filter, update any, options ...func(*mooringv1.FindOneAndUpdateRequest),
) (T, error) {
	f, u, err := c.change(filter, update)
	if err != nil {
		return one[T](c.client, nil, err)
	}
	response, err := Call(ctx, c.client, c.client.documents.FindOneAndUpdate, apply(
		&mooringv1.FindOneAndUpdateRequest{
			Database: c.database, Collection: c.name, Filter: f, Update: u,
		}, options,
	))
	return written[T](c.client, response, err)
}

// FindOneAndReplace replaces the first document that matches. It returns what FindOneAndUpdate
// returns.
func (c *Collection[T]) FindOneAndReplace(
	ctx context.Context, filter any, replacement T,
	options ...func(*mooringv1.FindOneAndReplaceRequest),
) (T, error) {
	f, err := c.client.Document(filter)
	if err != nil {
		return one[T](c.client, nil, err)
	}
	r, err := c.client.Document(replacement)
	if err != nil {
		return one[T](c.client, nil, err)
	}
	response, err := Call(ctx, c.client, c.client.documents.FindOneAndReplace, apply(
		&mooringv1.FindOneAndReplaceRequest{
			Database: c.database, Collection: c.name, Filter: f, Replacement: r,
		}, options,
	))
	return written[T](c.client, response, err)
}

// FindOneAndDelete deletes the first document that matches, and returns it, or ErrNoDocument. For
// an unmet write concern see FindOneAndUpdate.
func (c *Collection[T]) FindOneAndDelete(
	ctx context.Context, filter any, options ...func(*mooringv1.FindOneAndDeleteRequest),
) (T, error) {
	f, err := c.client.Document(filter)
	if err != nil {
		return one[T](c.client, nil, err)
	}
	response, err := Call(ctx, c.client, c.client.documents.FindOneAndDelete, apply(
		&mooringv1.FindOneAndDeleteRequest{
			Database: c.database, Collection: c.name, Filter: f,
		}, options,
	))
	return written[T](c.client, response, err)
}

// BulkWrite makes several writes in one call. Make the documents of the models with
// Client.Document. If it fails in part, Error.Result says what was done.
func (c *Collection[T]) BulkWrite(
	ctx context.Context, models []*mooringv1.WriteModel,
	options ...func(*mooringv1.BulkWriteRequest),
) (*mooringv1.BulkWriteResponse, error) {
	return Call(ctx, c.client, c.client.documents.BulkWrite, apply(&mooringv1.BulkWriteRequest{
		Database: c.database, Collection: c.name, Models: models,
	}, options))
}
