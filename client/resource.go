package client

import (
	"context"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Versioned represents a document with its ETag, which is empty if there is a projection, or if the
// policy hides fields.
type Versioned[T any] struct {
	Document T
	ETag     string
	// WriteConcernError says why a write is not acknowledged as its write concern asks, or is nil.
	WriteConcernError *mooringv1.WriteConcernError
}

// version returns the document of a response with its ETag.
func version[T any](c *Client, response interface {
	GetDocument() *mooringv1.Document
	GetEtag() string
}, err error,
) (Versioned[T], error) {
	document, err := one[T](c, response.GetDocument(), err)
	v := Versioned[T]{Document: document, ETag: response.GetEtag()}
	if write, ok := response.(hasConcern); ok {
		v.WriteConcernError = write.GetWriteConcernError()
	}
	return v, err
}

// Get returns the document with this _id, which Client.Value must take. If there is none,
// Error.Reason is DocumentNotFound.
func (c *Collection[T]) Get(
	ctx context.Context, id any, options ...func(*mooringv1.GetDocumentRequest),
) (Versioned[T], error) {
	v, err := c.client.Value(id)
	if err != nil {
		return Versioned[T]{}, err
	}
	response, err := Call(ctx, c.client, c.client.resources.GetDocument, apply(
		&mooringv1.GetDocumentRequest{Database: c.database, Collection: c.name, Id: v}, options,
	))
	return version[T](c.client, response, err)
}

// Put replaces the document with this _id, or creates it, and returns it as it is now. With IfMatch
// set by an option, it only replaces a document that has one of those ETags; with OnlyCreate, it
// only creates. Otherwise Error.Reason is PreconditionFailed.
func (c *Collection[T]) Put(
	ctx context.Context, id any, replacement T, options ...func(*mooringv1.PutDocumentRequest),
) (Versioned[T], error) {
	v, err := c.client.Value(id)
	if err != nil {
		return Versioned[T]{}, err
	}
	d, err := c.client.Document(replacement)
	if err != nil {
		return Versioned[T]{}, err
	}
	response, err := Call(ctx, c.client, c.client.resources.PutDocument, apply(
		&mooringv1.PutDocumentRequest{
			Database: c.database, Collection: c.name, Id: v, Replacement: d,
		}, options,
	))
	return version[T](c.client, response, err)
}

// Patch updates the document with this _id, and returns it as it is now. With IfMatch set by an
// option, it does so only if the document has one of those ETags; see Put.
func (c *Collection[T]) Patch(
	ctx context.Context, id, update any, options ...func(*mooringv1.PatchDocumentRequest),
) (Versioned[T], error) {
	v, err := c.client.Value(id)
	if err != nil {
		return Versioned[T]{}, err
	}
	u, err := c.client.update(update)
	if err != nil {
		return Versioned[T]{}, err
	}
	response, err := Call(ctx, c.client, c.client.resources.PatchDocument, apply(
		&mooringv1.PatchDocumentRequest{
			Database: c.database, Collection: c.name, Id: v, Update: u,
		}, options,
	))
	return version[T](c.client, response, err)
}

// Delete deletes the document with this _id. With IfMatch set by an option, it does so only if the
// document has one of those ETags; see Put. If Error.Reason is WriteConcernFailed, the document is
// deleted, but the write concern was not met.
func (c *Collection[T]) Delete(
	ctx context.Context, id any, options ...func(*mooringv1.DeleteDocumentRequest),
) error {
	v, err := c.client.Value(id)
	if err != nil {
		return err
	}
	response, err := Call(ctx, c.client, c.client.resources.DeleteDocument, apply(
		&mooringv1.DeleteDocumentRequest{Database: c.database, Collection: c.name, Id: v}, options,
	))
	return withConcern(err, response)
}
