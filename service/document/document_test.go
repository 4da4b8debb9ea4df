package document_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/mongotest"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func doc(json string) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: json}}
}

func value(json string) *mooringv1.Value {
	return &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: json}}
}

func start(t *testing.T, handlers mongotest.Handlers) *servicetest.Gateway {
	t.Helper()
	return servicetest.Start(t, mongotest.NewServer(t, handlers), servicetest.Config{})
}

// sent is the last command of that name, as JSON, without what does not matter.
func sent(t *testing.T, g *servicetest.Gateway, name string) string {
	t.Helper()
	commands := g.Server.Commands(name)
	if len(commands) == 0 {
		t.Fatalf("no %s was sent", name)
	}
	c := commands[len(commands)-1]
	body := bson.Without(c.Body, "$db", "maxTimeMS", "lsid")
	text, err := extjson.Append(nil, body, extjson.Relaxed)
	if err != nil {
		t.Fatal(err)
	}
	for sequence, docs := range c.Sequences {
		for _, d := range docs {
			text = append(text, (" " + sequence + ":")...)
			if text, err = extjson.Append(text, d, extjson.Relaxed); err != nil {
				t.Fatal(err)
			}
		}
	}
	return strings.ReplaceAll(string(text), " ", "")
}

func reply(add func(*bson.Builder)) mongotest.Handler { return mongotest.Always(mongotest.OK(add)) }

func errorOf(t *testing.T, err error) *mooringv1.Error {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	return rpcerr.HTTP(status.Convert(err)).Body.GetError()
}

