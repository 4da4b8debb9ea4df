package policy_test

import (
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
)

// TestEvent checks what a client sees of events of collections with a forbid, a filter or hidden
// fields, when it watches their database.
func TestEvent(t *testing.T) {
	const rules = `permit (principal, action in Action::"watch", resource in Database::"shop")
			unless { resource has collection && ["own", "staff", "both"].contains(resource.collection) };
		forbid (principal, action, resource == Collection::"shop.secret");
		@filter("{'t': {'$claim': 't'}}") permit (principal, action in Action::"watch", resource == Collection::"shop.own");
		@hidden("pay, home.street") permit (principal, action in Action::"watch", resource == Collection::"shop.staff");
		@filter("{'t': 1}") @hidden("pay") permit (principal, action in Action::"watch", resource == Collection::"shop.both");`
	e := enforcer(t, rules)
	who := &caller.Identity{Principal: "jwt:ann", Claims: map[string]any{"t": 1.0}}
	call := e.Begin(who, "/mooring.v1.ChangeStreamService/Watch", true)
	if err := call.Check(t.Context(), &mooringv1.WatchRequest{Database: "shop"}); err != nil ||
		!call.PerEvent() {
		t.Fatalf("%v, event by event: %t", err, call.PerEvent())
	}
	event := func(kind, coll, rest string) bson.Raw {
		ns := `{"db": "shop", "coll": "` + coll + `"}`
		if coll == "" {
			ns = `{"db": "shop"}`
		}
		d, err := extjson.Parse(nil,
			[]byte(`{"_id": {"_data": "8"}, "operationType": "`+kind+`", "ns": `+ns+rest+`}`))
		if err != nil {
			t.Fatalf("%s: %v", rest, err)
		}
		return d
	}
	const whole = "the same"
	for _, row := range []struct{ name, kind, coll, rest, want string }{
		{"no rule is against it", "insert", "a", `, "fullDocument": {"_id": 1, "pay": 2}`, whole},
		{"a forbid", "insert", "secret", `, "fullDocument": {"_id": 1}`, ""},
		{"a forbidden collection is dropped", "drop", "secret", ``, ""},
		{"a rename from a forbidden collection", "rename", "secret", `, "to": {"db": "shop", "coll": "a"}`, ""},
		{"a rename to a forbidden collection", "rename", "a", `, "to": {"db": "shop", "coll": "secret"}`, ""},
		{"a rename to another database", "rename", "a", `, "to": {"db": "other", "coll": "a"}`, ""},
		{"a rename", "rename", "a", `, "to": {"db": "shop", "coll": "b"}`, whole},
		{"a rename to a collection with limits", "rename", "a", `, "to": {"db": "shop", "coll": "staff"}, "operationDescription": {"x": 1}`, `, "to": {"db": "shop", "coll": "staff"}`},
		{"another namespace", "insert", "a", `, "to": 1`, whole},
		{"no collection", "dropDatabase", "", ``, whole},
		{"the end", "invalidate", "secret", ``, whole},
		{"an event of a kind that is new", "dance", "staff", `, "steps": 3, "fullDocument": {"pay": 1}`, ``},
		{"filter: an insert", "insert", "own", `, "documentKey": {"_id": 1}, "fullDocument": {"_id": 1, "t": 1}`, whole},
		{"filter: of another", "insert", "own", `, "documentKey": {"_id": 1}, "fullDocument": {"_id": 1, "t": 2}`, "-"},
		{"filter: an update without the document", "update", "own", `, "documentKey": {"_id": 1}, "updateDescription": {"updatedFields": {"t": 1}}`, "-"},
		{
			"filter: an update", "update", "own", `, "documentKey": {"_id": 1}, "fullDocument": {"t": 1}, "updateDescription": {"removedFields": ["secret"]}`,
			`, "documentKey": {"_id": 1}, "fullDocument": {"t": 1}`,
		},
		{
			"filter: of a document that was another's", "replace", "own", `, "documentKey": {"_id": 1}, "fullDocument": {"t": 1}, "fullDocumentBeforeChange": {"t": 2}`,
			`, "documentKey": {"_id": 1}, "fullDocument": {"t": 1}`,
		},
		{"filter: of a document that is another's now", "replace", "own", `, "fullDocument": {"t": 2}, "fullDocumentBeforeChange": {"t": 1}`, "-"},
		{"filter: both images", "replace", "own", `, "fullDocument": {"t": 1, "n": 2}, "fullDocumentBeforeChange": {"t": 1}`, whole},
		{"filter: a delete", "delete", "own", `, "documentKey": {"_id": 1}`, "-"},
		{"filter: a delete of another", "delete", "own", `, "documentKey": {"_id": 1}, "fullDocumentBeforeChange": {"t": 2}`, "-"},
		{"filter: a delete of an own", "delete", "own", `, "documentKey": {"_id": 1}, "fullDocumentBeforeChange": {"t": 1}`, whole},
		{"filter: a drop", "drop", "own", ``, whole},
		{"filter: a null document", "update", "own", `, "fullDocument": null`, "-"},
		{"hidden: an insert", "insert", "staff", `, "fullDocument": {"_id": 1, "pay": 2, "home": {"street": 1, "city": 2}}`, `, "fullDocument": {"_id": 1, "home": {"city": 2}}`},
		{"hidden: in arrays", "insert", "staff", `, "fullDocument": {"home": [{"street": 1}, 2, [{"street": 3, "no": 4}]]}`, `, "fullDocument": {"home": [{}, 2, [{"no": 4}]]}`},
		{"hidden: before", "delete", "staff", `, "fullDocumentBeforeChange": {"pay": 1, "n": 2}`, `, "fullDocumentBeforeChange": {"n": 2}`},
		{"hidden: the shard key", "delete", "staff", `, "documentKey": {"pay": 1, "_id": 2}`, `, "documentKey": {"_id": 2}`},
		{
			"hidden: an update", "update", "staff",
			`, "updateDescription": {"updatedFields": {"pay": 1, "home.street": 2, "home": 3, "home.city": 4, "home.0.street": 5, "n": 6},
				"removedFields": ["pay", "m"], "truncatedArrays": [{"field": "pay", "newSize": 1}, {"field": "list", "newSize": 2}], "disambiguatedPaths": {"pay": 1}}`,
			`, "updateDescription": {"updatedFields": {"home.city": 4, "n": 6}, "removedFields": ["m"], "truncatedArrays": [{"field": "list", "newSize": 2}]}`,
		},
		{"hidden: an index", "createIndexes", "staff", `, "operationDescription": {"indexes": [{"key": {"pay": 1}}]}`, ``},
		{"hidden: a part of a large event", "update", "staff", `, "splitEvent": {"fragment": 1}`, ``},
		{"both", "insert", "both", `, "fullDocument": {"t": 1, "pay": 1}`, `, "fullDocument": {"t": 1}`},
		{"both: of another", "insert", "both", `, "fullDocument": {"t": 2, "pay": 1}`, "-"},
	} {
		sent := event(row.kind, row.coll, row.rest)
		got, shown := e.Event(who, sent)
		want := row.want
		if row.kind == "rename" && want == "" || row.coll == "secret" && want == "" {
			want = "-"
		}
		switch {
		case want == "-" && shown:
			t.Errorf("%s: shown: %v", row.name, got)
		case want == "-":
		case !shown:
			t.Errorf("%s: not shown", row.name)
		case want == whole && !bytesEqual(got, sent),
			want != whole && !bytesEqual(got, event(row.kind, row.coll, want)):
			t.Errorf("%s: %v, want %s", row.name, got, want)
		}
	}
	bob := &caller.Identity{Principal: "jwt:bob"}
	if _, shown := e.Event(bob, event("insert", "own", `, "fullDocument": {"t": 1}`)); shown {
		t.Error("a client without the claim sees the documents of a tenant")
	}
	e.Replace(parse(t, `permit (principal, action in Action::"read", resource);`))
	if _, shown := e.Event(who, event("insert", "a", `, "fullDocument": {"t": 1}`)); shown {
		t.Error("an event shows that the new rules do not allow")
	}
}

