package document_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestResults(t *testing.T) {
	g := start(t, fakemongo.Handlers{
		"update": reply(func(b *bson.Builder) {
			b.Int32("n", 1).Int32("nModified", 0).OpenArray("upserted").OpenDocument("").
				Int32("index", 0).Null("_id").Close().Close()
		}),
		"delete": reply(func(b *bson.Builder) {
			b.Int32("n", 3).OpenDocument("writeConcernError").Int32("code", 64).
				String("codeName", "WriteConcernFailed").String("errmsg", "late").Close()
		}),
		"distinct": reply(func(b *bson.Builder) {
			b.OpenArray("values").Int32("", 1).String("", "x").Null("").Close()
		}),
		"count": reply(func(b *bson.Builder) { b.Int32("n", 42) }),
		"findAndModify": reply(func(b *bson.Builder) {
			b.OpenDocument("value").Int32("_id", 1).Close()
		}),
	})
	ctx := t.Context()
	set := &mooringv1.Update{
		Kind: &mooringv1.Update_Operators{Operators: doc(`{"$set": {"a": 2}}`)},
	}
	jsonCtx := metadata.AppendToOutgoingContext(ctx, "mooring-document-encoding", "json")

	up, err := g.Document.UpdateOne(jsonCtx,
		&mooringv1.UpdateOneRequest{Database: "d", Collection: "c", Filter: doc(`{}`), Update: set})
	if err != nil || !up.GetAcknowledged() || up.MatchedCount == nil || up.GetMatchedCount() != 0 ||
		up.GetUpsertedCount() != 1 || up.GetUpsertedId().GetJson() != "null" {
		t.Errorf("UpdateOne = %v, %v", up, err)
	}
	del, err := g.Document.DeleteMany(ctx,
		&mooringv1.DeleteManyRequest{Database: "d", Collection: "c", Filter: doc(`{}`)})
	if err != nil || del.GetDeletedCount() != 3 || del.GetWriteConcernError().GetCode() != 64 {
		t.Errorf("DeleteMany = %v, %v", del, err)
	}
	// A pipeline that writes is a write: the error stands beside the result, and ends a stream.
	g.Server.Handle("aggregate", reply(func(b *bson.Builder) {
		b.OpenDocument("cursor").Int64("id", 0).String("ns", "d.c").OpenArray("firstBatch").Close().
			Close().
			OpenDocument("writeConcernError").Int32("code", 64).String("errmsg", "late").Close()
	}))
	merge := []*mooringv1.Document{doc(`{"$merge": "other"}`)}
	agg, err := g.Document.Aggregate(ctx,
		&mooringv1.AggregateRequest{Database: "d", Collection: new("c"), Pipeline: merge})
	if err != nil || agg.GetWriteConcernError().GetCode() != 64 {
		t.Errorf("Aggregate = %v, %v", agg, err)
	}
	ss, err := g.Document.StreamAggregate(ctx,
		&mooringv1.StreamAggregateRequest{Database: "d", Collection: new("c"), Pipeline: merge})
	if err == nil {
		_, err = ss.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("StreamAggregate = %v, want the write concern error", err)
	}
	none := &mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Nodes{Nodes: 0}}}
	gone, err := g.Document.DeleteOne(ctx, &mooringv1.DeleteOneRequest{
		Database: "d", Collection: "c", Filter: doc(`{}`), WriteConcern: none,
	})
	if err != nil || gone.GetAcknowledged() || gone.DeletedCount != nil {
		t.Errorf("DeleteOne with w: 0 = %v, %v", gone, err)
	}
	dis, err := g.Document.Distinct(jsonCtx,
		&mooringv1.DistinctRequest{Database: "d", Collection: "c", FieldName: "a"})
	if err != nil || len(dis.GetValues()) != 3 || dis.GetValues()[1].GetJson() != `"x"` {
		t.Errorf("Distinct = %v, %v", dis, err)
	}
	est, err := g.Document.EstimatedDocumentCount(ctx,
		&mooringv1.EstimatedDocumentCountRequest{Database: "d", Collection: "c"})
	if err != nil || est.GetCount() != 42 {
		t.Errorf("EstimatedDocumentCount = %v, %v", est, err)
	}
	one, err := g.Document.FindOneAndDelete(jsonCtx,
		&mooringv1.FindOneAndDeleteRequest{Database: "d", Collection: "c", Filter: doc(`{}`)})
	if err != nil || strings.ReplaceAll(one.GetDocument().GetJson(), " ", "") != `{"_id":1}` {
		t.Errorf("FindOneAndDelete = %v, %v", one, err)
	}
	if !one.GetAcknowledged() {
		t.Errorf("FindOneAndDelete = %v is not acknowledged", one)
	}
	no, err := g.Document.FindOne(ctx,
		&mooringv1.FindOneRequest{Database: "d", Collection: "empty"})
	if err != nil || no.Document != nil {
		t.Errorf("FindOne of nothing = %v, %v", no, err)
	}
	in, err := g.Document.InsertOne(ctx,
		&mooringv1.InsertOneRequest{Database: "d", Collection: "c", Document: doc(`{"a": 1}`)})
	if err != nil || in.GetInsertedId().GetBson() == nil {
		t.Errorf("InsertOne = %v, %v", in, err)
	}
	if got := g.Server.Documents("d.c"); len(got) != 1 || got[0].FirstKey() != "_id" {
		t.Errorf("inserted %v", got)
	}
}

