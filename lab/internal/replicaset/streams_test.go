package replicaset_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mooringdb/mooring/lab/internal/replicaset"
)

// next returns the next event of a stream.
func next(t *testing.T, s *mongo.ChangeStream) bson.M {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if !s.Next(ctx) {
		t.Fatalf("no event: %v", s.Err())
	}
	var e bson.M
	ok(t, s.Decode(&e))
	return e
}

func kinds(t *testing.T, s *mongo.ChangeStream, n int) (all []string) {
	t.Helper()
	for range n {
		all = append(all, next(t, s)["operationType"].(string))
	}
	return all
}

func (f *fixture) watch(t *testing.T, w interface {
	Watch(context.Context, any,
		...options.Lister[options.ChangeStreamOptions]) (*mongo.ChangeStream, error)
}, pipeline mongo.Pipeline, o ...options.Lister[options.ChangeStreamOptions],
) *mongo.ChangeStream {
	t.Helper()
	s := must[*mongo.ChangeStream](t)(w.Watch(t.Context(), pipeline, o...))
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// TestStreams follows a collection, its database and the deployment through all kinds of changes.
func TestStreams(t *testing.T) {
	f := start(t, replicaset.Config{})
	c, other := f.db.Collection("c"), f.db.Collection("other")
	must[*mongo.InsertOneResult](t)(other.InsertOne(t.Context(), bson.M{"_id": 0}))
	lookup := options.ChangeStream().SetFullDocument(options.UpdateLookup)
	ofCollection := f.watch(t, c, mongo.Pipeline{}, lookup)
	ofDatabase := f.watch(t, f.db, mongo.Pipeline{})
	ofAll := f.watch(t, f.client, mongo.Pipeline{})
	if ofAll.TryNext(t.Context()) {
		t.Fatalf("an event without a change: %s", ofAll.Current)
	}

	must[*mongo.InsertManyResult](t)(c.InsertMany(t.Context(), []any{
		bson.M{"_id": 1, "a": bson.M{"b": 1, "c": 2}, "gone": 1, "list": bson.A{1, 2, 3}}, bson.M{"_id": 2},
	}))
	must[*mongo.UpdateResult](t)(c.UpdateByID(t.Context(), 1, bson.M{
		"$set": bson.M{"a.b": 5}, "$unset": bson.M{"gone": ""}, "$pop": bson.M{"list": 1},
	}))
	// nothing
	must[*mongo.UpdateResult](t)(c.UpdateByID(t.Context(), 1, bson.M{"$set": bson.M{"a.b": 5}}))
	must[*mongo.UpdateResult](t)(c.ReplaceOne(t.Context(), bson.M{"_id": 2}, bson.M{"x": 1}))
	must[*mongo.UpdateResult](t)(c.UpdateMany(t.Context(), bson.M{},
		bson.M{"$set": bson.M{"n": 1}}))
	must[*mongo.UpdateResult](t)(c.UpdateOne(t.Context(), bson.M{"_id": 3},
		bson.M{"$set": bson.M{"n": 1}}, options.UpdateOne().SetUpsert(true)))
	ok(t, c.FindOneAndDelete(t.Context(), bson.M{"_id": 3}).Err())
	must[*mongo.DeleteResult](t)(c.DeleteMany(t.Context(), bson.M{}))
	must[*mongo.InsertOneResult](t)(other.InsertOne(t.Context(), bson.M{"_id": 1}))
	ok(t, c.Drop(t.Context()))
	ok(t, f.db.Drop(t.Context()))

	if e := next(t, ofCollection); !reflect.DeepEqual(e["documentKey"],
		bson.D{{Key: "_id", Value: int32(1)}}) || e["fullDocument"] == nil {
		t.Errorf("the first event is %v", e)
	}
	next(t, ofCollection)
	e := next(t, ofCollection)
	want := bson.D{
		{Key: "updatedFields", Value: bson.D{{Key: "a.b", Value: int32(5)}}},
		{Key: "removedFields", Value: bson.A{"gone"}},
		{
			Key: "truncatedArrays", Value: bson.A{bson.D{{Key: "field", Value: "list"}, {Key: "newSize", Value: int32(2)}}},
		},
	}
	if !reflect.DeepEqual(e["updateDescription"], want) {
		t.Errorf("updateDescription is %v, want %v", e["updateDescription"], want)
	}
	if doc, present := e["fullDocument"]; !present || doc != nil {
		t.Errorf("fullDocument is %v, want null: the document is deleted", doc)
	}
	if got, want := kinds(t, ofCollection, 9), []string{
		"replace", "update", "update", "insert", "delete", "delete", "delete", "drop", "invalidate",
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("the collection: %v, want %v", got, want)
	}
	if got, want := kinds(t, ofDatabase, 15), []string{
		"insert", "insert", "update", "replace", "update", "update", "insert", "delete", "delete", "delete", "insert", "drop", "drop", "dropDatabase", "invalidate",
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("the database: %v, want %v", got, want)
	}
	if got := kinds(t, ofAll, 14); got[13] != "dropDatabase" {
		t.Errorf("the deployment: %v", got)
	}
	for ofCollection.Next(t.Context()) {
		t.Errorf("an event behind invalidate: %s", ofCollection.Current)
	}
}

// TestRename follows a collection to its new name.
func TestRename(t *testing.T) {
	f := start(t, replicaset.Config{})
	c := f.db.Collection("c")
	must[*mongo.InsertOneResult](t)(c.InsertOne(t.Context(), bson.M{"_id": 1}))
	s := f.watch(t, c, mongo.Pipeline{})
	ok(t, f.client.Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "renameCollection", Value: f.db.Name() + ".c"},
		{Key: "to", Value: f.db.Name() + ".d"},
	}).Err())
	e := next(t, s)
	if to := (bson.D{
		{Key: "db", Value: f.db.Name()}, {Key: "coll", Value: "d"},
	}); e["operationType"] != "rename" || !reflect.DeepEqual(e["to"], to) {
		t.Errorf("the event is %v", e)
	}
	if got := kinds(t, s, 1); got[0] != "invalidate" {
		t.Errorf("then %v", got)
	}
}

