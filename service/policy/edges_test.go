package policy_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
)

// TestKeysTwice checks what happens to documents that have a key twice, of which servers and checks
// could take different ones.
func TestKeysTwice(t *testing.T) {
	const rules = `@id("own") @filter("{'t': 'a'}") permit (principal, action, resource == Collection::"d.own");
		@forced("{'t': 'a'}") permit (principal, action, resource == Collection::"d.forced");`
	twice := bson.NewBuilder(nil).String("t", "a").String("t", "b").Finish()
	reversed := bson.NewBuilder(nil).String("t", "b").String("t", "a").Finish()
	set := bson.NewBuilder(nil).OpenDocument("$set").Int32("x", 1).Close().
		OpenDocument("$set").Int32("y", 1).Close().Finish()
	nested := bson.NewBuilder(nil).OpenDocument("$lookup").String("from", "own").String("from", "none").
		String("as", "x").OpenArray("pipeline").Close().Close().Finish()
	insert := func(collection string, doc bson.Raw) *mooringv1.InsertOneRequest {
		return &mooringv1.InsertOneRequest{Database: "d", Collection: collection, Document: payload.NewDocument(doc)}
	}
	find := func(filter bson.Raw) *mooringv1.FindRequest {
		return &mooringv1.FindRequest{Database: "d", Collection: "own", Filter: payload.NewDocument(filter)}
	}
	for _, row := range []struct {
		name, method string
		request      proto.Message
		becomes      func(proto.Message) *mooringv1.Document
		want         string
	}{
		{"an inserted field of the filter", "InsertOne", insert("own", twice), nil, "refused"},
		{"in the other order", "InsertOne", insert("own", reversed), nil, "refused"},
		{
			"a forced field", "InsertOne", insert("forced", twice),
			func(m proto.Message) *mooringv1.Document { return m.(*mooringv1.InsertOneRequest).Document }, `{"t":"a"}`,
		},
		{
			"a filter's field", "Find", find(twice),
			func(m proto.Message) *mooringv1.Document { return m.(*mooringv1.FindRequest).Filter },
			`{"$and":[{"t":"a"},{"t":"a","t":"b"}]}`,
		},
		{
			"a filter's field in the other order", "Find", find(reversed),
			func(m proto.Message) *mooringv1.Document { return m.(*mooringv1.FindRequest).Filter },
			`{"$and":[{"t":"a"},{"t":"b","t":"a"}]}`,
		},
		{"an operator", "UpdateOne", &mooringv1.UpdateOneRequest{
			Database: "d", Collection: "own", Filter: document(t, `{}`),
			Update: &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: payload.NewDocument(set)}},
		}, nil, "refused"},
		{"a part of a stage", "Aggregate", &mooringv1.AggregateRequest{
			Database: "d", Collection: new("own"), Pipeline: []*mooringv1.Document{payload.NewDocument(nested)},
		}, nil, "refused"},
		{"two stages in one", "Aggregate", &mooringv1.AggregateRequest{
			Database: "d", Collection: new("own"), Pipeline: []*mooringv1.Document{document(t, `{"$limit": 1, "$out": "x"}`)},
		}, nil, "refused"},
	} {
		call := enforcer(t, rules).Begin(nil, "/mooring.v1.DocumentService/"+row.method, true)
		if err := call.Check(t.Context(), row.request); (err != nil) != (row.want == "refused") {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
			continue
		}
		if row.becomes == nil {
			continue
		}
		got, err := extjson.Append(nil, row.becomes(row.request).GetBson(), extjson.Relaxed)
		if err != nil || string(got) != row.want {
			t.Errorf("%s: %s, %v, want %s", row.name, got, err, row.want)
		}
	}
}