func TestPagesAreComplete(t *testing.T) {
	g := start(t, nil)
	docs := servicetest.Docs(2500, 900)
	g.Server.SetDocuments("d.c", docs...)
	var got []bson.Raw
	page, err := g.Document.Find(t.Context(),
		&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(1000))})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range page.GetDocuments() {
		got = append(got, raw(d))
	}
	for token := page.Cursor; token != nil; {
		page, err := g.Cursor.NextPage(t.Context(), &mooringv1.NextPageRequest{Cursor: *token})
		if err != nil {
			t.Fatal(err)
		}
		again, err := g.Cursor.NextPage(t.Context(), &mooringv1.NextPageRequest{Cursor: *token})
		if err != nil || !proto.Equal(page, again) {
			t.Fatalf("the same token brings another page: %v", err)
		}
		for _, d := range page.GetDocuments() {
			got = append(got, raw(d))
		}
		token = page.Cursor
	}
	equal(t, got, docs)
	g.Idle(0)
}

func equal(t *testing.T, got, want []bson.Raw) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d documents, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("document %d differs", i)
		}
	}
}

// Pages in an encoding that is larger than BSON fit, too.
func TestLargeEncodings(t *testing.T) {
	g := start(t, nil)
	ints := bson.NewBuilder(nil)
	for range 1000 {
		ints.Int32("a", 1_000_000_000)
	}
	docs := slices.Repeat([]bson.Raw{ints.Finish()}, 500) // of 7 KB; 32 KB as canonical JSON
	g.Server.SetDocuments("d.c", docs...)
	for encoding, most := range map[string]int{"json": 3 << 20, "canonical-json": 4 << 20} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "mooring-document-encoding", encoding)
		page, err := g.Document.Find(ctx,
			&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(1000))})
		if err != nil {
			t.Fatal(err)
		}
		if n := proto.Size(page); n > most || n < most/3 {
			t.Errorf("%s: a page of %d bytes", encoding, n)
		}
		ss, err := g.Cursor.Stream(ctx,
			&mooringv1.CursorServiceStreamRequest{Cursor: page.GetCursor()})
		n := len(page.GetDocuments())
		for err == nil {
			var message *mooringv1.CursorServiceStreamResponse
			message, err = ss.Recv()
			n += len(message.GetDocuments())
		}
		if !errors.Is(err, io.EOF) || n != len(docs) {
			t.Errorf("%s: %d documents, then %v", encoding, n, err)
		}
	}
}