// TestResume goes on behind events, behind the end of a stream, and at a time.
func TestResume(t *testing.T) {
	f := start(t, replicaset.Config{})
	c := f.db.Collection("c")
	s := f.watch(t, c, mongo.Pipeline{})
	before := s.ResumeToken()
	for i := range 5 {
		must[*mongo.InsertOneResult](t)(c.InsertOne(t.Context(), bson.M{"_id": i}))
	}
	next(t, s)
	second := next(t, s)
	ok(t, c.Drop(t.Context()))
	must[*mongo.InsertOneResult](t)(c.InsertOne(t.Context(), bson.M{"_id": "new"}))
	o := options.ChangeStream
	for name, test := range map[string]struct {
		options *options.ChangeStreamOptionsBuilder
		want    any
	}{
		"resumeAfter":          {o().SetResumeAfter(second["_id"]), int32(2)},
		"startAfter":           {o().SetStartAfter(second["_id"]), int32(2)},
		"before the first":     {o().SetResumeAfter(before), int32(0)},
		"startAtOperationTime": {o().SetStartAtOperationTime(ptr(second["clusterTime"].(bson.Timestamp))), int32(1)},
	} {
		again := f.watch(t, c, mongo.Pipeline{}, test.options)
		if key := next(t, again)["documentKey"].(bson.D); key[0].Value != test.want {
			t.Errorf("%s: the next event is of %v, want %v", name, key, test.want)
		}
	}
	kinds(t, s, 4)
	invalidate := next(t, s)["_id"]
	if _, err := c.Watch(t.Context(), mongo.Pipeline{},
		o().SetResumeAfter(invalidate)); code(err) != 260 {
		t.Errorf("resumeAfter invalidate: %v, want InvalidResumeToken", err)
	}
	again := f.watch(t, c, mongo.Pipeline{}, o().SetStartAfter(invalidate))
	if e := next(t, again); e["operationType"] != "insert" {
		t.Errorf("startAfter invalidate: %v", e)
	}
	if _, err := c.Watch(t.Context(), mongo.Pipeline{},
		o().SetResumeAfter(bson.M{"_data": "8263"})); code(err) != 260 {
		t.Errorf("another server's token: %v, want InvalidResumeToken", err)
	}
}

func ptr[T any](v T) *T { return &v }

