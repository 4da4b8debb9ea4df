package contender

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"google.golang.org/grpc"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// messageBytes is the size of a stream's messages, as the gateway's are.
const messageBytes = 1 << 20

// Documents serves what Handler does as the gateway's own gRPC service over the official driver,
// BSON in and BSON out.
type Documents struct {
	mooringv1.UnimplementedDocumentServiceServer
	Client *mongo.Client
}

// named describes what all requests have.
type named interface {
	GetDatabase() string
	GetCollection() string
}

func (d *Documents) collection(r named) *mongo.Collection {
	return d.Client.Database(r.GetDatabase()).Collection(r.GetCollection())
}

// FindOne passes one document on.
func (d *Documents) FindOne(
	ctx context.Context, r *mooringv1.FindOneRequest,
) (*mooringv1.FindOneResponse, error) {
	doc, err := d.collection(r).FindOne(ctx, filter(r.GetFilter())).Raw()
	if err != nil {
		return nil, err
	}
	return &mooringv1.FindOneResponse{Document: document(doc)}, nil
}

// Find passes all documents of a cursor on.
func (d *Documents) Find(
	ctx context.Context, r *mooringv1.FindRequest,
) (*mooringv1.FindResponse, error) {
	cursor, err := d.collection(r).Find(ctx, filter(r.GetFilter()),
		options.Find().SetLimit(r.GetLimit()).SetBatchSize(r.GetBatchSize()))
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

// StreamFind passes the documents of a cursor on as they come.
func (d *Documents) StreamFind(
	r *mooringv1.StreamFindRequest, stream grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
) error {
	ctx := stream.Context()
	cursor, err := d.collection(r).Find(ctx, filter(r.GetFilter()),
		options.Find().SetLimit(r.GetLimit()))
	if err != nil {
		return err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	var page []*mooringv1.Document
	for size := 0; cursor.Next(ctx); {
		// Current is the driver's own, and valid as long as its batch is.
		page = append(page, document(append(bson.Raw(nil), cursor.Current...)))
		if size += len(cursor.Current); size < messageBytes {
			continue
		}
		if err := stream.Send(&mooringv1.StreamFindResponse{Documents: page}); err != nil {
			return err
		}
		page, size = nil, 0
	}
	if err := cursor.Err(); err != nil || len(page) == 0 {
		return err
	}
	return stream.Send(&mooringv1.StreamFindResponse{Documents: page})
}

// InsertOne passes a document on.
func (d *Documents) InsertOne(
	ctx context.Context, r *mooringv1.InsertOneRequest,
) (*mooringv1.InsertOneResponse, error) {
	result, err := d.collection(r).InsertOne(ctx, bson.Raw(r.GetDocument().GetBson()))
	if err != nil {
		return nil, err
	}
	id, err := value(result.InsertedID)
	return &mooringv1.InsertOneResponse{Acknowledged: true, InsertedId: id}, err
}

// InsertMany passes documents on.
func (d *Documents) InsertMany(
	ctx context.Context, r *mooringv1.InsertManyRequest,
) (*mooringv1.InsertManyResponse, error) {
	docs := make([]bson.Raw, len(r.GetDocuments()))
	for i, doc := range r.GetDocuments() {
		docs[i] = doc.GetBson()
	}
	result, err := d.collection(r).InsertMany(ctx, docs)
	if err != nil {
		return nil, err
	}
	ids := make([]*mooringv1.InsertedId, len(result.InsertedIDs))
	for i, inserted := range result.InsertedIDs {
		id, err := value(inserted)
		if err != nil {
			return nil, err
		}
		ids[i] = &mooringv1.InsertedId{Index: int64(i), Id: id}
	}
	n := int64(len(ids))
	return &mooringv1.InsertManyResponse{
		Acknowledged: true, InsertedCount: &n, InsertedIds: ids,
	}, nil
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

func value(v any) (*mooringv1.Value, error) {
	raw, err := bson.Marshal(bson.D{{Key: "v", Value: v}})
	return &mooringv1.Value{Encoding: &mooringv1.Value_Bson{Bson: raw}}, err
}
