package rest_test

import (
	"context"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rest"
)

// TestRequestOfEachPath checks which request a path and its body become.
func TestRequestOfEachPath(t *testing.T) {
	d := func(json string) *mooringv1.Document { return payload.NewDocument(ejson(t, json)) }
	const database, collection = "/v1/databases/shop", "/v1/databases/shop/collections/orders"
	for _, test := range []struct {
		method, path, body string
		want               proto.Message // nil: no call
	}{
		{
			"GET",
			"/v1/databases?nameOnly=true&authorizedDatabases=false&filter={}&batchSize=2&comment=c", "", &mooringv1.ListDatabasesRequest{
				NameOnly: new(true), AuthorizedDatabases: new(false), Filter: d(`{}`),
				BatchSize: new(int32(2)),
				Comment:   payload.NewValue(bson.StringValue("c")),
			},
		},
		{
			"GET", database + "/collections?authorizedCollections=true&maxTimeMS=5", "",
			&mooringv1.ListCollectionsRequest{
				Database: "shop", AuthorizedCollections: new(true), MaxTimeMs: new(int64(5)),
			},
		},
		{"GET", collection + "/indexes", "", &mooringv1.ListIndexesRequest{Database: "shop", Collection: "orders"}},
		{"GET", collection + "/searchIndexes?name=n", "", &mooringv1.ListSearchIndexesRequest{
			Database: "shop", Collection: "orders", Name: new("n"),
		}},
		{
			"POST", collection + ":create", `{"timeseries": {"timeField": "at"}, "viewOn": "v"}`,
			&mooringv1.CreateCollectionRequest{
				Database: "shop", Collection: "orders", Timeseries: d(`{"timeField": "at"}`),
				ViewOn: new("v"),
			},
		},
		{"POST", collection + ":drop", `{}`, &mooringv1.DropCollectionRequest{Database: "shop", Collection: "orders"}},
		{"POST", database + ":drop", `{}`, &mooringv1.DropDatabaseRequest{Database: "shop"}},
		{
			"POST", collection + ":rename", `{"to": "x", "toDatabase": "y"}`,
			&mooringv1.RenameCollectionRequest{
				Database: "shop", Collection: "orders", To: "x", ToDatabase: new("y"),
			},
		},
		{"POST", collection + ":collMod", `{"cappedSize": 5}`, &mooringv1.CollModRequest{
			Database: "shop", Collection: "orders", CappedSize: new(int64(5)),
		}},
		{
			"POST", collection + "/indexes:create", `{"indexes": [{"key": {"a": 1}}]}`,
			&mooringv1.CreateIndexesRequest{
				Database: "shop", Collection: "orders", Indexes: docs(t, `{"key": {"a": 1}}`),
			},
		},
		{"POST", collection + "/indexes:drop", `{"index": "a_1"}`, &mooringv1.DropIndexesRequest{
			Database: "shop", Collection: "orders",
			Index: &mooringv1.Hint{Kind: &mooringv1.Hint_Name{Name: "a_1"}},
		}},
		{
			"POST", collection + "/indexes:drop", `{"index": [["b", 1], ["2", -1]]}`,
			&mooringv1.DropIndexesRequest{
				Database: "shop", Collection: "orders", Index: &mooringv1.Hint{
					Kind: &mooringv1.Hint_Keys{Keys: d(`{"b": 1, "2": -1}`)},
				},
			},
		},
		{
			"POST", collection + "/searchIndexes:create", `{"indexes": []}`,
			&mooringv1.CreateSearchIndexesRequest{
				Database: "shop", Collection: "orders",
			},
		},
		{
			"POST", collection + "/searchIndexes:update", `{"name": "n", "definition": {}}`,
			&mooringv1.UpdateSearchIndexRequest{
				Database: "shop", Collection: "orders", Name: "n", Definition: d(`{}`),
			},
		},
		{
			"POST", collection + "/searchIndexes:drop", `{"name": "n"}`,
			&mooringv1.DropSearchIndexRequest{
				Database: "shop", Collection: "orders", Name: "n",
			},
		},
		{
			"POST", collection + "/documents:explainFind",
			`{"filter": {}, "verbosity": "queryPlanner"}`, &mooringv1.ExplainFindRequest{
				Database: "shop", Collection: "orders", Filter: d(`{}`),
				Verbosity: new("queryPlanner"),
			},
		},
		{
			"POST", database + ":explainAggregate", `{"pipeline": [{}]}`,
			&mooringv1.ExplainAggregateRequest{
				Database: "shop", Pipeline: docs(t, `{}`),
			},
		},
		{
			"POST", collection + "/documents:bulkWrite",
			`{"models": [{"insertOne": {"document": {}}}, {"deleteOne": {"filter": {}}}]}`, &mooringv1.BulkWriteRequest{
				Database: "shop", Collection: "orders", Models: []*mooringv1.WriteModel{
					{Kind: &mooringv1.WriteModel_InsertOne{InsertOne: &mooringv1.InsertOneModel{Document: d(`{}`)}}},
					{Kind: &mooringv1.WriteModel_DeleteOne{DeleteOne: &mooringv1.DeleteOneModel{Filter: d(`{}`)}}},
				},
			},
		},
		{
			"POST", "/v1:bulkWrite",
			`{"models": [{"insertOne": {"document": {}}, "namespace": "a.b"}]}`, &mooringv1.BulkWriteRequest{
				Models: []*mooringv1.WriteModel{{
					Namespace: new("a.b"), Kind: &mooringv1.WriteModel_InsertOne{InsertOne: &mooringv1.InsertOneModel{Document: d(`{}`)}},
				}},
			},
		},
		{"POST", "/v1:bulkWrite", `{"models": [{"insertOne": {}, "deleteOne": {}}]}`, nil},
		{"POST", "/v1:bulkWrite", `{"models": [{"insertOne": {}, "insertOne": {}}]}`, nil},
		{"POST", "/v1:bulkWrite", `{"database": "d"}`, nil},
		{"DELETE", database, "", nil},
		{"DELETE", collection, "", nil},
		{"DELETE", collection + ":drop", "", nil},
		{"DELETE", collection + "/indexes", "", nil},
		{"GET", database + "/collections?nameOnly=2", "", nil},
		{"GET", collection + "/indexes?filter={}", "", nil},
	} {
		var got proto.Message
		record := func(
			_ context.Context, req any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler,
		) (any, error) {
			got, _ = req.(proto.Message)
			return nil, explain(http.ErrNotSupported)
		}
		conn := inproc.NewConn(record, nil)
		mooringv1.RegisterCatalogServiceServer(conn, &fake{})
		mooringv1.RegisterDocumentServiceServer(conn, &fake{})
		h, err := front.New(front.Config{Conn: conn, APIs: []front.API{rest.New(rest.Config{})}})
		if err != nil {
			t.Fatal(err)
		}
		do(h, test.method, test.path, test.body, "Content-Type", "application/json")
		if !proto.Equal(got, test.want) {
			t.Errorf("%s %s is %v, want %v", test.method, test.path, got, test.want)
		}
	}
}
