package client

import (
	"context"
	"fmt"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Distinct returns the distinct values of a field in the documents that match. V is bson.Value, or
// a type that Options.Unmarshal can decode as the field of a struct with the tag `bson:"v"`.
func Distinct[V, T any](
	ctx context.Context, c *Collection[T], field string, filter any,
	options ...func(*mooringv1.DistinctRequest),
) ([]V, error) {
	f, err := c.client.Document(filter)
	if err != nil {
		return nil, err
	}
	response, err := Call(ctx, c.client, c.client.documents.Distinct, apply(
		&mooringv1.DistinctRequest{
			Database: c.database, Collection: c.name, FieldName: field, Filter: f,
		}, options,
	))
	if err != nil {
		return nil, err
	}
	values := make([]V, len(response.GetValues()))
	for i, v := range response.GetValues() {
		if values[i], err = decodeValue[V](c.client, v); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// decodeValue reads a value of a response.
func decodeValue[V any](c *Client, from *mooringv1.Value) (V, error) {
	var wrapped struct {
		V V `bson:"v"`
	}
	if to, ok := any(&wrapped.V).(*bson.Value); ok {
		*to, _ = bson.Raw(from.GetBson()).Lookup(valueKey)
		return wrapped.V, nil
	}
	if c.options.Unmarshal == nil {
		return wrapped.V, fmt.Errorf(
			"client: a value is %T, and Options has no Unmarshal", wrapped.V)
	}
	if err := c.options.Unmarshal(from.GetBson(), &wrapped); err != nil {
		return wrapped.V, fmt.Errorf("client: unmarshal a value: %w", err)
	}
	return wrapped.V, nil
}

// EstimatedDocumentCount returns how many documents the collection has, according to its metadata.
func (c *Collection[T]) EstimatedDocumentCount(
	ctx context.Context, options ...func(*mooringv1.EstimatedDocumentCountRequest),
) (int64, error) {
	response, err := Call(ctx, c.client, c.client.documents.EstimatedDocumentCount, apply(
		&mooringv1.EstimatedDocumentCountRequest{Database: c.database, Collection: c.name},
		options,
	))
	return response.GetCount(), err
}

// RunCommand runs a command on a database, and returns the server's reply. The command is what
// Client.Document takes.
func RunCommand[T any](
	ctx context.Context, c *Client, database string, command any,
	options ...func(*mooringv1.RunCommandRequest),
) (T, error) {
	d, err := c.Document(command)
	if err != nil {
		return one[T](c, nil, err)
	}
	response, err := Call(ctx, c, c.commands.RunCommand, apply(
		&mooringv1.RunCommandRequest{Database: database, Command: d}, options,
	))
	return one[T](c, response.GetReply(), err)
}