func TestUnsetSendsNothing(t *testing.T) {
	g := start(t, mongotest.Handlers{
		"distinct":      reply(func(b *bson.Builder) { b.OpenArray("values").Close() }),
		"count":         reply(func(b *bson.Builder) { b.Int32("n", 0) }),
		"update":        reply(func(b *bson.Builder) { b.Int32("n", 0).Int32("nModified", 0) }),
		"delete":        reply(func(b *bson.Builder) { b.Int32("n", 0) }),
		"findAndModify": reply(func(b *bson.Builder) { b.Null("value") }),
	})
	ctx, d := t.Context(), g.Document
	filter, set := doc(`{"a": 1}`), &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(`{"$set": {"a": 2}}`)}}
	for _, test := range []struct {
		name, command, want string
		call                func() error
	}{
		{"FindOne", "find", `{"find":"c","filter":{},"limit":1,"singleBatch":true}`, func() error {
			_, err := d.FindOne(ctx, &mooringv1.FindOneRequest{Database: "d", Collection: "c"})
			return err
		}},
		{"Find", "find", `{"find":"c","filter":{}}`, func() error {
			_, err := d.Find(ctx, &mooringv1.FindRequest{Database: "d", Collection: "c"})
			return err
		}},
		{"Aggregate", "aggregate", `{"aggregate":"c","pipeline":[],"cursor":{}}`, func() error {
			_, err := d.Aggregate(ctx, &mooringv1.AggregateRequest{Database: "d", Collection: proto.String("c")})
			return err
		}},
		{"Aggregate on the database", "aggregate", `{"aggregate":1,"pipeline":[{"$documents":[]}],"cursor":{}}`, func() error {
			_, err := d.Aggregate(ctx, &mooringv1.AggregateRequest{Database: "d", Pipeline: []*mooringv1.Document{doc(`{"$documents": []}`)}})
			return err
		}},
		{"Distinct", "distinct", `{"distinct":"c","key":"a.b","query":{}}`, func() error {
			_, err := d.Distinct(ctx, &mooringv1.DistinctRequest{Database: "d", Collection: "c", FieldName: "a.b"})
			return err
		}},
		{"EstimatedDocumentCount", "count", `{"count":"c"}`, func() error {
			_, err := d.EstimatedDocumentCount(ctx, &mooringv1.EstimatedDocumentCountRequest{Database: "d", Collection: "c"})
			return err
		}},
		{"InsertOne", "insert", `{"insert":"c"}documents:{"_id":1}`, func() error {
			_, err := d.InsertOne(ctx, &mooringv1.InsertOneRequest{Database: "d", Collection: "c", Document: doc(`{"_id": 1}`)})
			return err
		}},
		{"UpdateOne", "update", `{"update":"c","updates":[{"q":{"a":1},"u":{"$set":{"a":2}}}]}`, func() error {
			_, err := d.UpdateOne(ctx, &mooringv1.UpdateOneRequest{Database: "d", Collection: "c", Filter: filter, Update: set})
			return err
		}},
		{"UpdateMany", "update", `{"update":"c","updates":[{"q":{"a":1},"u":[{"$set":{"a":2}}],"multi":true}]}`, func() error {
			pipeline := &mooringv1.Update{Kind: &mooringv1.Update_Pipeline{Pipeline: &mooringv1.Pipeline{Stages: []*mooringv1.Document{doc(`{"$set": {"a": 2}}`)}}}}
			_, err := d.UpdateMany(ctx, &mooringv1.UpdateManyRequest{Database: "d", Collection: "c", Filter: filter, Update: pipeline})
			return err
		}},
		{"ReplaceOne", "update", `{"update":"c","updates":[{"q":{"a":1},"u":{"a":2}}]}`, func() error {
			_, err := d.ReplaceOne(ctx, &mooringv1.ReplaceOneRequest{Database: "d", Collection: "c", Filter: filter, Replacement: doc(`{"a": 2}`)})
			return err
		}},
		{"DeleteOne", "delete", `{"delete":"c","deletes":[{"q":{"a":1},"limit":1}]}`, func() error {
			_, err := d.DeleteOne(ctx, &mooringv1.DeleteOneRequest{Database: "d", Collection: "c", Filter: filter})
			return err
		}},
		{"DeleteMany", "delete", `{"delete":"c","deletes":[{"q":{"a":1},"limit":0}]}`, func() error {
			_, err := d.DeleteMany(ctx, &mooringv1.DeleteManyRequest{Database: "d", Collection: "c", Filter: filter})
			return err
		}},
		{"FindOneAndUpdate", "findAndModify", `{"findAndModify":"c","query":{"a":1},"update":{"$set":{"a":2}}}`, func() error {
			_, err := d.FindOneAndUpdate(ctx, &mooringv1.FindOneAndUpdateRequest{Database: "d", Collection: "c", Filter: filter, Update: set})
			return err
		}},
		{"FindOneAndReplace", "findAndModify", `{"findAndModify":"c","query":{"a":1},"update":{"a":2}}`, func() error {
			_, err := d.FindOneAndReplace(ctx, &mooringv1.FindOneAndReplaceRequest{Database: "d", Collection: "c", Filter: filter, Replacement: doc(`{"a": 2}`)})
			return err
		}},
		{"FindOneAndDelete", "findAndModify", `{"findAndModify":"c","query":{"a":1},"remove":true}`, func() error {
			_, err := d.FindOneAndDelete(ctx, &mooringv1.FindOneAndDeleteRequest{Database: "d", Collection: "c", Filter: filter})
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.call(); err != nil {
				t.Fatal(err)
			}
			if got := sent(t, g, test.command); got != test.want {
				t.Errorf("sent %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestEveryOption(t *testing.T) {
	g := start(t, mongotest.Handlers{
		"update":        reply(func(b *bson.Builder) { b.Int32("n", 0).Int32("nModified", 0) }),
		"findAndModify": reply(func(b *bson.Builder) { b.Null("value") }),
	})
	ctx := t.Context()
	yes, n64, n32 := proto.Bool(true), proto.Int64(7), proto.Int32(8)
	_, err := g.Document.Find(ctx, &mooringv1.FindRequest{
		Database: "d", Collection: "c", Filter: doc(`{"a": 1}`), Projection: doc(`{"b": 1}`), Sort: doc(`[["b", 1], ["2", -1]]`),
		Hint: &mooringv1.Hint{Kind: &mooringv1.Hint_Keys{Keys: doc(`{"a": 1}`)}}, Skip: n64, Limit: n64, BatchSize: n32,
		Comment: value(`"hi"`), MaxTimeMs: n64, Min: doc(`{"a": 0}`), Max: doc(`{"a": 9}`), ReturnKey: yes, ShowRecordId: yes,
		NoCursorTimeout: yes, AllowPartialResults: yes, AllowDiskUse: yes, Collation: doc(`{"locale": "sv"}`), Let: doc(`{"x": 1}`),
		ReadConcern: &mooringv1.ReadConcern{Level: proto.String("local")}, Options: doc(`{"future": [1]}`),
		ReadPreference: &mooringv1.ReadPreference{Mode: proto.String("nearest"), MaxStalenessSeconds: proto.Int64(90)},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := sent(t, g, "find")
	for _, want := range []string{
		`"filter":{"a":1}`, `"projection":{"b":1}`, `"sort":{"b":1,"2":-1}`, `"hint":{"a":1}`, `"skip":7`, `"limit":7`, `"batchSize":8`, `"comment":"hi"`,
		`"min":{"a":0}`, `"max":{"a":9}`, `"returnKey":true`, `"showRecordId":true`, `"noCursorTimeout":true`, `"allowPartialResults":true`,
		`"allowDiskUse":true`, `"collation":{"locale":"sv"}`, `"let":{"x":1}`, `"readConcern":{"level":"local"}`, `"future":[1]`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("sent %s\nwithout %s", got, want)
		}
	}
	_, err = g.Document.UpdateOne(ctx, &mooringv1.UpdateOneRequest{
		Database: "d", Collection: "c", Filter: doc(`{}`), Update: &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(`{"$inc": {"a": 1}}`)}},
		Sort: doc(`{"a": 1}`), Upsert: yes, ArrayFilters: []*mooringv1.Document{doc(`{"e": 1}`)}, BypassDocumentValidation: yes,
		Hint:         &mooringv1.Hint{Kind: &mooringv1.Hint_Name{Name: "a_1"}},
		WriteConcern: &mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Tag{Tag: "majority"}}, J: yes, WtimeoutMs: n64},
	})
	if err != nil {
		t.Fatal(err)
	}
	got = sent(t, g, "update")
	for _, want := range []string{
		`"sort":{"a":1}`, `"upsert":true`, `"arrayFilters":[{"e":1}]`, `"bypassDocumentValidation":true`, `"hint":"a_1"`,
		`"writeConcern":{"w":"majority","j":true,"wtimeout":7}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("sent %s\nwithout %s", got, want)
		}
	}
	_, err = g.Document.FindOneAndUpdate(ctx, &mooringv1.FindOneAndUpdateRequest{
		Database: "d", Collection: "c", Filter: doc(`{}`), Update: &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(`{"$inc": {"a": 1}}`)}},
		ReturnDocument: proto.String("after"), Projection: doc(`{"b": 1}`), Upsert: yes,
		WriteConcern: &mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Nodes{Nodes: 2}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got = sent(t, g, "findAndModify")
	for _, want := range []string{`"new":true`, `"fields":{"b":1}`, `"upsert":true`, `"writeConcern":{"w":2}`} {
		if !strings.Contains(got, want) {
			t.Errorf("sent %s\nwithout %s", got, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	g := start(t, nil)
	ctx, d := t.Context(), g.Document
	find := func(change func(*mooringv1.FindRequest)) func() error {
		return func() error {
			req := &mooringv1.FindRequest{Database: "d", Collection: "c"}
			change(req)
			_, err := d.Find(ctx, req)
			return err
		}
	}
	update := func(u *mooringv1.Update) func() error {
		return func() error {
			_, err := d.UpdateOne(ctx, &mooringv1.UpdateOneRequest{Database: "d", Collection: "c", Filter: doc(`{}`), Update: u})
			return err
		}
	}
	unknown := func(m proto.Message) {
		m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 4000, protowire.VarintType), 1))
	}
	withMetadata := func(kv ...string) func() error {
		return func() error {
			_, err := d.Find(metadata.AppendToOutgoingContext(ctx, kv...), &mooringv1.FindRequest{Database: "d", Collection: "c"})
			return err
		}
	}
	for _, test := range []struct {
		name  string
		call  func() error
		code  codes.Code
		field string
	}{
		{"no database", find(func(r *mooringv1.FindRequest) { r.Database = "" }), codes.InvalidArgument, "database"},
		{"no collection", find(func(r *mooringv1.FindRequest) { r.Collection = "" }), codes.InvalidArgument, "collection"},
		{"session", find(func(r *mooringv1.FindRequest) { r.Session = proto.String("x") }), codes.Unimplemented, "session"},
		{"transaction", find(func(r *mooringv1.FindRequest) { r.Transaction = proto.String("x") }), codes.Unimplemented, "transaction"},
		{"statement", find(func(r *mooringv1.FindRequest) { r.Statement = proto.Int32(1) }), codes.Unimplemented, "statement"},
		{"session header", withMetadata("mooring-session", "x"), codes.Unimplemented, "mooring-session"},
		{"idempotency key", withMetadata("idempotency-key", "x"), codes.Unimplemented, "idempotency-key"},
		{"encoding", withMetadata("mooring-document-encoding", "xml"), codes.InvalidArgument, "mooring-document-encoding"},
		{"malformed JSON", find(func(r *mooringv1.FindRequest) { r.Filter = doc(`{"a": {"b": [1, x]}}`) }), codes.InvalidArgument, "filter.a.b.1"},
		{"malformed BSON", find(func(r *mooringv1.FindRequest) {
			r.Filter = &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: []byte{5, 0, 0, 0, 1}}}
		}), codes.InvalidArgument, "filter"},
		{"neither form", find(func(r *mooringv1.FindRequest) { r.Filter = &mooringv1.Document{} }), codes.InvalidArgument, "filter"},
		{"empty comment", find(func(r *mooringv1.FindRequest) { r.Comment = &mooringv1.Value{} }), codes.InvalidArgument, "comment"},
		{"empty hint", find(func(r *mooringv1.FindRequest) { r.Hint = &mooringv1.Hint{} }), codes.InvalidArgument, "hint"},
		{"options of ours", find(func(r *mooringv1.FindRequest) { r.Options = doc(`{"lsid": 1}`) }), codes.InvalidArgument, "options"},
		{"options with a field", find(func(r *mooringv1.FindRequest) { r.Options = doc(`{"limit": 1}`) }), codes.InvalidArgument, "options"},
		{"read preference", find(func(r *mooringv1.FindRequest) {
			r.ReadPreference = &mooringv1.ReadPreference{Mode: proto.String("close")}
		}), codes.InvalidArgument, "readPreference.mode"},
		{"tags with primary", find(func(r *mooringv1.FindRequest) {
			r.ReadPreference = &mooringv1.ReadPreference{Tags: []*mooringv1.TagSet{{Tags: map[string]string{"a": "b"}}}}
		}), codes.InvalidArgument, "readPreference"},
		{"unknown field", find(func(r *mooringv1.FindRequest) { unknown(r) }), codes.InvalidArgument, "request"},
		{"unknown field inside", find(func(r *mooringv1.FindRequest) { r.Filter = doc(`{}`); unknown(r.Filter) }), codes.InvalidArgument, "filter"},
		{"no update", update(nil), codes.InvalidArgument, "update"},
		{"empty update", update(&mooringv1.Update{}), codes.InvalidArgument, "update"},
		{"no operators", update(&mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(`{}`)}}), codes.InvalidArgument, "update"},
		{"a replacement", update(&mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(`{"a": 1}`)}}), codes.InvalidArgument, "update"},
		{"operators without a form", update(&mooringv1.Update{Kind: &mooringv1.Update_Operators{}}), codes.InvalidArgument, "update"},
		{"operators in a replacement", func() error {
			_, err := d.ReplaceOne(ctx, &mooringv1.ReplaceOneRequest{Database: "d", Collection: "c", Filter: doc(`{}`), Replacement: doc(`{"$set": {}}`)})
			return err
		}, codes.InvalidArgument, "replacement"},
		{"no filter", func() error {
			_, err := d.DeleteMany(ctx, &mooringv1.DeleteManyRequest{Database: "d", Collection: "c"})
			return err
		}, codes.InvalidArgument, "filter"},
		{"no documents", func() error {
			_, err := d.InsertMany(ctx, &mooringv1.InsertManyRequest{Database: "d", Collection: "c"})
			return err
		}, codes.InvalidArgument, "documents"},
		{"a bad document", func() error {
			_, err := d.InsertMany(ctx, &mooringv1.InsertManyRequest{Database: "d", Collection: "c", Documents: []*mooringv1.Document{doc(`{}`), doc(`{`)}})
			return err
		}, codes.InvalidArgument, "documents.1"},
		{"returnDocument", func() error {
			_, err := d.FindOneAndReplace(ctx, &mooringv1.FindOneAndReplaceRequest{
				Database: "d", Collection: "c", Filter: doc(`{}`), Replacement: doc(`{}`), ReturnDocument: proto.String("both"),
			})
			return err
		}, codes.InvalidArgument, "returnDocument"},
		{"write concern", func() error {
			_, err := d.DeleteOne(ctx, &mooringv1.DeleteOneRequest{
				Database: "d", Collection: "c", Filter: doc(`{}`), WriteConcern: &mooringv1.WriteConcern{W: &mooringv1.W{}},
			})
			return err
		}, codes.InvalidArgument, "writeConcern.w"},
		{"negative batchSize", find(func(r *mooringv1.FindRequest) { r.BatchSize = proto.Int32(-1) }), codes.InvalidArgument, "batchSize"},
		{"negative batchSize of a stream", func() error {
			ss, err := d.StreamFind(ctx, &mooringv1.StreamFindRequest{Database: "d", Collection: "c", BatchSize: proto.Int32(-1)})
			if err == nil {
				_, err = ss.Recv()
			}
			return err
		}, codes.InvalidArgument, "batchSize"},
		{"negative skip", find(func(r *mooringv1.FindRequest) { r.Skip = proto.Int64(-1) }), codes.InvalidArgument, "skip"},
		{"negative maxTimeMS", find(func(r *mooringv1.FindRequest) { r.MaxTimeMs = proto.Int64(-1) }), codes.InvalidArgument, "maxTimeMS"},
		{"negative maxAwaitTimeMS", find(func(r *mooringv1.FindRequest) { r.MaxAwaitTimeMs = proto.Int64(-1) }), codes.InvalidArgument, "maxAwaitTimeMS"},
		{"counting at most nothing", func() error {
			_, err := d.CountDocuments(ctx, &mooringv1.CountDocumentsRequest{Database: "d", Collection: "c", Limit: proto.Int64(0)})
			return err
		}, codes.InvalidArgument, "limit"},
		{"fieldName", func() error {
			_, err := d.Distinct(ctx, &mooringv1.DistinctRequest{Database: "d", Collection: "c"})
			return err
		}, codes.InvalidArgument, "fieldName"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.call()
			e := errorOf(t, err)
			if status.Code(err) != test.code || e.GetField() != test.field {
				t.Errorf("%v, field %q, want %v, %q: %v", status.Code(err), e.GetField(), test.code, test.field, err)
			}
		})
	}
	if n := len(g.Server.Commands("find", "aggregate", "update", "delete", "insert", "distinct", "findAndModify")); n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}

func TestResults(t *testing.T) {
	g := start(t, mongotest.Handlers{
		"update": reply(func(b *bson.Builder) {
			b.Int32("n", 1).Int32("nModified", 0).OpenArray("upserted").OpenDocument("").Int32("index", 0).Null("_id").Close().Close()
		}),
		"delete": reply(func(b *bson.Builder) {
			b.Int32("n", 3).OpenDocument("writeConcernError").Int32("code", 64).String("codeName", "WriteConcernFailed").String("errmsg", "late").Close()
		}),
		"distinct":      reply(func(b *bson.Builder) { b.OpenArray("values").Int32("", 1).String("", "x").Null("").Close() }),
		"count":         reply(func(b *bson.Builder) { b.Int32("n", 42) }),
		"findAndModify": reply(func(b *bson.Builder) { b.OpenDocument("value").Int32("_id", 1).Close() }),
	})
	ctx := t.Context()
	set := &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(`{"$set": {"a": 2}}`)}}
	jsonCtx := metadata.AppendToOutgoingContext(ctx, "mooring-document-encoding", "json")

	up, err := g.Document.UpdateOne(jsonCtx, &mooringv1.UpdateOneRequest{Database: "d", Collection: "c", Filter: doc(`{}`), Update: set})
	if err != nil || !up.GetAcknowledged() || up.MatchedCount == nil || up.GetMatchedCount() != 0 || up.GetUpsertedCount() != 1 || up.GetUpsertedId().GetJson() != "null" {
		t.Errorf("UpdateOne = %v, %v", up, err)
	}
	del, err := g.Document.DeleteMany(ctx, &mooringv1.DeleteManyRequest{Database: "d", Collection: "c", Filter: doc(`{}`)})
	if err != nil || del.GetDeletedCount() != 3 || del.GetWriteConcernError().GetCode() != 64 {
		t.Errorf("DeleteMany = %v, %v", del, err)
	}
	none := &mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Nodes{Nodes: 0}}}
	gone, err := g.Document.DeleteOne(ctx, &mooringv1.DeleteOneRequest{Database: "d", Collection: "c", Filter: doc(`{}`), WriteConcern: none})
	if err != nil || gone.GetAcknowledged() || gone.DeletedCount != nil {
		t.Errorf("DeleteOne with w: 0 = %v, %v", gone, err)
	}
	dis, err := g.Document.Distinct(jsonCtx, &mooringv1.DistinctRequest{Database: "d", Collection: "c", FieldName: "a"})
	if err != nil || len(dis.GetValues()) != 3 || dis.GetValues()[1].GetJson() != `"x"` {
		t.Errorf("Distinct = %v, %v", dis, err)
	}
	est, err := g.Document.EstimatedDocumentCount(ctx, &mooringv1.EstimatedDocumentCountRequest{Database: "d", Collection: "c"})
	if err != nil || est.GetCount() != 42 {
		t.Errorf("EstimatedDocumentCount = %v, %v", est, err)
	}
	one, err := g.Document.FindOneAndDelete(jsonCtx, &mooringv1.FindOneAndDeleteRequest{Database: "d", Collection: "c", Filter: doc(`{}`)})
	if err != nil || strings.ReplaceAll(one.GetDocument().GetJson(), " ", "") != `{"_id":1}` {
		t.Errorf("FindOneAndDelete = %v, %v", one, err)
	}
	if !one.GetAcknowledged() {
		t.Errorf("FindOneAndDelete = %v is not acknowledged", one)
	}
	no, err := g.Document.FindOne(ctx, &mooringv1.FindOneRequest{Database: "d", Collection: "empty"})
	if err != nil || no.Document != nil {
		t.Errorf("FindOne of nothing = %v, %v", no, err)
	}
	in, err := g.Document.InsertOne(ctx, &mooringv1.InsertOneRequest{Database: "d", Collection: "c", Document: doc(`{"a": 1}`)})
	if err != nil || in.GetInsertedId().GetBson() == nil {
		t.Errorf("InsertOne = %v, %v", in, err)
	}
	if got := g.Server.Documents("d.c"); len(got) != 1 || got[0].FirstKey() != "_id" {
		t.Errorf("inserted %v", got)
	}
}

func TestPartialFailure(t *testing.T) {
	writeErrors := func(b *bson.Builder) {
		b.Int32("n", 2).OpenArray("writeErrors").OpenDocument("").Int32("index", 1).Int32("code", 11000).String("errmsg", "E11000").
			OpenDocument("keyPattern").Int32("_id", 1).Close().OpenDocument("keyValue").Int32("_id", 2).Close().Close().Close()
	}
	g := start(t, mongotest.Handlers{"insert": reply(writeErrors)})
	req := &mooringv1.InsertManyRequest{
		Database: "d", Collection: "c", Ordered: proto.Bool(false),
		Documents: []*mooringv1.Document{doc(`{"_id": 1}`), doc(`{"_id": 2}`), doc(`{"_id": 3}`)},
	}
	_, err := g.Document.InsertMany(t.Context(), req)
	r := rpcerr.HTTP(status.Convert(err))
	e := r.Body.GetError()
	if r.Code != 409 || e.GetServer().GetCode() != 11000 || len(e.GetWriteErrors()) != 1 || e.GetWriteErrors()[0].GetIndex() != 1 {
		t.Errorf("error %v", e)
	}
	if res := r.Body.GetResult(); res.GetInsertedCount() != 2 || len(res.GetInsertedIds()) != 2 || res.GetInsertedIds()[1].GetIndex() != 2 {
		t.Errorf("result %v", res)
	}
	req.ReturnPartialSuccess = proto.Bool(true)
	res, err := g.Document.InsertMany(t.Context(), req)
	if err != nil || res.GetInsertedCount() != 2 || len(res.GetWriteErrors()) != 1 || res.GetWriteErrors()[0].GetKeyValue() == nil {
		t.Errorf("InsertMany = %v, %v", res, err)
	}
	_, err = g.Document.InsertOne(t.Context(), &mooringv1.InsertOneRequest{Database: "d", Collection: "c", Document: doc(`{"_id": 2}`)})
	if e := errorOf(t, err); status.Code(err) != codes.AlreadyExists || len(e.GetWriteErrors()) != 1 {
		t.Errorf("InsertOne: %v", e)
	}
}

func raw(d *mooringv1.Document) bson.Raw { return d.GetBson() }

func TestPagesAreComplete(t *testing.T) {
	g := start(t, nil)
	docs := servicetest.Docs(2500, 900)
	g.Server.SetDocuments("d.c", docs...)
	var got []bson.Raw
	page, err := g.Document.Find(t.Context(), &mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: proto.Int32(1000)})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range page.GetDocuments() {
		got = append(got, raw(d))
	}
	for token := page.Cursor; token != nil; {
		page, err := g.Cursor.Next(t.Context(), &mooringv1.CursorServiceNextRequest{Cursor: *token})
		if err != nil {
			t.Fatal(err)
		}
		again, err := g.Cursor.Next(t.Context(), &mooringv1.CursorServiceNextRequest{Cursor: *token})
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

func TestStreamsAreComplete(t *testing.T) {
	g := start(t, nil)
	docs := append(servicetest.Docs(8_000, 900), servicetest.Doc(-1, 2<<20), servicetest.Doc(-2, 10))
	g.Server.SetDocuments("d.c", docs...)
	find, err := g.Document.StreamFind(t.Context(), &mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
	if err != nil {
		t.Fatal(err)
	}
	aggregate, err := g.Document.StreamAggregate(t.Context(), &mooringv1.StreamAggregateRequest{Database: "d", Collection: proto.String("c")})
	if err != nil {
		t.Fatal(err)
	}
	for name, recv := range map[string]func() ([]*mooringv1.Document, error){
		"StreamFind":      func() ([]*mooringv1.Document, error) { m, err := find.Recv(); return m.GetDocuments(), err },
		"StreamAggregate": func() ([]*mooringv1.Document, error) { m, err := aggregate.Recv(); return m.GetDocuments(), err },
	} {
		t.Run(name, func(t *testing.T) {
			var got []bson.Raw
			for {
				message, err := recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				size := 0
				for _, d := range message {
					got = append(got, raw(d))
					size += len(raw(d))
				}
				if size > 1<<20 && len(message) > 1 {
					t.Errorf("a message of %d bytes and %d documents", size, len(message))
				}
			}
			equal(t, got, docs)
		})
	}
	g.Idle(0)
	for _, c := range g.Server.Commands("getMore") {
		if v, ok := c.Body.Lookup("batchSize"); !ok {
			t.Errorf("a getMore without batchSize")
		} else if n, _ := v.AsInt64(); n > 1200 {
			t.Errorf("a getMore for %d documents of 900 bytes", n)
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
		page, err := g.Document.Find(ctx, &mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: proto.Int32(1000)})
		if err != nil {
			t.Fatal(err)
		}
		if n := proto.Size(page); n > most || n < most/3 {
			t.Errorf("%s: a page of %d bytes", encoding, n)
		}
		ss, err := g.Cursor.Stream(ctx, &mooringv1.CursorServiceStreamRequest{Cursor: page.GetCursor()})
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

// A stream asks for no more than its client takes.
func TestSlowClient(t *testing.T) {
	g := start(t, nil)
	g.Server.SetDocuments("d.c", servicetest.Docs(20_000, 900)...)
	ctx, cancel := context.WithCancel(t.Context())
	ss, err := g.Document.StreamFind(ctx, &mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ss.Recv(); err != nil {
		t.Fatal(err)
	}
	// It settles: no more getMores come while nothing is read.
	last, since := -1, time.Now()
	servicetest.Eventually(t, "the stream to wait", func() bool {
		if n := len(g.Server.Commands("getMore")); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
	if last > 6 {
		t.Errorf("%d getMores for a client that reads nothing", last)
	}
	cancel()
	g.Idle(0)
	if n := g.Server.KilledCursors(); n != 1 {
		t.Errorf("%d cursors killed, want 1", n)
	}
}

// A client that goes away in the middle of a stream leaves nothing behind, wherever the stream is.
func TestStreamWhoseClientGoesAway(t *testing.T) {
	for _, test := range []struct {
		name   string
		during mongotest.Handler // getMore
	}{
		{"while it sends", nil},
		{"while it waits for the server", mongotest.Always(mongotest.Hang())},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := start(t, mongotest.Handlers{})
			if test.during != nil {
				g.Server.Handle("getMore", test.during)
			}
			g.Server.SetDocuments("d.c", servicetest.Docs(20_000, 900)...)
			ctx, cancel := context.WithCancel(t.Context())
			ss, err := g.Document.StreamFind(ctx, &mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ss.Recv(); err != nil {
				t.Fatal(err)
			}
			servicetest.Eventually(t, "a getMore", func() bool { return len(g.Server.Commands("getMore")) > 0 })
			cancel()
			g.Idle(0)
			if n := g.Server.KilledCursors(); n != 1 {
				t.Errorf("%d cursors killed, want 1", n)
			}
		})
	}
}

func TestDrainDuringStreams(t *testing.T) {
	g := start(t, nil)
	g.Server.SetDocuments("d.c", servicetest.Docs(20_000, 900)...)
	const streams = 50
	results := make(chan error, streams) // one of each
	for range streams {
		ss, err := g.Document.StreamFind(t.Context(), &mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ss.Recv(); err != nil {
			t.Fatal(err)
		}
		go func() {
			servicetest.Eventually(t, "the drain", func() bool { return g.Gate.InFlight() == 0 }) // it does not read meanwhile
			var err error
			for err == nil {
				_, err = ss.Recv()
			}
			results <- err
		}()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := g.Gate.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	for range streams {
		if err := <-results; status.Code(err) != codes.Unavailable {
			t.Errorf("a stream ended with %v", err)
		}
	}
	g.Idle(0)
	if n := g.Server.KilledCursors(); n != streams {
		t.Errorf("%d cursors killed, want %d", n, streams)
	}
}

func TestDeadlines(t *testing.T) {
	g := start(t, mongotest.Handlers{"update": mongotest.Always(mongotest.Hang())})
	g.Server.SetDocuments("d.c", servicetest.Docs(1, 1)...)
	deadline := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	maxTime := func() bool {
		c := g.Server.Commands("find")
		return c[len(c)-1].Body.Has("maxTimeMS")
	}
	if _, err := g.Document.Find(deadline(), &mooringv1.FindRequest{Database: "d", Collection: "c"}); err != nil || maxTime() {
		t.Errorf("a page sends maxTimeMS: %v, %v", maxTime(), err)
	}
	if _, err := g.Document.FindOne(deadline(), &mooringv1.FindOneRequest{Database: "d", Collection: "c"}); err != nil || !maxTime() {
		t.Errorf("FindOne sends maxTimeMS: %v, %v", maxTime(), err)
	}
	ss, err := g.Document.StreamFind(deadline(), &mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
	if err == nil {
		_, err = ss.Recv()
	}
	if err != nil || !maxTime() {
		t.Errorf("a stream sends maxTimeMS: %v, %v", maxTime(), err)
	}
	// 50 ms on a slow command, and its connection is not used again.
	g.Server.Handle("find", mongotest.Always(mongotest.Hang()))
	connections := g.Server.AcceptedConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = g.Document.FindOne(ctx, &mooringv1.FindOneRequest{Database: "d", Collection: "c"})
	if status.Code(err) != codes.DeadlineExceeded || time.Since(begin) > 2*time.Second {
		t.Errorf("FindOne = %v after %v", err, time.Since(begin))
	}
	g.Server.Handle("find", nil)
	g.Idle(0)
	if _, err := g.Document.FindOne(t.Context(), &mooringv1.FindOneRequest{Database: "d", Collection: "c"}); err != nil {
		t.Error(err)
	}
	if g.Server.AcceptedConnections() == connections {
		t.Error("the connection was used again")
	}
	// A write in flight.
	ctx, cancel = context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "mooring-timeout", "50ms"), 5*time.Second)
	defer cancel()
	_, err = g.Document.UpdateOne(ctx, &mooringv1.UpdateOneRequest{
		Database: "d", Collection: "c", Filter: doc(`{}`),
		Update: &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(`{"$set": {"a": 1}}`)}},
	})
	if e := errorOf(t, err); status.Code(err) != codes.DeadlineExceeded || e.GetReason() != "WriteOutcomeUnknown" {
		t.Errorf("a write in flight: %v", e)
	}
}

func TestServerDown(t *testing.T) {
	g := servicetest.Start(t, mongotest.NewServer(t, nil), servicetest.Config{URIOptions: "serverSelectionTimeoutMS=200"})
	g.Server.SetDown(true)
	begin := time.Now()
	_, err := g.Document.FindOne(t.Context(), &mooringv1.FindOneRequest{Database: "d", Collection: "c"})
	r := rpcerr.HTTP(status.Convert(err))
	if r.Code != 503 || r.RetryAfter == 0 || time.Since(begin) > 2*time.Second {
		t.Errorf("%d, retry after %v, in %v: %v", r.Code, r.RetryAfter, time.Since(begin), err)
	}
}

// A stream that fails in the middle ends with an error, never as if it were complete.
func TestStreamThatFails(t *testing.T) {
	for _, test := range []struct {
		name    string
		getMore mongotest.Reply
		code    codes.Code
	}{
		{"refused", mongotest.Error(43, "CursorNotFound", "gone"), codes.NotFound},
		{"connection lost", mongotest.Drop(), codes.Unavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := start(t, mongotest.Handlers{"getMore": mongotest.Times(1, func(*mongotest.Command) mongotest.Reply { return test.getMore }, mongotest.Always(mongotest.Drop()))})
			g.Server.SetDocuments("d.c", servicetest.Docs(1000, 10)...)
			ss, err := g.Document.StreamFind(t.Context(), &mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
			for err == nil {
				_, err = ss.Recv()
			}
			if status.Code(err) != test.code {
				t.Errorf("the stream ended with %v, want %v", err, test.code)
			}
		})
	}
}

// With w: 0 nothing is known but what was sent: no counts and no document, and that is not the answer of a write that matched nothing.
func TestUnacknowledged(t *testing.T) {
	g := start(t, nil)
	g.Server.SetDocuments("d.c", servicetest.Docs(3, 10)...)
	d, ctx := g.Document, t.Context()
	none := &mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Nodes{Nodes: 0}}}
	filter, set := doc(`{}`), &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(`{"$set": {"a": 2}}`)}}
	for _, c := range []struct {
		name string
		call func() (proto.Message, error)
		want proto.Message
	}{
		{"InsertOne", func() (proto.Message, error) {
			return d.InsertOne(ctx, &mooringv1.InsertOneRequest{Database: "d", Collection: "c", Document: doc(`{"_id": 7}`), WriteConcern: none})
		}, &mooringv1.InsertOneResponse{InsertedId: payload.NewValue(bson.Int32Value(7))}},
		{"InsertMany", func() (proto.Message, error) {
			return d.InsertMany(ctx, &mooringv1.InsertManyRequest{
				Database: "d", Collection: "c", Documents: []*mooringv1.Document{doc(`{"_id": 8}`)}, WriteConcern: none, Ordered: proto.Bool(false),
			})
		}, &mooringv1.InsertManyResponse{InsertedIds: []*mooringv1.InsertedId{{Id: payload.NewValue(bson.Int32Value(8))}}}},
		{"UpdateMany", func() (proto.Message, error) {
			return d.UpdateMany(ctx, &mooringv1.UpdateManyRequest{Database: "d", Collection: "c", Filter: filter, Update: set, WriteConcern: none})
		}, &mooringv1.UpdateManyResponse{}},
		{"FindOneAndUpdate", func() (proto.Message, error) {
			return d.FindOneAndUpdate(ctx, &mooringv1.FindOneAndUpdateRequest{Database: "d", Collection: "c", Filter: filter, Update: set, WriteConcern: none})
		}, &mooringv1.FindOneAndUpdateResponse{}},
		{"FindOneAndReplace", func() (proto.Message, error) {
			return d.FindOneAndReplace(ctx, &mooringv1.FindOneAndReplaceRequest{
				Database: "d", Collection: "c", Filter: filter, Replacement: doc(`{"a": 2}`), WriteConcern: none,
			})
		}, &mooringv1.FindOneAndReplaceResponse{}},
		{"FindOneAndDelete", func() (proto.Message, error) {
			return d.FindOneAndDelete(ctx, &mooringv1.FindOneAndDeleteRequest{Database: "d", Collection: "c", Filter: filter, WriteConcern: none})
		}, &mooringv1.FindOneAndDeleteResponse{}},
	} {
		if got, err := c.call(); err != nil || !proto.Equal(got, c.want) {
			t.Errorf("%s = %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}