// TestFilterOfRule checks what a rule's filter makes of documents of events, and of those that are
// inserted: these have one scalar at each of its paths, or nothing.
func TestFilterOfRule(t *testing.T) {
	e := enforcer(t, `@filter("{'t': 'a', 'n': {'$gt': 5}}") permit (principal, action, resource);`)
	for _, row := range []struct {
		doc            string
		shows, inserts bool
	}{
		{`{"t": "a", "n": 6}`, true, true},
		{`{"t": "a", "n": {"$numberDecimal": "5.5"}}`, true, false},
		{`{"t": "a", "n": 5}`, false, false},
		{`{"t": "a", "n": "6"}`, false, false},
		{`{"t": ["b", "a"], "n": 6}`, true, false},
		{`{"t": ["b"], "n": 6}`, false, false},
	} {
		event := bson.NewBuilder(nil).String("operationType", "insert").OpenDocument("ns").
			String("db", "d").
			String("coll", "c").Close().Document("fullDocument", document(t, row.doc).GetBson()).
			Finish()
		if _, shown := e.Event(nil, event); shown != row.shows {
			t.Errorf("an event about %s shows: %t", row.doc, shown)
		}
		call := e.Begin(nil, "/mooring.v1.DocumentService/InsertOne", false)
		err := call.Check(t.Context(), &mooringv1.InsertOneRequest{
			Database: "d", Collection: "c", Document: document(t, row.doc),
		})
		if (err == nil) != row.inserts {
			t.Errorf("insert %s: %v", row.doc, err)
		}
	}
}

