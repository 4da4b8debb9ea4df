package clients_test

import (
	"errors"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

type order struct {
	ID       int32         `bson:"_id"`
	Customer string        `bson:"customer"`
	Cents    int64         `bson:"cents"`
	By       bson.ObjectID `bson:"by"`
}

// TestGo uses client/ with the official driver's marshaller, on each server.
func TestGo(t *testing.T) { onEachServer(t, testGo) }

func testGo(t *testing.T, on server) {
	c := client.New(on.Dial(t), client.Options{Marshal: bson.Marshal, Unmarshal: bson.Unmarshal})
	orders := client.In[order](c, on.database, "orders")
	by := bson.NewObjectID()
	var all []order
	for i := range int32(10) {
		all = append(all, order{ID: i, Customer: "Ada", Cents: 1 << 60, By: by})
	}
	inserted, err := orders.InsertMany(t.Context(), all)
	if err != nil || inserted.GetInsertedCount() != 10 {
		t.Fatalf("InsertMany = %v, %v", inserted, err)
	}
	count := 0
	for o, err := range orders.Find(t.Context(), bson.M{"by": by}, func(r *mooringv1.FindRequest) {
		r.BatchSize = proto.Int32(3)
	}) {
		if err != nil || o != all[o.ID] {
			t.Errorf("Find yields %v, %v", o, err)
		}
		count++
	}
	for o, err := range orders.Stream(t.Context(), nil) {
		if err != nil || o != all[o.ID] {
			t.Errorf("Stream yields %v, %v", o, err)
		}
		count++
	}
	for o, err := range orders.Aggregate(t.Context(), []any{bson.M{"$match": bson.M{"_id": 5}}}) {
		if err != nil || o != all[5] {
			t.Errorf("Aggregate yields %v, %v", o, err)
		}
		count++
	}
	if count != 21 {
		t.Errorf("the iterators yield %d documents, want 21", count)
	}
	set := bson.M{"$set": bson.M{"customer": "Ben"}}
	if r, err := orders.UpdateOne(t.Context(), client.JSON(`{"_id": 1}`), set); err != nil ||
		r.GetModifiedCount() != 1 {
		t.Errorf("UpdateOne = %v, %v", r, err)
	}
	if r, err := orders.UpdateMany(t.Context(), bson.M{}, set); err != nil ||
		r.GetMatchedCount() != 10 {
		t.Errorf("UpdateMany = %v, %v", r, err)
	}
	if r, err := orders.ReplaceOne(t.Context(), bson.M{"_id": 1}, all[1]); err != nil ||
		r.GetModifiedCount() != 1 {
		t.Errorf("ReplaceOne = %v, %v", r, err)
	}
	if o, err := orders.FindOneAndUpdate(t.Context(), bson.M{"_id": 1}, set); err != nil ||
		o != all[1] {
		t.Errorf("FindOneAndUpdate = %v, %v", o, err)
	}
	if r, err := orders.DeleteOne(t.Context(), bson.M{"_id": 1}); err != nil ||
		r.GetDeletedCount() != 1 {
		t.Errorf("DeleteOne = %v, %v", r, err)
	}
	if n, err := orders.CountDocuments(t.Context(), nil); err != nil || n != 9 {
		t.Errorf("CountDocuments = %v, %v", n, err)
	}
	if _, err := orders.FindOne(t.Context(), bson.M{"_id": 99}); !errors.Is(err,
		client.ErrNoDocument) {
		t.Errorf("FindOne without a match: %v", err)
	}
	ctx := t.Context()
	if on.replicaSet { // a standalone server cannot repeat a write
		ctx = client.WithIdempotencyKey(ctx, "once")
	}
	_, err = orders.InsertOne(ctx, all[2])
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != codes.AlreadyExists ||
		e.Reason != "DuplicateKey" || e.Retry != client.Never || e.Server.GetCode() != 11000 {
		t.Errorf("InsertOne of a duplicate: %v", err)
	}
	if r, err := orders.DeleteMany(t.Context(), bson.M{}); err != nil || r.GetDeletedCount() != 9 {
		t.Errorf("DeleteMany = %v, %v", r, err)
	}
}

// TestGoDocument uses the calls about one document, and those about values, on each server.
func TestGoDocument(t *testing.T) { onEachServer(t, testGoDocument) }

func testGoDocument(t *testing.T, on server) {
	ctx := t.Context()
	c := client.New(on.Dial(t), client.Options{Marshal: bson.Marshal, Unmarshal: bson.Unmarshal})
	orders := client.In[order](c, on.database, "documents")
	if _, err := orders.DeleteMany(ctx, bson.M{}); err != nil {
		t.Fatal(err)
	}
	one := order{ID: 1, Customer: "Ada", Cents: 1 << 60, By: bson.NewObjectID()}
	put, err := orders.Put(ctx, 1, one)
	if err != nil || put.Document != one || put.ETag == "" {
		t.Fatalf("Put = %+v, %v", put, err)
	}
	got, err := orders.Get(ctx, int64(1))
	if err != nil || got.Document != one || got.ETag != put.ETag {
		t.Errorf("Get = %+v, %v, want the ETag %q", got, err, put.ETag)
	}
	patched, err := orders.Patch(ctx, client.JSON("1"), bson.M{"$set": bson.M{"customer": "Ben"}})
	if err != nil || patched.Document.Customer != "Ben" || patched.ETag == put.ETag {
		t.Errorf("Patch = %+v, %v", patched, err)
	}
	if on.replicaSet { // it compares documents
		_, err = orders.Put(ctx, 1, one, func(r *mooringv1.PutDocumentRequest) {
			r.IfMatch = []string{put.ETag}
		})
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Reason != "PreconditionFailed" {
			t.Errorf("Put with an old ETag: %v", err)
		}
		_, err = orders.Patch(ctx, 1, bson.M{"$set": bson.M{"customer": "Cleo"}}, func(
			r *mooringv1.PatchDocumentRequest,
		) {
			r.IfMatch = []string{patched.ETag}
		})
		if err != nil {
			t.Errorf("Patch with the newest ETag: %v", err)
		}
	}
	if _, err := orders.InsertOne(ctx, order{ID: 2, Customer: "Dora"}); err != nil {
		t.Fatal(err)
	}
	if names, err := client.Distinct[string](ctx, orders, "customer",
		bson.M{"_id": 2}); err != nil || !slices.Equal(names, []string{"Dora"}) {
		t.Errorf("Distinct = %v, %v", names, err)
	}
	// A live server may count from statistics of a moment ago.
	if n, err := orders.EstimatedDocumentCount(ctx); err != nil || n > 2 ||
		on.replicaSet && n != 2 {
		t.Errorf("EstimatedDocumentCount = %v, %v", n, err)
	}
	if o, err := orders.FindOneAndReplace(ctx, bson.M{"_id": 2},
		order{ID: 2, Customer: "Eva"}); err != nil || o.Customer != "Dora" {
		t.Errorf("FindOneAndReplace = %v, %v", o, err)
	}
	if o, err := orders.FindOneAndDelete(ctx, bson.M{"_id": 2}); err != nil || o.Customer != "Eva" {
		t.Errorf("FindOneAndDelete = %v, %v", o, err)
	}
	if err := orders.Delete(ctx, 1); err != nil {
		t.Errorf("Delete: %v", err)
	}
	_, err = orders.Get(ctx, 1)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Reason != "DocumentNotFound" {
		t.Errorf("Get of no document: %v", err)
	}
	document, err := c.Document(order{ID: 3})
	if err != nil {
		t.Fatal(err)
	}
	insert := &mooringv1.WriteModel{
		Kind: &mooringv1.WriteModel_InsertOne{
			InsertOne: &mooringv1.InsertOneModel{Document: document},
		},
	}
	if r, err := orders.BulkWrite(ctx, []*mooringv1.WriteModel{insert}); err != nil ||
		r.GetInsertedCount() != 1 {
		t.Errorf("BulkWrite = %v, %v", r, err)
	}
	if reply, err := client.RunCommand[bson.M](ctx, c, on.database,
		bson.D{{Key: "ping", Value: 1}}); err != nil || reply["ok"] != 1.0 {
		t.Errorf("RunCommand = %v, %v", reply, err)
	}
}

// TestGoExactlyOnce gives each write a key, but for those that take none.
func TestGoExactlyOnce(t *testing.T) {
	g := startScripted(t)
	once := client.Options{Marshal: bson.Marshal, Unmarshal: bson.Unmarshal, ExactlyOnce: true}
	orders := client.In[order](client.New(g.Dial(t), once), "shop", "once")
	if _, err := orders.InsertOne(t.Context(), order{ID: 1}); err != nil {
		t.Fatal(err)
	}
	more := bson.M{"$inc": bson.M{"cents": 1}}
	if r, err := orders.UpdateOne(t.Context(), bson.M{"_id": 1}, more); err != nil ||
		r.GetModifiedCount() != 1 {
		t.Errorf("UpdateOne = %v, %v", r, err)
	}
	_, err := orders.UpdateMany(t.Context(), bson.M{}, more)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Reason != "IdempotencyKeyUnsupported" {
		t.Errorf("UpdateMany with a key: %v", err)
	}
	ctx := client.WithExactlyOnce(t.Context(), false)
	if r, err := orders.UpdateMany(ctx, bson.M{}, more); err != nil || r.GetModifiedCount() != 1 {
		t.Errorf("UpdateMany without one = %v, %v", r, err)
	}
	if o, err := orders.FindOne(t.Context(), bson.M{"_id": 1}); err != nil || o.Cents != 2 {
		t.Errorf("FindOne = %v, %v, want 2 cents", o, err)
	}
}

// TestGoWatch follows changes.
func TestGoWatch(t *testing.T) {
	g := startScripted(t)
	c := client.New(g.Dial(t), client.Options{Marshal: bson.Marshal, Unmarshal: bson.Unmarshal})
	orders := client.In[order](c, "shop", "orders")
	if _, err := orders.InsertOne(t.Context(), order{ID: 1}); err != nil {
		t.Fatal(err)
	}
	type change struct {
		OperationType string
		FullDocument  order `bson:"fullDocument"`
	}
	start := func(r *mooringv1.WatchRequest) {
		r.StartAtOperationTime = &mooringv1.Value{Encoding: &mooringv1.Value_Json{
			Json: `{"$timestamp": {"t": 1, "i": 1}}`,
		}}
	}
	n := 0
	for seen, err := range client.In[change](c, "shop", "orders").Watch(t.Context(), start) {
		n++
		if err != nil || seen.FullDocument.ID != 1 {
			t.Errorf("Watch yields %+v, %v", seen, err)
		}
		break
	}
	if n != 1 {
		t.Errorf("Watch yields %d changes", n)
	}
}
