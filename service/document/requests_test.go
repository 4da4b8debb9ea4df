package document_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func TestUnsetSendsNothing(t *testing.T) {
	g := start(t, fakemongo.Handlers{
		"distinct":      reply(func(b *bson.Builder) { b.OpenArray("values").Close() }),
		"count":         reply(func(b *bson.Builder) { b.Int32("n", 0) }),
		"update":        reply(func(b *bson.Builder) { b.Int32("n", 0).Int32("nModified", 0) }),
		"delete":        reply(func(b *bson.Builder) { b.Int32("n", 0) }),
		"findAndModify": reply(func(b *bson.Builder) { b.Null("value") }),
	})
	ctx, d := t.Context(), g.Document
	filter, set := doc(`{"a": 1}`),
		&mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(`{"$set": {"a": 2}}`)}}
	for _, test := range []struct {
		name, command, want string
		call                func() error
	}{
		{"FindOne", "find", `{"find":"c","filter":{},"limit":1,"singleBatch":true}`, func() error {
			_, err := d.FindOne(ctx, &mooringv1.FindOneRequest{Database: "d", Collection: "c"})
			return err
		}},
		{"Find", "find", `{"find":"c","filter":{},"batchSize":8}`, func() error {
			_, err := d.Find(ctx, &mooringv1.FindRequest{Database: "d", Collection: "c"})
			return err
		}},
		{
			"Aggregate", "aggregate", `{"aggregate":"c","pipeline":[],"cursor":{"batchSize":8}}`,
			func() error {
				_, err := d.Aggregate(ctx,
					&mooringv1.AggregateRequest{Database: "d", Collection: proto.String("c")})
				return err
			},
		},
		{
			"Aggregate on the database", "aggregate",
			`{"aggregate":1,"pipeline":[{"$documents":[]}],"cursor":{"batchSize":8}}`, func() error {
				_, err := d.Aggregate(ctx, &mooringv1.AggregateRequest{
					Database: "d", Pipeline: []*mooringv1.Document{doc(`{"$documents": []}`)},
				})
				return err
			},
		},
		{"Distinct", "distinct", `{"distinct":"c","key":"a.b","query":{}}`, func() error {
			_, err := d.Distinct(ctx,
				&mooringv1.DistinctRequest{Database: "d", Collection: "c", FieldName: "a.b"})
			return err
		}},
		{"EstimatedDocumentCount", "count", `{"count":"c"}`, func() error {
			_, err := d.EstimatedDocumentCount(ctx,
				&mooringv1.EstimatedDocumentCountRequest{Database: "d", Collection: "c"})
			return err
		}},
		{"InsertOne", "insert", `{"insert":"c","ordered":true}documents:{"_id":1}`, func() error {
			_, err := d.InsertOne(ctx, &mooringv1.InsertOneRequest{
				Database: "d", Collection: "c", Document: doc(`{"_id": 1}`),
			})
			return err
		}},
		{
			"UpdateOne", "update",
			`{"update":"c","ordered":true,"updates":[{"q":{"a":1},"u":{"$set":{"a":2}}}]}`, func() error {
				_, err := d.UpdateOne(ctx, &mooringv1.UpdateOneRequest{
					Database: "d", Collection: "c", Filter: filter, Update: set,
				})
				return err
			},
		},
		{
			"UpdateMany", "update",
			`{"update":"c","ordered":true,"updates":[{"q":{"a":1},"u":[{"$set":{"a":2}}],"multi":true}]}`, func() error {
				pipeline := &mooringv1.Update{
					Kind: &mooringv1.Update_Pipeline{
						Pipeline: &mooringv1.Pipeline{
							Stages: []*mooringv1.Document{doc(`{"$set": {"a": 2}}`)},
						},
					},
				}
				_, err := d.UpdateMany(ctx, &mooringv1.UpdateManyRequest{
					Database: "d", Collection: "c", Filter: filter, Update: pipeline,
				})
				return err
			},
		},
		{
			"ReplaceOne", "update",
			`{"update":"c","ordered":true,"updates":[{"q":{"a":1},"u":{"a":2}}]}`, func() error {
				_, err := d.ReplaceOne(ctx, &mooringv1.ReplaceOneRequest{
					Database: "d", Collection: "c", Filter: filter, Replacement: doc(`{"a": 2}`),
				})
				return err
			},
		},
		{
			"DeleteOne", "delete", `{"delete":"c","ordered":true,"deletes":[{"q":{"a":1},"limit":1}]}`,
			func() error {
				_, err := d.DeleteOne(ctx,
					&mooringv1.DeleteOneRequest{Database: "d", Collection: "c", Filter: filter})
				return err
			},
		},
		{
			"DeleteMany", "delete",
			`{"delete":"c","ordered":true,"deletes":[{"q":{"a":1},"limit":0}]}`, func() error {
				_, err := d.DeleteMany(ctx,
					&mooringv1.DeleteManyRequest{Database: "d", Collection: "c", Filter: filter})
				return err
			},
		},
		{
			"FindOneAndUpdate", "findAndModify",
			`{"findAndModify":"c","query":{"a":1},"update":{"$set":{"a":2}}}`, func() error {
				_, err := d.FindOneAndUpdate(ctx, &mooringv1.FindOneAndUpdateRequest{
					Database: "d", Collection: "c", Filter: filter, Update: set,
				})
				return err
			},
		},
		{
			"FindOneAndReplace", "findAndModify",
			`{"findAndModify":"c","query":{"a":1},"update":{"a":2}}`, func() error {
				_, err := d.FindOneAndReplace(ctx, &mooringv1.FindOneAndReplaceRequest{
					Database: "d", Collection: "c", Filter: filter, Replacement: doc(`{"a": 2}`),
				})
				return err
			},
		},
		{
			"FindOneAndDelete", "findAndModify", `{"findAndModify":"c","query":{"a":1},"remove":true}`,
			func() error {
				_, err := d.FindOneAndDelete(ctx, &mooringv1.FindOneAndDeleteRequest{
					Database: "d", Collection: "c", Filter: filter,
				})
				return err
			},
		},
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
	g := start(t, fakemongo.Handlers{
		"update":        reply(func(b *bson.Builder) { b.Int32("n", 0).Int32("nModified", 0) }),
		"findAndModify": reply(func(b *bson.Builder) { b.Null("value") }),
	})
	ctx := t.Context()
	yes, n64, n32 := proto.Bool(true), proto.Int64(7), proto.Int32(8)
	_, err := g.Document.Find(ctx, &mooringv1.FindRequest{
		Database: "d", Collection: "c", Filter: doc(`{"a": 1}`), Projection: doc(`{"b": 1}`),
		Sort: doc(`[["b", 1], ["2", -1]]`),
		Hint: &mooringv1.Hint{Kind: &mooringv1.Hint_Keys{Keys: doc(`{"a": 1}`)}}, Skip: n64,
		Limit: n64, BatchSize: n32,
		Comment: value(`"hi"`), MaxTimeMs: n64, Min: doc(`{"a": 0}`), Max: doc(`{"a": 9}`),
		ReturnKey: yes, ShowRecordId: yes,
		NoCursorTimeout: yes, AllowPartialResults: yes, AllowDiskUse: yes,
		Collation: doc(`{"locale": "sv"}`), Let: doc(`{"x": 1}`),
		ReadConcern: &mooringv1.ReadConcern{Level: proto.String("local")},
		Options:     doc(`{"future": [1]}`),
		ReadPreference: &mooringv1.ReadPreference{
			Mode: proto.String("nearest"), MaxStalenessSeconds: proto.Int64(90),
		},
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
		Database: "d", Collection: "c", Filter: doc(`{}`), Update: &mooringv1.Update{
			Kind: &mooringv1.Update_Operators{Operators: doc(`{"$inc": {"a": 1}}`)},
		},
		Sort: doc(`{"a": 1}`), Upsert: yes, ArrayFilters: []*mooringv1.Document{doc(`{"e": 1}`)},
		BypassDocumentValidation: yes,
		Hint:                     &mooringv1.Hint{Kind: &mooringv1.Hint_Name{Name: "a_1"}},
		WriteConcern: &mooringv1.WriteConcern{
			W: &mooringv1.W{Kind: &mooringv1.W_Tag{Tag: "majority"}}, J: yes, WtimeoutMs: n64,
		},
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
		Database: "d", Collection: "c", Filter: doc(`{}`), Update: &mooringv1.Update{
			Kind: &mooringv1.Update_Operators{Operators: doc(`{"$inc": {"a": 1}}`)},
		},
		ReturnDocument: proto.String("after"), Projection: doc(`{"b": 1}`), Upsert: yes,
		WriteConcern: &mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Nodes{Nodes: 2}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got = sent(t, g, "findAndModify")
	for _, want := range []string{
		`"new":true`, `"fields":{"b":1}`, `"upsert":true`, `"writeConcern":{"w":2}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("sent %s\nwithout %s", got, want)
		}
	}
}

// unknownField gives a message a field that this version does not know.
func unknownField(m proto.Message) {
	m.ProtoReflect().
		SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 4000, protowire.VarintType), 1))
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
			_, err := d.UpdateOne(ctx, &mooringv1.UpdateOneRequest{
				Database: "d", Collection: "c", Filter: doc(`{}`), Update: u,
			})
			return err
		}
	}
	unknown := unknownField
	withMetadata := func(kv ...string) func() error {
		return func() error {
			_, err := d.Find(metadata.AppendToOutgoingContext(ctx, kv...),
				&mooringv1.FindRequest{Database: "d", Collection: "c"})
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
		{"session", find(func(r *mooringv1.FindRequest) { r.Session = proto.String("x") }), codes.NotFound, "session"},
		{"transaction", find(func(r *mooringv1.FindRequest) { r.Transaction = proto.String("x") }), codes.NotFound, "transaction"},
		{"statement", find(func(r *mooringv1.FindRequest) { r.Statement = proto.Int32(1) }), codes.InvalidArgument, "statement"},
		{"session header", withMetadata("mooring-session", "x"), codes.NotFound, "session"},
		{"idempotency key", withMetadata("idempotency-key", "x"), codes.InvalidArgument, "idempotency-key"},
		{"encoding", withMetadata("mooring-document-encoding", "xml"), codes.InvalidArgument, "mooring-document-encoding"},
		{"malformed JSON", find(func(r *mooringv1.FindRequest) { r.Filter = doc(`{"a": {"b": [1, x]}}`) }), codes.InvalidArgument, "filter.a.b.1"},
		{"malformed BSON", find(func(r *mooringv1.FindRequest) {
			r.Filter = &mooringv1.Document{
				Encoding: &mooringv1.Document_Bson{Bson: []byte{5, 0, 0, 0, 1}},
			}
		}), codes.InvalidArgument, "filter"},
		{"neither form", find(func(r *mooringv1.FindRequest) { r.Filter = &mooringv1.Document{} }), codes.InvalidArgument, "filter"},
		{"empty comment", find(func(r *mooringv1.FindRequest) { r.Comment = &mooringv1.Value{} }), codes.InvalidArgument, "comment"},
		{"empty hint", find(func(r *mooringv1.FindRequest) { r.Hint = &mooringv1.Hint{} }), codes.InvalidArgument, "hint"},
		{"options of ours", find(func(r *mooringv1.FindRequest) { r.Options = doc(`{"lsid": 1}`) }), codes.InvalidArgument, "options"},
		{"options of servers", find(func(r *mooringv1.FindRequest) { r.Options = doc(`{"future": 1, "fromMongos": true}`) }), codes.InvalidArgument, "options"},
		{"options of drivers", find(func(r *mooringv1.FindRequest) { r.Options = doc(`{"$audit": {}}`) }), codes.InvalidArgument, "options"},
		{"options with a field", find(func(r *mooringv1.FindRequest) { r.Options = doc(`{"limit": 1}`) }), codes.InvalidArgument, "options"},
		{"explain", func() error {
			_, err := d.Aggregate(ctx, &mooringv1.AggregateRequest{
				Database: "d", Collection: proto.String("c"), Options: doc(`{"explain": true}`),
			})
			return err
		}, codes.InvalidArgument, "options.explain"},
		{"explain of a stream", func() error {
			ss, err := d.StreamAggregate(ctx, &mooringv1.StreamAggregateRequest{
				Database: "d", Options: doc(`{"explain": false}`),
			})
			if err == nil {
				_, err = ss.Recv()
			}
			return err
		}, codes.InvalidArgument, "options.explain"},
		{"read preference", find(func(r *mooringv1.FindRequest) {
			r.ReadPreference = &mooringv1.ReadPreference{Mode: proto.String("close")}
		}), codes.InvalidArgument, "readPreference.mode"},
		{"tags with primary", find(func(r *mooringv1.FindRequest) {
			r.ReadPreference = &mooringv1.ReadPreference{
				Tags: []*mooringv1.TagSet{{Tags: map[string]string{"a": "b"}}},
			}
		}), codes.InvalidArgument, "readPreference"},
		{"unknown field", find(func(r *mooringv1.FindRequest) { unknown(r) }), codes.InvalidArgument, "request"},
		{"unknown field inside", find(func(r *mooringv1.FindRequest) { r.Filter = doc(`{}`); unknown(r.Filter) }), codes.InvalidArgument, "filter"},
		{"no update", update(nil), codes.InvalidArgument, "update"},
		{"empty update", update(&mooringv1.Update{}), codes.InvalidArgument, "update"},
		{"no operators", update(&mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(`{}`)}}), codes.InvalidArgument, "update"},
		{"a replacement", update(&mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(`{"a": 1}`)}}), codes.InvalidArgument, "update"},
		{"operators without a form", update(&mooringv1.Update{Kind: &mooringv1.Update_Operators{}}), codes.InvalidArgument, "update"},
		{"operators in a replacement", func() error {
			_, err := d.ReplaceOne(ctx, &mooringv1.ReplaceOneRequest{
				Database: "d", Collection: "c", Filter: doc(`{}`), Replacement: doc(`{"$set": {}}`),
			})
			return err
		}, codes.InvalidArgument, "replacement"},
		{"no filter", func() error {
			_, err := d.DeleteMany(ctx,
				&mooringv1.DeleteManyRequest{Database: "d", Collection: "c"})
			return err
		}, codes.InvalidArgument, "filter"},
		{"no documents", func() error {
			_, err := d.InsertMany(ctx,
				&mooringv1.InsertManyRequest{Database: "d", Collection: "c"})
			return err
		}, codes.InvalidArgument, "documents"},
		{"a bad document", func() error {
			_, err := d.InsertMany(ctx, &mooringv1.InsertManyRequest{
				Database: "d", Collection: "c",
				Documents: []*mooringv1.Document{doc(`{}`), doc(`{`)},
			})
			return err
		}, codes.InvalidArgument, "documents.1"},
		{"returnDocument", func() error {
			_, err := d.FindOneAndReplace(ctx, &mooringv1.FindOneAndReplaceRequest{
				Database: "d", Collection: "c", Filter: doc(`{}`), Replacement: doc(`{}`),
				ReturnDocument: proto.String("both"),
			})
			return err
		}, codes.InvalidArgument, "returnDocument"},
		{"write concern", func() error {
			_, err := d.DeleteOne(ctx, &mooringv1.DeleteOneRequest{
				Database: "d", Collection: "c", Filter: doc(`{}`),
				WriteConcern: &mooringv1.WriteConcern{W: &mooringv1.W{}},
			})
			return err
		}, codes.InvalidArgument, "writeConcern.w"},
		{"negative batchSize", find(func(r *mooringv1.FindRequest) { r.BatchSize = proto.Int32(-1) }), codes.InvalidArgument, "batchSize"},
		{"negative batchSize of a stream", func() error {
			ss, err := d.StreamFind(ctx, &mooringv1.StreamFindRequest{
				Database: "d", Collection: "c", BatchSize: proto.Int32(-1),
			})
			if err == nil {
				_, err = ss.Recv()
			}
			return err
		}, codes.InvalidArgument, "batchSize"},
		{"negative skip", find(func(r *mooringv1.FindRequest) { r.Skip = proto.Int64(-1) }), codes.InvalidArgument, "skip"},
		{"negative maxTimeMS", find(func(r *mooringv1.FindRequest) { r.MaxTimeMs = proto.Int64(-1) }), codes.InvalidArgument, "maxTimeMS"},
		{"negative maxAwaitTimeMS", find(func(r *mooringv1.FindRequest) { r.MaxAwaitTimeMs = proto.Int64(-1) }), codes.InvalidArgument, "maxAwaitTimeMS"},
		{"counting at most nothing", func() error {
			_, err := d.CountDocuments(ctx, &mooringv1.CountDocumentsRequest{
				Database: "d", Collection: "c", Limit: proto.Int64(0),
			})
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
				t.Errorf("%v, field %q, want %v, %q: %v", status.Code(err), e.GetField(), test.code,
					test.field, err)
			}
		})
	}
	if n := len(g.Server.Commands("find", "aggregate", "update", "delete", "insert", "distinct",
		"findAndModify")); n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}

// TestUnknownFields checks that each call refuses a field that the gateway does not know, and sends
// nothing.
func TestUnknownFields(t *testing.T) {
	g := start(t, nil)
	methods := mooringv1.File_mooring_v1_document_service_proto.Services().Get(0).Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		if m.IsStreamingServer() || m.IsStreamingClient() {
			continue
		}
		input, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		output, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
		if err != nil {
			t.Fatal(err)
		}
		request := input.New().Interface()
		unknownField(request)
		name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
		err = g.Conn.Invoke(t.Context(), name, request, output.New().Interface())
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want InvalidArgument", m.Name(), err)
		}
	}
	for _, c := range g.Server.Commands() {
		if c.Name != "isMaster" && c.Name != "hello" && c.Name != "endSessions" {
			t.Errorf("sent %s", c.Name)
		}
	}
}
