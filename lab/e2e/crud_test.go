package e2e

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// TestGRPC is one story through every call: each step sees what the ones before it left.
func TestGRPC(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	conn := g.Dial(t)
	documents := mooringv1.NewDocumentServiceClient(conn)
	commands := mooringv1.NewCommandServiceClient(conn)
	ctx := t.Context()
	const collection = "things"

	one, err := documents.InsertOne(ctx, &mooringv1.InsertOneRequest{
		Database: db, Collection: collection,
		Document: document(t, fields("_id", int32(1), "kind", "a", "n", int32(1))),
	})
	if err != nil || !one.GetAcknowledged() {
		t.Fatalf("InsertOne() = %v, %v", one, err)
	}
	if id := bson.Raw(one.GetInsertedId().GetBson()).Lookup("v"); id.Int32() != 1 {
		t.Errorf("InsertOne() gives the _id %v, want 1", id)
	}
	many, err := documents.InsertMany(ctx, &mooringv1.InsertManyRequest{
		Database: db, Collection: collection, Documents: []*mooringv1.Document{
			document(t, fields("_id", int32(2), "kind", "b", "n", int32(2))),
			document(t, fields("_id", int32(3), "kind", "a", "n", int32(3))),
			document(t, fields("kind", "without an _id", "n", int32(4))),
		},
	})
	if err != nil || many.GetInsertedCount() != 3 || len(many.GetInsertedIds()) != 3 {
		t.Fatalf("InsertMany() = %v, %v, want three inserted", many, err)
	}
	made := bson.Raw(many.GetInsertedIds()[2].GetId().GetBson()).Lookup("v")
	if made.Type != bson.TypeObjectID {
		t.Errorf("InsertMany() made the _id %v, want an ObjectID", made)
	}

	found, err := documents.FindOne(ctx, &mooringv1.FindOneRequest{
		Database: db, Collection: collection, Filter: document(t, fields("_id", int32(2))),
	})
	if want := raw(t, fields("_id", int32(2), "kind", "b", "n", int32(2))); err != nil ||
		!bytes.Equal(found.GetDocument().GetBson(), want) {
		t.Errorf("FindOne() = %v, %v, want %v", found, err, want)
	}
	none, err := documents.FindOne(ctx, &mooringv1.FindOneRequest{
		Database: db, Collection: collection, Filter: document(t, fields("_id", int32(99))),
	})
	if err != nil || none.GetDocument() != nil {
		t.Errorf("FindOne() without a match = %v, %v, want no document and no error", none, err)
	}
	page, err := documents.Find(ctx, &mooringv1.FindRequest{
		Database: db, Collection: collection,
		Filter:     document(t, fields("_id", fields("$lt", int32(10)))),
		Sort:       document(t, fields("_id", int32(-1))),
		Projection: document(t, fields("n", int32(1))),
		Skip:       new(int64(1)), Limit: new(int64(2)),
	})
	if err != nil || !slices.Equal(ids(page.GetDocuments()), []int32{2, 1}) || page.Cursor != nil {
		t.Errorf("Find() = %v, %v, want 2 and 1 and no cursor", page, err)
	}

	count, err := documents.CountDocuments(ctx, &mooringv1.CountDocumentsRequest{
		Database: db, Collection: collection, Filter: document(t, fields("kind", "a")),
	})
	if err != nil || count.GetCount() != 2 {
		t.Errorf("CountDocuments() = %v, %v, want 2", count, err)
	}
	estimate, err := documents.EstimatedDocumentCount(ctx,
		&mooringv1.EstimatedDocumentCountRequest{Database: db, Collection: collection})
	if err != nil || estimate.GetCount() != 4 && countsExactly() {
		t.Errorf("EstimatedDocumentCount() = %v, %v, want 4", estimate, err)
	}
	distinct, err := documents.Distinct(ctx, &mooringv1.DistinctRequest{
		Database: db, Collection: collection, FieldName: "kind",
		Filter: document(t, fields("_id", fields("$lt", int32(10)))),
	})
	if err != nil || len(distinct.GetValues()) != 2 {
		t.Errorf("Distinct() = %v, %v, want a and b", distinct, err)
	}

	updated, err := documents.UpdateOne(ctx, &mooringv1.UpdateOneRequest{
		Database: db, Collection: collection,
		Filter: document(t, fields("_id", int32(1))),
		Update: update(t, fields("$set", fields("n", int32(10)))),
	})
	if err != nil || updated.GetMatchedCount() != 1 || updated.GetModifiedCount() != 1 ||
		updated.UpsertedId != nil {
		t.Errorf("UpdateOne() = %v, %v, want one modified", updated, err)
	}
	all, err := documents.UpdateMany(ctx, &mooringv1.UpdateManyRequest{
		Database: db, Collection: collection,
		Filter: document(t, fields("kind", "a")),
		Update: update(t, fields("$inc", fields("n", int32(1)))),
	})
	if err != nil || all.GetMatchedCount() != 2 || all.GetModifiedCount() != 2 {
		t.Errorf("UpdateMany() = %v, %v, want two modified", all, err)
	}
	upserted, err := documents.UpdateOne(ctx, &mooringv1.UpdateOneRequest{
		Database: db, Collection: collection, Upsert: new(true),
		Filter: document(t, fields("_id", int32(5))),
		Update: update(t, fields("$set", fields("n", int32(5)))),
	})
	if err != nil || bson.Raw(upserted.GetUpsertedId().GetBson()).Lookup("v").Int32() != 5 {
		t.Errorf("UpdateOne() with upsert = %v, %v, want the _id 5", upserted, err)
	}
	replaced, err := documents.ReplaceOne(ctx, &mooringv1.ReplaceOneRequest{
		Database: db, Collection: collection,
		Filter: document(t, fields("_id", int32(5))), Replacement: document(t, fields("kind", "c")),
	})
	if err != nil || replaced.GetModifiedCount() != 1 {
		t.Errorf("ReplaceOne() = %v, %v, want one modified", replaced, err)
	}

	after, err := documents.FindOneAndUpdate(ctx, &mooringv1.FindOneAndUpdateRequest{
		Database: db, Collection: collection, ReturnDocument: new("after"),
		Filter: document(t, fields("_id", int32(1))),
		Update: update(t, fields("$inc", fields("n", int32(1)))),
	})
	if err != nil || bson.Raw(after.GetDocument().GetBson()).Lookup("n").Int32() != 12 {
		t.Errorf("FindOneAndUpdate() = %v, %v, want n: 12", after, err)
	}
	before, err := documents.FindOneAndReplace(ctx, &mooringv1.FindOneAndReplaceRequest{
		Database: db, Collection: collection,
		Filter:      document(t, fields("_id", int32(1))),
		Replacement: document(t, fields("n", int32(0))),
	})
	if err != nil || bson.Raw(before.GetDocument().GetBson()).Lookup("n").Int32() != 12 {
		t.Errorf("FindOneAndReplace() = %v, %v, want the document before", before, err)
	}
	taken, err := documents.FindOneAndDelete(ctx, &mooringv1.FindOneAndDeleteRequest{
		Database: db, Collection: collection, Filter: document(t, fields("_id", int32(1))),
	})
	if err != nil || bson.Raw(taken.GetDocument().GetBson()).Lookup("n").Int32() != 0 {
		t.Errorf("FindOneAndDelete() = %v, %v, want the replacement", taken, err)
	}
	gone, err := documents.FindOneAndDelete(ctx, &mooringv1.FindOneAndDeleteRequest{
		Database: db, Collection: collection, Filter: document(t, fields("_id", int32(1))),
	})
	if err != nil || gone.GetDocument() != nil {
		t.Errorf("FindOneAndDelete() without a match = %v, %v, want no document", gone, err)
	}

	matched, err := documents.Aggregate(ctx, &mooringv1.AggregateRequest{
		Database: db, Collection: new(collection), Pipeline: []*mooringv1.Document{
			document(t, fields("$match", fields("_id", fields("$in", bson.A{int32(2), int32(3)})))),
			document(t, fields("$sort", fields("_id", int32(1)))),
		},
	})
	if err != nil || !slices.Equal(ids(matched.GetDocuments()), []int32{2, 3}) {
		t.Errorf("Aggregate() = %v, %v, want 2 and 3", matched, err)
	}

	reply, err := commands.RunCommand(ctx,
		&mooringv1.RunCommandRequest{Database: db, Command: document(t, fields("ping", int32(1)))})
	if err != nil {
		t.Errorf("RunCommand(ping) = %v", err)
	} else if ok, _ := bson.Raw(reply.GetReply().GetBson()).Lookup("ok").AsInt64OK(); ok != 1 {
		t.Errorf("RunCommand(ping) = %v, want ok: 1", bson.Raw(reply.GetReply().GetBson()))
	}
	cursor, err := commands.RunCursorCommand(ctx, &mooringv1.RunCursorCommandRequest{
		Database: db,
		Command:  document(t, fields("find", collection, "filter", fields("_id", int32(2)))),
	})
	if err != nil || !slices.Equal(ids(cursor.GetDocuments()), []int32{2}) {
		t.Errorf("RunCursorCommand(find) = %v, %v, want 2", cursor, err)
	}

	deleted, err := documents.DeleteOne(ctx, &mooringv1.DeleteOneRequest{
		Database: db, Collection: collection, Filter: document(t, fields("_id", int32(2))),
	})
	if err != nil || deleted.GetDeletedCount() != 1 {
		t.Errorf("DeleteOne() = %v, %v, want 1", deleted, err)
	}
	rest, err := documents.DeleteMany(ctx, &mooringv1.DeleteManyRequest{
		Database: db, Collection: collection, Filter: document(t, fields()),
	})
	if err != nil || rest.GetDeletedCount() != 3 {
		t.Errorf("DeleteMany() = %v, %v, want 3", rest, err)
	}
}

