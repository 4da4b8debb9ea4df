package policy_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/projection"
)

const fuzzPolicy = `
@filter("{'tenant': 'a'}") @forced("{'tenant': 'a'}") @hidden("secret, p.q") @readonly("role")
permit (principal, action, resource in Database::"d");
@filter("{'tenant': 'a'}") @forced("{'tenant': 'a'}")
permit (principal, action, resource in Database::"f");`

// FuzzRequests checks that what is allowed is still valid, that it has the rule's filter, that its
// projection leaves out what is hidden, and that no document of the request has changed.
func FuzzRequests(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a":1}`, `{"$or":[{"tenant":"b"},{"$expr":{"$eq":["$a","$b"]}}]}`, `{"secret":1}`,
		`{"p":{"$elemMatch":{"q":1}}}`, `{"$set":{"a":1},"$rename":{"a":"tenant"}}`,
		`{"$lookup":{"from":"c","localField":"a","foreignField":"b","as":"x"}}`,
		`{"$facet":{"a":[{"$unionWith":"c"}]}}`, `{"$geoNear":{"query":{"a":1},"key":"k"}}`,
		`{"tenant":"a","x":[{"$where":1}]}`, `{"p.0.q":{"$in":[1]}}`, `{"$set":{"p.$[].q":1}}`,
		`{"p.0":0}`, `{"0.p":false,"secret.0":0}`, `{"p.0.q":0,"a":0}`, `{"p":{"0":0}}`,
	} {
		raw, err := extjson.Parse(nil, []byte(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	e := enforcer(f, fuzzPolicy)
	rule := document(f, `{"tenant":"a"}`).GetBson()
	whole := document(f, `{"secret":1,"p":{"q":1,"0":{"q":1}},"a":1}`).GetBson()
	f.Fuzz(func(t *testing.T, raw []byte) {
		if bson.Raw(raw).Validate() != nil {
			return
		}
		before := bytes.Clone(raw)
		doc := func() *mooringv1.Document { return payload.NewDocument(raw) }
		upsert := true
		for _, db := range []string{"d", "f"} {
			find := &mooringv1.FindRequest{Database: db, Collection: "c", Filter: doc()}
			shape := &mooringv1.FindRequest{
				Database: db, Collection: "c", Projection: doc(), Sort: doc(),
			}
			part := &mooringv1.FindRequest{Database: db, Collection: "c", Projection: doc()}
			update := &mooringv1.UpdateOneRequest{
				Database: db, Collection: "c", Filter: doc(), Upsert: &upsert,
				Update: &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc()}},
			}
			insert := &mooringv1.InsertOneRequest{Database: db, Collection: "c", Document: doc()}
			c := "c"
			pipeline := &mooringv1.AggregateRequest{
				Database: db, Collection: &c, Pipeline: []*mooringv1.Document{doc(), doc()},
			}
			check := func(method string, err error, filter func() *mooringv1.Document) {
				if _, refused := errors.AsType[*policy.Refusal](err); refused {
					return
				}
				if err != nil {
					t.Fatalf("%s: %v", method, err)
				}
				got := bson.Raw(filter().GetBson())
				if err := got.Validate(); err != nil {
					t.Fatalf("%s becomes malformed: %v", method, err)
				}
				if v, ok := got.Lookup("tenant"); ok && v.Equal(bson.StringValue("a")) {
					return
				}
				if !bytes.Contains(got, rule[4:len(rule)-1]) {
					t.Fatalf("%s has lost the filter: % x", method, got)
				}
			}
			begin := func(method string) policy.Call {
				return e.Begin(nil, "/mooring.v1.DocumentService/"+method, false)
			}
			call := begin("Find")
			check("Find", call.Check(t.Context(), find), func() *mooringv1.Document {
				return find.Filter
			})
			call = begin("Find")
			check("Find with a projection and a sort", call.Check(t.Context(), shape),
				func() *mooringv1.Document {
					return shape.Filter
				})
			call = begin("Find")
			err := call.Check(t.Context(), part)
			check("Find with a projection", err, func() *mooringv1.Document { return part.Filter })
			if p, bad := projection.Compile(part.GetProjection().GetBson()); db == "d" &&
				err == nil && bad == nil {
				shown := p.Apply(whole)
				if _, q := shown.Lookup("p", "q"); q || shown.Has("secret") {
					t.Fatalf("Find with a projection shows what is hidden: % x", shown)
				}
			}
			call = begin("UpdateOne")
			check("UpdateOne", call.Check(t.Context(), update), func() *mooringv1.Document {
				return update.Filter
			})
			call = begin("InsertOne")
			check("InsertOne", call.Check(t.Context(), insert), func() *mooringv1.Document {
				return insert.Document
			})
			call = begin("Aggregate")
			check("Aggregate", call.Check(t.Context(), pipeline), func() *mooringv1.Document {
				return pipeline.Pipeline[0]
			})
		}
		if !bytes.Equal(raw, before) {
			t.Fatal("the request's bytes have changed")
		}
	})
}

// FuzzParse checks that no text of a policy panics, and that a policy that is read can decide.
func FuzzParse(f *testing.F) {
	f.Add(fuzzPolicy)
	f.Add(`@filter("{'a': {'$claim': 'b.c'}}") permit (principal, action, resource) when { principal.claims.x > 1 };`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := policy.Parse([]byte(text))
		if err != nil {
			return
		}
		who := &policy.Principal{Name: "jwt:a", Claims: map[string]any{"b": 1.5, "x": []any{"y"}}}
		d := p.Decide(who, "Find", policy.Resource{Database: "d", Collection: "c"})
		if d.Filter != nil && d.Filter.Validate() != nil {
			t.Errorf("its filter is malformed: % x", d.Filter)
		}
		_ = p.RestrictedSomewhere(who)
	})
}