// TestHistoryLost has the oplog forget what a stream has not read.
func TestHistoryLost(t *testing.T) {
	f := start(t, replicaset.Config{LogSize: 2})
	c := f.db.Collection("c")
	s := f.watch(t, c, mongo.Pipeline{})
	token := s.ResumeToken()
	var at *bson.Timestamp
	for i := range 5 {
		session := must[*mongo.Session](t)(f.client.StartSession())
		must[*mongo.InsertOneResult](t)(c.InsertOne(mongo.NewSessionContext(t.Context(), session),
			bson.M{"_id": i}))
		if at == nil {
			at = session.OperationTime()
		}
		session.EndSession(t.Context())
	}
	_, err := c.Watch(t.Context(), mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
	if code(err) != 286 {
		t.Errorf("resume: %v, want ChangeStreamHistoryLost", err)
	}
	err = f.db.RunCommand(t.Context(), bson.D{
		{Key: "find", Value: "c"},
		{Key: "readConcern", Value: bson.M{"level": "snapshot", "atClusterTime": at}},
	}).Err()
	if code(err) != 239 {
		t.Errorf("a snapshot of then: %v, want SnapshotTooOld", err)
	}
}

// TestPipeline has streams with stages. One that takes the resume token away is an error.
func TestPipeline(t *testing.T) {
	f := start(t, replicaset.Config{})
	c := f.db.Collection("c")
	must[*mongo.InsertOneResult](t)(c.InsertOne(t.Context(), bson.M{"_id": 1, "a": bson.M{"b": 1}}))
	s := f.watch(t, c, mongo.Pipeline{
		{{Key: "$match", Value: bson.M{"operationType": "update"}}},
		{{Key: "$project", Value: bson.M{"updateDescription": 1}}},
	})
	bad := f.watch(t, c, mongo.Pipeline{{{Key: "$project", Value: bson.M{"_id": 0}}}})
	must[*mongo.InsertOneResult](t)(c.InsertOne(t.Context(), bson.M{"_id": 2}))
	must[*mongo.UpdateResult](t)(c.UpdateByID(t.Context(), 1, bson.M{"$set": bson.M{"a.b": 2}}))
	e := next(t, s)
	if fields := e["updateDescription"].(bson.D)[0].Value; !reflect.DeepEqual(fields,
		bson.D{{Key: "a.b", Value: int32(2)}}) || e["operationType"] != nil {
		t.Errorf("the event is %v", e)
	}
	if bad.Next(t.Context()) {
		t.Errorf("an event without a token: %s", bad.Current)
	}
	if err := bad.Err(); err == nil {
		t.Error("a pipeline takes the token away: no error")
	}
	if _, err := c.Watch(t.Context(),
		mongo.Pipeline{{{Key: "$group", Value: bson.M{"_id": nil}}}}); code(err) != 238 {
		t.Errorf("$group: %v, want NotImplemented", err)
	}
}

// TestAwait has a getMore wait for an event, and for its time.
func TestAwait(t *testing.T) {
	f := start(t, replicaset.Config{})
	c := f.db.Collection("c")
	s := f.watch(t, c, mongo.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(time.Hour))
	before := s.ResumeToken()
	got := make(chan bool, 1)
	go func() { got <- s.Next(context.Background()) }()
	must[*mongo.InsertOneResult](t)(f.db.Collection("other").
		InsertOne(t.Context(), bson.M{"_id": 1}))
	must[*mongo.InsertOneResult](t)(c.InsertOne(t.Context(), bson.M{"_id": 1}))
	if !<-got {
		t.Fatal(s.Err())
	}
	short := f.watch(t, c, mongo.Pipeline{},
		options.ChangeStream().SetMaxAwaitTime(time.Millisecond))
	if short.TryNext(t.Context()) || short.Err() != nil {
		t.Errorf("a getMore without events: %s, %v", short.Current, short.Err())
	}
	if token := short.ResumeToken(); token == nil || reflect.DeepEqual(token, before) {
		t.Errorf("the token without events is %s", token)
	}
}

// TestOnce sends writes twice, as a client whose replies are lost does.
func TestOnce(t *testing.T) {
	f := start(t, replicaset.Config{})
	lsid := bson.M{
		"id": bson.Binary{Subtype: 4, Data: []byte(f.db.Name() + "0123456789abcdef")[:16]},
	}
	number := int64(0)
	twice := func(command bson.D) (first bson.M) {
		t.Helper()
		number++
		command = append(command, bson.E{Key: "lsid", Value: lsid},
			bson.E{Key: "txnNumber", Value: number})
		direct := f.raw(t)
		for range 2 {
			first = direct(command)
		}
		return first
	}
	twice(bson.D{
		{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.M{"_id": 1, "n": 0}}},
	})
	r := twice(bson.D{
		{Key: "update", Value: "c"}, {
			Key: "updates", Value: bson.A{bson.M{"q": bson.M{"_id": 1}, "u": bson.M{"$inc": bson.M{"n": 1}}}},
		},
	})
	if r["nModified"] != int32(1) {
		t.Errorf("the repeated update: %v", r)
	}
	r = twice(bson.D{
		{Key: "findAndModify", Value: "c"},
		{Key: "query", Value: bson.M{"_id": 1}},
		{Key: "update", Value: bson.M{"$inc": bson.M{"n": 1}}},
		{Key: "new", Value: true},
	})
	if r["value"].(bson.D)[1].Value != int32(2) {
		t.Errorf("the repeated findAndModify: %v", r)
	}
	r = twice(bson.D{
		{Key: "delete", Value: "c"},
		{Key: "deletes", Value: bson.A{bson.M{"q": bson.M{"_id": 1}, "limit": 1}}},
	})
	if r["n"] != int32(1) {
		t.Errorf("the repeated delete: %v", r)
	}
	number = 0
	if r := twice(bson.D{
		{Key: "insert", Value: "c"}, {Key: "documents", Value: bson.A{bson.M{"_id": 9}}},
	}); r["code"] != int32(225) {
		t.Errorf("an older number: %v, want TransactionTooOld", r)
	}
}