// TestGRPCCursors reads one collection in each of the ways that cursors can be read.
func TestGRPCCursors(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	conn := g.Dial(t)
	documents := mooringv1.NewDocumentServiceClient(conn)
	cursors := mooringv1.NewCursorServiceClient(conn)
	ctx := t.Context()
	const collection, total = "numbers", 25
	var docs []*mooringv1.Document
	for i := range int32(total) {
		docs = append(docs, document(t, fields("_id", i)))
	}
	if _, err := documents.InsertMany(ctx, &mooringv1.InsertManyRequest{
		Database: db, Collection: collection, Documents: docs,
	}); err != nil {
		t.Fatal(err)
	}
	first := func(t *testing.T) (got []int32, cursor string) {
		page, err := documents.Find(ctx, &mooringv1.FindRequest{
			Database: db, Collection: collection, Sort: document(t, fields("_id", int32(1))),
			BatchSize: new(int32(10)),
		})
		if err != nil || page.Cursor == nil {
			t.Fatalf("Find() = %v, %v, want a cursor", page, err)
		}
		return ids(page.GetDocuments()), page.GetCursor()
	}
	want := make([]int32, total)
	for i := range want {
		want[i] = int32(i)
	}

	t.Run("pages", func(t *testing.T) {
		got, cursor := first(t)
		for cursor != "" {
			page, err := cursors.NextPage(ctx,
				&mooringv1.NextPageRequest{Cursor: cursor, BatchSize: new(int32(10))})
			if err != nil {
				t.Fatal(err)
			}
			got, cursor = append(got, ids(page.GetDocuments())...), page.GetCursor()
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
	})
	t.Run("a page, then a stream of the rest", func(t *testing.T) {
		got, cursor := first(t)
		stream, err := cursors.Stream(ctx, &mooringv1.CursorServiceStreamRequest{Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		rest, err := receive(stream)
		if err != nil || !slices.Equal(append(got, ids(rest)...), want) {
			t.Errorf("got %v and %v, %v", got, ids(rest), err)
		}
	})
	t.Run("a closed cursor is gone", func(t *testing.T) {
		_, cursor := first(t)
		if _, err := cursors.CloseCursor(ctx,
			&mooringv1.CloseCursorRequest{Cursor: cursor}); err != nil {
			t.Fatal(err)
		}
		_, err := cursors.NextPage(ctx, &mooringv1.NextPageRequest{Cursor: cursor})
		if status.Code(err) != codes.NotFound {
			t.Errorf("Next() after Close() = %v, want NOT_FOUND", err)
		}
	})
	t.Run("streams", func(t *testing.T) {
		find, err := documents.StreamFind(ctx, &mooringv1.StreamFindRequest{
			Database: db, Collection: collection, Sort: document(t, fields("_id", int32(1))),
			BatchSize: new(int32(4)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := receive(find); err != nil || !slices.Equal(ids(got), want) {
			t.Errorf("StreamFind() = %v, %v", ids(got), err)
		}
		aggregate, err := documents.StreamAggregate(ctx, &mooringv1.StreamAggregateRequest{
			Database: db, Collection: new(collection), BatchSize: new(int32(4)),
			Pipeline: []*mooringv1.Document{document(t, fields("$sort", fields("_id", int32(1))))},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := receive(aggregate); err != nil || !slices.Equal(ids(got), want) {
			t.Errorf("StreamAggregate() = %v, %v", ids(got), err)
		}
		command, err := mooringv1.NewCommandServiceClient(conn).
			StreamRunCursorCommand(ctx, &mooringv1.StreamRunCursorCommandRequest{
				Database: db,
				Command: document(t,
					fields("find", collection, "sort", fields("_id", int32(1)), "batchSize",
						int32(4))),
			})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := receive(command); err != nil || !slices.Equal(ids(got), want) {
			t.Errorf("StreamRunCursorCommand() = %v, %v", ids(got), err)
		}
	})
}

// batch is a message of a stream.
type batch[R any] interface {
	*R
	GetDocuments() []*mooringv1.Document
}

// countsExactly: count without a query is exact on a standalone MongoDB and on the embedded
// database. Others estimate it from statistics of their tables, which may not have seen the last
// inserts.
func countsExactly() bool { return suite.IsEmbedded() }

// receive reads a stream to its end.
func receive[R any, P batch[R]](
	stream grpc.ServerStreamingClient[R],
) ([]*mooringv1.Document, error) {
	var docs []*mooringv1.Document
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return docs, err
		}
		docs = append(docs, P(message).GetDocuments()...)
	}
}

// TestREST is the same story in JSON; each row sees what the rows before it left.
func TestREST(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	rows := []struct{ verb, body, want string }{
		{"insertOne", `{"document": {"_id": 1, "kind": "a", "n": 1}}`, `{"acknowledged": true, "insertedId": 1}`},
		{
			"insertMany", `{"documents": [{"_id": 2, "kind": "b", "n": 2}, {"_id": {"$oid": "651f3c0a0102030405060708"}, "kind": "a"}]}`,
			`{"acknowledged": true, "insertedCount": 2, "insertedIds": [{"index": 0, "id": 2}, {"index": 1, "id": {"$oid": "651f3c0a0102030405060708"}}]}`,
		},
		{"findOne", `{"filter": {"_id": 2}}`, `{"document": {"_id": 2, "kind": "b", "n": 2}}`},
		{"findOne", `{"filter": {"_id": 99}}`, `{"document": null}`},
		{
			"find", `{"filter": {"_id": {"$lt": 10}}, "sort": [["_id", -1]], "projection": {"kind": 1}}`,
			`{"documents": [{"_id": 2, "kind": "b"}, {"_id": 1, "kind": "a"}]}`,
		},
		{"find", `{"filter": {"_id": {"$lt": 10}}, "sort": {"_id": 1}, "limit": 1}`, `{"documents": [{"_id": 1, "kind": "a", "n": 1}]}`},
		{"countDocuments", `{"filter": {"kind": "a"}}`, `{"count": 2}`},
		{"estimatedDocumentCount", `{}`, `{"count": 3}`},
		{"updateOne", `{"filter": {"_id": 1}, "update": {"$set": {"n": 10}}}`, `{"acknowledged": true, "matchedCount": 1, "modifiedCount": 1}`},
		{"updateMany", `{"filter": {"_id": {"$lt": 10}}, "update": {"$inc": {"n": 1}}}`, `{"acknowledged": true, "matchedCount": 2, "modifiedCount": 2}`},
		{"replaceOne", `{"filter": {"_id": 2}, "replacement": {"kind": "c"}}`, `{"acknowledged": true, "matchedCount": 1, "modifiedCount": 1}`},
		{
			"updateOne", `{"filter": {"_id": 7}, "update": {"$set": {"n": 7}}, "upsert": true}`,
			`{"acknowledged": true, "matchedCount": 0, "modifiedCount": 0, "upsertedId": 7}`,
		},
		{
			"findOneAndUpdate", `{"filter": {"_id": 1}, "update": {"$inc": {"n": 1}}, "returnDocument": "after"}`,
			`{"document": {"_id": 1, "kind": "a", "n": 12}, "acknowledged": true}`,
		},
		{"findOneAndReplace", `{"filter": {"_id": 1}, "replacement": {"n": 0}}`, `{"document": {"_id": 1, "kind": "a", "n": 12}, "acknowledged": true}`},
		{"findOneAndDelete", `{"filter": {"_id": 1}}`, `{"document": {"_id": 1, "n": 0}, "acknowledged": true}`},
		{"findOneAndDelete", `{"filter": {"_id": 1}}`, `{"document": null, "acknowledged": true}`},
		{"aggregate", `{"pipeline": [{"$match": {"_id": 2}}]}`, `{"documents": [{"_id": 2, "kind": "c"}]}`},
		{"distinct", `{"fieldName": "kind", "filter": {"_id": 2}}`, `{"values": ["c"]}`},
		{"deleteOne", `{"filter": {"_id": 2}}`, `{"acknowledged": true, "deletedCount": 1}`},
		{"deleteMany", `{"filter": {}}`, `{"acknowledged": true, "deletedCount": 2}`},
	}
	for _, row := range rows {
		got := g.Post(t, gatewaytest.Documents(db, "things", row.verb), row.body)
		if row.verb == "estimatedDocumentCount" && got.Status == 200 && !countsExactly() {
			continue
		}
		if got.Status != 200 {
			t.Errorf("%s %s: status %d: %s", row.verb, row.body, got.Status, got.Body)
			continue
		}
		if ct := got.Header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("%s: Content-Type %q", row.verb, ct)
		}
		wantJSON(t, without(t, got.Body, "upsertedCount"), row.want)
	}
}

// TestRESTForms looks at what only REST has.
func TestRESTForms(t *testing.T) {
	g := suite.Start(t, suite.URI(t))
	db := suite.Database(t)
	g.Post(t, gatewaytest.Documents(db, "things", "insertMany"),
		`{"documents": [{"_id": 1, "n": {"$numberLong": "9007199254740993"}}, {"_id": 2}]}`)
	base := "/v1/databases/" + db
	get := base + "/collections/things/documents?filter=" + `%7B%22_id%22%3A1%7D`

	t.Run("GET", func(t *testing.T) {
		got := g.Do(t, "GET", get, "")
		wantJSON(t, got.Body,
			`{"documents": [{"_id": 1, "n": {"$numberLong": "9007199254740993"}}]}`)
	})
	t.Run("int64=number", func(t *testing.T) {
		got := g.Do(t, "GET", get, "",
			gatewaytest.Header{Name: "Accept", Value: "application/json;int64=number"})
		if !bytes.Contains(got.Body, []byte(`9007199254740993}`)) {
			t.Errorf("got %s", got.Body)
		}
	})
	t.Run("canonical", func(t *testing.T) {
		got := g.Do(t, "GET", get, "",
			gatewaytest.Header{Name: "Accept", Value: "application/ejson"})
		wantJSON(t, got.Body,
			`{"documents": [{"_id": {"$numberInt": "1"}, "n": {"$numberLong": "9007199254740993"}}]}`)
	})
	t.Run("runCommand", func(t *testing.T) {
		got := g.Post(t, base+":runCommand",
			`{"command": {"count": "things", "query": {"_id": {"$gt": 0}}}}`)
		if got.Status != 200 || !bytes.Contains(got.Body, []byte(`"n":2`)) {
			t.Errorf("%d %s", got.Status, got.Body)
		}
	})
	t.Run("runCursorCommand", func(t *testing.T) {
		got := g.Post(t, base+":runCursorCommand",
			`{"command": {"find": "things", "filter": {"_id": 2}}}`)
		wantJSON(t, got.Body, `{"documents": [{"_id": 2}]}`)
	})
	t.Run("streams", func(t *testing.T) {
		for _, verb := range []string{"streamFind", "streamAggregate"} {
			body := map[string]string{
				"streamFind": `{"filter": {"_id": 2}}`, "streamAggregate": `{"pipeline": [{"$match": {"_id": 2}}]}`,
			}[verb]
			got := g.Post(t, gatewaytest.Documents(db, "things", verb), body,
				gatewaytest.Header{Name: "Accept", Value: "application/x-ndjson"})
			lines := bytes.Split(bytes.TrimSpace(got.Body), []byte("\n"))
			if len(lines) != 2 {
				t.Errorf("%s: %d %s, want a document and an end", verb, got.Status, got.Body)
				continue
			}
			wantJSON(t, lines[0], `{"document": {"_id": 2}}`)
			if !bytes.HasPrefix(lines[1], []byte(`{"end"`)) {
				t.Errorf("%s ends with %s", verb, lines[1])
			}
			if ct := got.Header.Get("Content-Type"); ct != "application/x-ndjson" {
				t.Errorf("%s: Content-Type %q", verb, ct)
			}
		}
	})
	t.Run("health", func(t *testing.T) {
		for _, path := range []string{"/healthz", "/readyz"} {
			if got := g.Do(t, "GET", path, ""); got.Status != 200 {
				t.Errorf("%s: %d %s", path, got.Status, got.Body)
			}
		}
	})
}
