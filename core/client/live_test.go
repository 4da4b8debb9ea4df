package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// TestLive runs the helpers on the server of MOORING_TEST_URI, which may be of any kind.
func TestLive(t *testing.T) {
	uri := os.Getenv("MOORING_TEST_URI")
	if uri == "" {
		t.Skip("MOORING_TEST_URI is not set")
	}
	c := startURI(t, uri, client.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ns := client.Namespace{Database: "mooring_client", Collection: "live"}
	drop := func() {
		_, _ = c.RunCommand(ctx, ns.Database, doc(t, `{"dropDatabase":1}`),
			client.RunCommandOptions{})
	}
	drop()
	defer drop()

	docs := make([]bson.Raw, 1000)
	for i := range docs {
		docs[i] = doc(t, fmt.Sprintf(`{"i":%d,"even":%v}`, i, i%2 == 0))
	}
	inserted, err := c.InsertMany(ctx, ns, docs, client.InsertManyOptions{})
	if err != nil || len(inserted.InsertedIDs) != len(docs) {
		t.Fatalf("InsertMany() = %d ids, %v", len(inserted.InsertedIDs), err)
	}
	_, err = c.InsertOne(ctx, ns, bson.PrependID(doc(t, `{}`), "_id", inserted.InsertedIDs[7].ID),
		client.InsertOneOptions{})
	if mongoerr.Code(err) != 11000 {
		t.Errorf("InsertOne() of a duplicate = %v, want 11000", err)
	}

	for _, mode := range []client.TimeoutMode{client.CursorLifetime, client.Iteration} {
		cur, err := c.Find(ctx, ns, client.FindOptions{
			Sort: doc(t, `{"i":1}`), BatchSize: new(int32(300)), Limit: new(int64(700)),
			TimeoutMode: mode,
		})
		if err != nil {
			t.Fatalf("Find() = %v", err)
		}
		n := 0
		for b, err := range cur.Batches(ctx) {
			if err != nil {
				t.Fatalf("Batches() = %v", err)
			}
			n += len(b.Documents)
		}
		if n != 700 || !cur.Done() {
			t.Errorf("%d documents, want 700", n)
		}
	}
	cur, err := c.Find(ctx, ns,
		client.FindOptions{BatchSize: new(int32(1)), TimeoutMode: client.Iteration})
	if err != nil {
		t.Fatalf("Find() = %v", err)
	}
	state := cur.State()
	_ = cur.Close(ctx)
	if _, err := c.ContinueCursor(state).Next(ctx); mongoerr.Code(err) != 43 {
		t.Errorf("Next() on a killed cursor = %v, want 43", err)
	}

	if n, err := c.CountDocuments(ctx, ns,
		client.CountDocumentsOptions{Filter: doc(t, `{"even":true}`)}); n != 500 || err != nil {
		t.Errorf("CountDocuments() = %d, %v, want 500", n, err)
	}
	if n, err := c.EstimatedDocumentCount(ctx, ns,
		client.EstimatedDocumentCountOptions{}); n != 1000 || err != nil {
		t.Errorf("EstimatedDocumentCount() = %d, %v, want 1000", n, err)
	}
	// Without a deadline: FerretDB v1 does not know maxTimeMS here.
	if v, err := c.Distinct(t.Context(), ns, "even", client.DistinctOptions{}); v.Len() != 2 ||
		err != nil {
		t.Errorf("Distinct() = %d values, %v, want 2", v.Len(), err)
	}
	res, err := c.UpdateMany(ctx, ns, doc(t, `{"i":{"$lt":10}}`),
		bson.DocumentValue(doc(t, `{"$set":{"low":true}}`)), client.UpdateOptions{})
	if err != nil || res.MatchedCount != 10 || res.ModifiedCount != 10 {
		t.Errorf("UpdateMany() = %+v, %v, want 10", res, err)
	}
	res, err = c.ReplaceOne(ctx, ns, doc(t, `{"_id":"new"}`), doc(t, `{"i":-1}`),
		client.UpdateOptions{Upsert: new(true)})
	if id, _ := res.UpsertedID.Str(); err != nil || id != "new" || res.MatchedCount != 0 ||
		res.UpsertedCount != 1 {
		t.Errorf("ReplaceOne() = %+v, %v, want an upsert", res, err)
	}
	one, err := c.FindOneAndUpdate(ctx, ns, doc(t, `{"_id":"new"}`),
		bson.DocumentValue(doc(t, `{"$inc":{"i":-1}}`)),
		client.FindOneAndOptions{ReturnDocument: client.ReturnAfter})
	if err != nil || text(t, one.Document) != `{"_id":"new","i":-2}` {
		t.Errorf("FindOneAndUpdate() = %s, %v", text(t, one.Document), err)
	}
	if del, err := c.DeleteMany(ctx, ns, doc(t, `{"i":{"$lt":0}}`),
		client.DeleteOptions{}); err != nil || del.DeletedCount != 1 {
		t.Errorf("DeleteMany() = %+v, %v, want 1", del, err)
	}
	if _, err := c.InsertOne(ctx, ns, doc(t, `{"_id":"quiet"}`),
		client.InsertOneOptions{Common: client.Common{WriteConcern: unacknowledged}}); err != nil {
		t.Errorf("InsertOne() with w: 0 = %v", err)
	}
	_, err = c.RunCommand(ctx, ns.Database, doc(t, `{"noSuchCommand":1}`),
		client.RunCommandOptions{})
	if mongoerr.Code(err) != 59 {
		t.Errorf("RunCommand() = %v, want 59", err)
	}
	short, stop := context.WithCancel(ctx)
	stop()
	if err := c.Ping(short); !errors.Is(err, context.Canceled) {
		t.Errorf("Ping() = %v, want Canceled", err)
	}
}