// With w: 0 nothing is known but what was sent: no counts and no document, and that is not the
// answer of a write that matched nothing.
func TestUnacknowledged(t *testing.T) {
	g := start(t, nil)
	g.Server.SetDocuments("d.c", servicetest.Docs(3, 10)...)
	d, ctx := g.Document, t.Context()
	none := &mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Nodes{Nodes: 0}}}
	filter, set := doc(`{}`),
		&mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(`{"$set": {"a": 2}}`)}}
	for _, c := range []struct {
		name string
		call func() (proto.Message, error)
		want proto.Message
	}{
		{"InsertOne", func() (proto.Message, error) {
			return d.InsertOne(ctx, &mooringv1.InsertOneRequest{
				Database: "d", Collection: "c", Document: doc(`{"_id": 7}`), WriteConcern: none,
			})
		}, &mooringv1.InsertOneResponse{InsertedId: payload.NewValue(bson.Int32Value(7))}},
		{"InsertMany", func() (proto.Message, error) {
			return d.InsertMany(ctx, &mooringv1.InsertManyRequest{
				Database: "d", Collection: "c", Documents: []*mooringv1.Document{doc(`{"_id": 8}`)},
				WriteConcern: none, Ordered: new(false),
			})
		}, &mooringv1.InsertManyResponse{
			InsertedIds: []*mooringv1.InsertedId{{Id: payload.NewValue(bson.Int32Value(8))}},
		}},
		{"UpdateMany", func() (proto.Message, error) {
			return d.UpdateMany(ctx, &mooringv1.UpdateManyRequest{
				Database: "d", Collection: "c", Filter: filter, Update: set, WriteConcern: none,
			})
		}, &mooringv1.UpdateManyResponse{}},
		{"FindOneAndUpdate", func() (proto.Message, error) {
			return d.FindOneAndUpdate(ctx, &mooringv1.FindOneAndUpdateRequest{
				Database: "d", Collection: "c", Filter: filter, Update: set, WriteConcern: none,
			})
		}, &mooringv1.FindOneAndUpdateResponse{}},
		{"FindOneAndReplace", func() (proto.Message, error) {
			return d.FindOneAndReplace(ctx, &mooringv1.FindOneAndReplaceRequest{
				Database: "d", Collection: "c", Filter: filter, Replacement: doc(`{"a": 2}`),
				WriteConcern: none,
			})
		}, &mooringv1.FindOneAndReplaceResponse{}},
		{"FindOneAndDelete", func() (proto.Message, error) {
			return d.FindOneAndDelete(ctx, &mooringv1.FindOneAndDeleteRequest{
				Database: "d", Collection: "c", Filter: filter, WriteConcern: none,
			})
		}, &mooringv1.FindOneAndDeleteResponse{}},
	} {
		if got, err := c.call(); err != nil || !proto.Equal(got, c.want) {
			t.Errorf("%s = %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

// TestManyDistinctValues checks that the messages of values are charged before they are made: they
// take many times the memory of the server's answer and of the response.
func TestManyDistinctValues(t *testing.T) {
	const n = 50_000
	for _, budget := range []int64{n * 80, n * 400} {
		a := admission.New(admission.Config{Bytes: budget})
		g := servicetest.Start(t, fakemongo.NewServer(t, fakemongo.Handlers{
			"distinct": reply(func(b *bson.Builder) {
				b.OpenArray("values")
				for i := range int32(n) {
					b.Int32("12345", i)
				}
				b.Close()
			}),
		}), servicetest.Config{Admission: a})
		for _, encoding := range []string{"", "json", "canonical-json"} {
			ctx := t.Context()
			if encoding != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "mooring-document-encoding", encoding)
			}
			res, err := g.Document.Distinct(ctx, &mooringv1.DistinctRequest{
				Database: "d", Collection: "c", FieldName: "a",
			})
			if budget < n*100 {
				if e := errorOf(t, err); e.GetReason() != string(rpcerr.TooLarge) {
					t.Errorf("%q without room: %v", encoding, e)
				}
			} else if err != nil || len(res.GetValues()) != n {
				t.Errorf("%q with room: %d values, %v", encoding, len(res.GetValues()), err)
			}
		}
		g.Idle(0)
		if held := a.Bytes().Held; held != 0 {
			t.Errorf("%d bytes are charged at the end", held)
		}
	}
}