func bytesEqual(a, b bson.Raw) bool { return string(a) == string(b) }

// TestWatchUnderLimits checks which requests have their events decided one by one.
func TestWatchUnderLimits(t *testing.T) {
	e := enforcer(t, `@filter("{'t': 1}") permit (principal, action in Action::"watch", resource);`)
	for _, row := range []struct {
		name    string
		request *mooringv1.WatchRequest
		refused string
	}{
		{"all", &mooringv1.WatchRequest{FullDocument: new("updateLookup"), ShowExpandedEvents: new(true), ResumeAfter: document(t, `{"_data": "8"}`)}, ""},
		{"$match", &mooringv1.WatchRequest{Pipeline: []*mooringv1.Document{
			document(t, `{"$match": {"$or": [{"operationType": "insert"}, {"$and": [{"ns.coll": "c"}]}], "$nor": [{"ns": 1}]}}`), document(t, `{"$match": {"clusterTime": 1}}`),
		}}, ""},
		{"$match of a field", &mooringv1.WatchRequest{Pipeline: []*mooringv1.Document{document(t, `{"$match": {"fullDocument.t": 1}}`)}}, "$match"},
		{"in $or", &mooringv1.WatchRequest{Pipeline: []*mooringv1.Document{document(t, `{"$match": {"$or": [{"fullDocument.t": 1}]}}`)}}, "$match"},
		{"an operator", &mooringv1.WatchRequest{Pipeline: []*mooringv1.Document{document(t, `{"$match": {"$expr": {"$eq": ["$fullDocument.t", 1]}}}`)}}, "$match"},
		{"no documents", &mooringv1.WatchRequest{Pipeline: []*mooringv1.Document{document(t, `{"$match": {"$or": [1]}}`)}}, "$match"},
		{"two operators", &mooringv1.WatchRequest{Pipeline: []*mooringv1.Document{document(t, `{"$match": {}, "$project": {"ns": 0}}`)}}, "$match"},
		{"another namespace", &mooringv1.WatchRequest{Pipeline: []*mooringv1.Document{document(t, `{"$set": {"ns": {"db": "a", "coll": "b"}}}`)}}, "$match"},
		{"no filter", &mooringv1.WatchRequest{Pipeline: []*mooringv1.Document{document(t, `{"$match": 1}`)}}, "$match"},
		{"collation", &mooringv1.WatchRequest{Collation: document(t, `{"locale": "en"}`)}, "limits events"},
		{"options", &mooringv1.WatchRequest{Options: document(t, `{"allChangesForCluster": true}`)}, "option"},
	} {
		for _, on := range []string{"", "d", "d.c"} {
			request := row.request
			database, collection, ok := strings.Cut(on, ".")
			if request.Database, request.Collection = database, nil; ok {
				request.Collection = &collection
			}
			call := e.Begin(nil, "/mooring.v1.ChangeStreamService/Watch", false)
			err := call.Check(t.Context(), request)
			if (err == nil) != (row.refused == "") || err == nil && !call.PerEvent() ||
				err != nil && !strings.Contains(err.Error(), row.refused) {
				t.Errorf("%s on %q: %v", row.name, on, err)
			}
		}
	}
}
