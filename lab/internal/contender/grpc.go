package contender

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Documents serves FindOne and Find of the gateway's own gRPC service over the official driver,
// BSON in and BSON out.
type Documents struct {
	mooringv1.UnimplementedDocumentServiceServer
	Client *mongo.Client
}

// FindOne passes one document on.
func (d *Documents) FindOne(
	ctx context.Context, r *mooringv1.FindOneRequest,
) (*mooringv1.FindOneResponse, error) {
	doc, err := d.Client.Database(r.GetDatabase()).Collection(r.GetCollection()).FindOne(ctx,
		filter(r.GetFilter())).Raw()
	if err != nil {
		return nil, err
	}
	return &mooringv1.FindOneResponse{Document: document(doc)}, nil
}

// Find passes all documents of a cursor on.
func (d *Documents) Find(
	ctx context.Context, r *mooringv1.FindRequest,
) (*mooringv1.FindResponse, error) {
	cursor, err := d.Client.Database(r.GetDatabase()).Collection(r.GetCollection()).
		Find(ctx, filter(r.GetFilter()), options.Find().SetLimit(r.GetLimit()))
	if err != nil {
		return nil, err
	}
	var docs []bson.Raw
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, err
	}
	out := make([]*mooringv1.Document, len(docs))
	for i, doc := range docs {
		out[i] = document(doc)
	}
	return &mooringv1.FindResponse{Documents: out}, nil
}

func filter(d *mooringv1.Document) any {
	if raw := d.GetBson(); len(raw) > 0 {
		return bson.Raw(raw)
	}
	return bson.D{}
}

func document(raw bson.Raw) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: raw}}
}