// TestSnapshot reads a collection as it was, with a cursor, while it changes.
func TestSnapshot(t *testing.T) {
	f := start(t, replicaset.Config{})
	c := f.db.Collection("c")
	for i := range 5 {
		must[*mongo.InsertOneResult](t)(c.InsertOne(t.Context(), bson.M{"_id": i, "n": 0}))
	}
	s := must[*mongo.Session](t)(f.client.StartSession(options.Session().SetSnapshot(true)))
	defer s.EndSession(t.Context())
	ctx := mongo.NewSessionContext(t.Context(), s)
	read := func() (ids []int32) {
		t.Helper()
		var docs []struct{ ID, N int32 }
		cursor := must[*mongo.Cursor](t)(c.Find(ctx, bson.M{"n": 0},
			options.Find().SetBatchSize(2)))
		ok(t, cursor.All(ctx, &docs))
		return make([]int32, len(docs))
	}
	if got := read(); len(got) != 5 {
		t.Fatalf("%d documents, want 5", len(got))
	}
	must[*mongo.UpdateResult](t)(c.UpdateByID(t.Context(), 1, bson.M{"$set": bson.M{"n": 7}}))
	must[*mongo.DeleteResult](t)(c.DeleteOne(t.Context(), bson.M{"_id": 2}))
	must[*mongo.InsertOneResult](t)(c.InsertOne(t.Context(), bson.M{"_id": 50, "n": 0}))
	if got := read(); len(got) != 5 {
		t.Errorf("%d documents of the snapshot, want 5", len(got))
	}
	if n := len(must[[]any](t)(distinct(t, c))); n != 4 {
		t.Errorf("%d documents now, want 4", n)
	}
	ok(t, c.Drop(t.Context()))
	_, err := c.Find(ctx, bson.M{})
	if code(err) != 246 {
		t.Errorf("a snapshot of a dropped collection: %v, want SnapshotUnavailable", err)
	}
}

func distinct(t *testing.T, c *mongo.Collection) (values []any, err error) {
	err = c.Distinct(t.Context(), "_id", bson.M{"n": 0}).Decode(&values)
	return values, err
}

// raw returns a function that runs commands as they are, and returns their replies.
func (f *fixture) raw(t *testing.T) func(bson.D) bson.M {
	t.Helper()
	return func(command bson.D) bson.M {
		t.Helper()
		var reply bson.M
		err := f.db.RunCommand(t.Context(), command).Decode(&reply)
		if e, isError := errors.AsType[mongo.CommandError](err); isError {
			return bson.M{"code": e.Code}
		}
		ok(t, err)
		return reply
	}
}
