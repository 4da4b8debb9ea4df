package driverbench

import (
	"context"
	"fmt"

	officialbson "go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
)

// withOptions returns the URI with the options of both drivers. Sessions need none.
func withOptions(uri string) string {
	return fmt.Sprintf("%s?retryReads=true&retryWrites=true&maxPoolSize=%d", uri, connections)
}

// ours adapts core/client.
type ours struct{ client *client.Client }

func openOurs(ctx context.Context, uri string) (*ours, error) {
	cfg, err := connstring.Parse(withOptions(uri))
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, err
	}
	return &ours{c}, c.Start(ctx)
}

var namespace = client.Namespace{Database: database, Collection: collection}

// findOne allocates its filter, as the official driver does.
func (o *ours) findOne(ctx context.Context, id int32) ([]byte, error) {
	filter := bson.NewBuilder(nil).Int32("_id", id).Finish()
	doc, _, err := o.client.FindOne(ctx, namespace, client.FindOptions{Filter: filter})
	return doc, err
}

func (o *ours) read(ctx context.Context, use func([]byte)) error {
	size := int32(batchSize)
	cur, err := o.client.Find(ctx, namespace, client.FindOptions{BatchSize: &size})
	if err != nil {
		return err
	}
	for batch, err := range cur.LentBatches(ctx) {
		if err != nil {
			return err
		}
		for _, doc := range batch.Documents {
			use(doc)
		}
	}
	return nil
}

func (o *ours) close(ctx context.Context) error { return o.client.Close(ctx) }

// official adapts the official driver.
type official struct {
	client     *mongo.Client
	collection *mongo.Collection
}

func openOfficial(uri string) (*official, error) {
	c, err := mongo.Connect(options.Client().ApplyURI(withOptions(uri)))
	if err != nil {
		return nil, err
	}
	return &official{c, c.Database(database).Collection(collection)}, nil
}

func (o *official) findOne(ctx context.Context, id int32) ([]byte, error) {
	return o.collection.FindOne(ctx, officialbson.D{{Key: "_id", Value: id}}).Raw()
}

func (o *official) read(ctx context.Context, use func([]byte)) error {
	cur, err := o.collection.Find(ctx, officialbson.D{}, options.Find().SetBatchSize(batchSize))
	if err != nil {
		return err
	}
	defer func() { _ = cur.Close(ctx) }()
	for cur.Next(ctx) {
		use(cur.Current)
	}
	return cur.Err()
}

func (o *official) close(ctx context.Context) error { return o.client.Disconnect(ctx) }
