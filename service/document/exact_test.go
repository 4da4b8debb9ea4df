package document_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/idempotency"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

const helloOfReplicaSet = `{"ok": 1, "isWritablePrimary": true, "setName": "rs", "hosts": ["db.test:27017"], "me": "db.test:27017",
	"maxWireVersion": 25, "maxWriteBatchSize": 2, "logicalSessionTimeoutMinutes": 30}`

// startReplicaSet starts a gateway before a primary.
func startReplicaSet(t *testing.T, cfg servicetest.Config) *servicetest.Gateway {
	t.Helper()
	server := fakemongo.NewServer(t, fakemongo.Handlers{
		"hello":         answer(t, helloOfReplicaSet),
		"insert":        answer(t, `{"ok": 1, "n": 1}`),
		"update":        answer(t, `{"ok": 1, "n": 1, "nModified": 1}`),
		"delete":        answer(t, `{"ok": 1, "n": 1}`),
		"findAndModify": answer(t, `{"ok": 1, "value": {"_id": 1}}`),
		"bulkWrite": answer(t, `{"ok": 1, "nErrors": 0, "nInserted": 1, "nMatched": 0, "nModified": 0, "nUpserted": 0,
			"nDeleted": 0, "cursor": {"id": 0, "ns": "admin.$cmd.bulkWrite", "firstBatch": []}}`),
	})
	return servicetest.Start(t, server, cfg)
}

func withKey(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
}

// identity is a write as the server knows it: its session and number.
func identity(t *testing.T, c fakemongo.Command) string {
	t.Helper()
	lsid, _ := c.Body.Lookup("lsid", "id")
	number, _ := c.Body.Lookup("txnNumber")
	n, _ := number.AsInt64()
	return fmt.Sprintf("%x %d", lsid.Data, n)
}

// writes are the calls that take a key.
func writes(g *servicetest.Gateway) map[string]func(context.Context) error {
	set, filter := operators(`{"$set": {"a": 1}}`), doc(`{"_id": 1}`)
	return map[string]func(context.Context) error{
		"InsertOne": func(ctx context.Context) error {
			_, err := g.Document.InsertOne(ctx, &mooringv1.InsertOneRequest{
				Database: "d", Collection: "c", Document: doc(`{"a": 1}`),
			})
			return err
		},
		"InsertMany": func(ctx context.Context) error {
			_, err := g.Document.InsertMany(ctx, &mooringv1.InsertManyRequest{
				Database: "d", Collection: "c",
				Documents: []*mooringv1.Document{doc(`{}`), doc(`{"_id": 2}`), doc(`{}`)},
			})
			return err
		},
		"UpdateOne": func(ctx context.Context) error {
			_, err := g.Document.UpdateOne(ctx, &mooringv1.UpdateOneRequest{
				Database: "d", Collection: "c", Filter: filter, Update: set,
			})
			return err
		},
		"ReplaceOne": func(ctx context.Context) error {
			_, err := g.Document.ReplaceOne(ctx, &mooringv1.ReplaceOneRequest{
				Database: "d", Collection: "c", Filter: filter, Replacement: doc(`{}`),
			})
			return err
		},
		"DeleteOne": func(ctx context.Context) error {
			_, err := g.Document.DeleteOne(ctx,
				&mooringv1.DeleteOneRequest{Database: "d", Collection: "c", Filter: filter})
			return err
		},
		"FindOneAndUpdate": func(ctx context.Context) error {
			_, err := g.Document.FindOneAndUpdate(ctx, &mooringv1.FindOneAndUpdateRequest{
				Database: "d", Collection: "c", Filter: filter, Update: set,
			})
			return err
		},
		"FindOneAndReplace": func(ctx context.Context) error {
			_, err := g.Document.FindOneAndReplace(ctx, &mooringv1.FindOneAndReplaceRequest{
				Database: "d", Collection: "c", Filter: filter, Replacement: doc(`{}`),
			})
			return err
		},
		"FindOneAndDelete": func(ctx context.Context) error {
			_, err := g.Document.FindOneAndDelete(ctx,
				&mooringv1.FindOneAndDeleteRequest{Database: "d", Collection: "c", Filter: filter})
			return err
		},
		"BulkWrite": func(ctx context.Context) error {
			_, err := g.Document.BulkWrite(ctx,
				&mooringv1.BulkWriteRequest{
					Database: "d", Collection: "c",
					Models: []*mooringv1.WriteModel{
						insertOne(`{}`), deleteOne(&mooringv1.DeleteOneModel{Filter: filter}),
					},
				})
			return err
		},
		"BulkWrite on many": func(ctx context.Context) error {
			_, err := g.Document.BulkWrite(ctx, &mooringv1.BulkWriteRequest{
				Models: []*mooringv1.WriteModel{on("d.c", insertOne(`{}`))},
			})
			return err
		},
	}
}

// sentWrites are the writes that the server got since the last call: their identities, and what
// they insert.
func sentWrites(
	t *testing.T, g *servicetest.Gateway, from int,
) (identities []string, inserted []bson.Raw) {
	t.Helper()
	all := g.Server.Commands("insert", "update", "delete", "findAndModify", "bulkWrite")
	for _, c := range all[from:] {
		identities = append(identities, identity(t, c))
		inserted = append(inserted, c.Sequences["documents"]...)
		inserted = append(inserted, c.Sequences["ops"]...)
	}
	return identities, inserted
}

// TestExactlyOnce: the same call is the same write for the server, at any replica, with the same
// generated _ids. Another key is another write.
func TestExactlyOnce(t *testing.T) {
	one, two := startReplicaSet(t, servicetest.Config{}), startReplicaSet(t, servicetest.Config{})
	again := writes(two)
	for name, call := range writes(one) {
		t.Run(name, func(t *testing.T) {
			ctx := withKey(t.Context(), name)
			from := [2]int{
				len(one.Server.Commands("insert", "update", "delete", "findAndModify", "bulkWrite")),
				len(two.Server.Commands("insert", "update", "delete", "findAndModify", "bulkWrite")),
			}
			for _, err := range []error{
				call(ctx), call(withKey(t.Context(), name+"'")), again[name](ctx),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			first, inserted := sentWrites(t, one, from[0])
			repeated, insertedAgain := sentWrites(t, two, from[1])
			first, other := first[:len(repeated)], first[len(repeated):]
			inserted = inserted[:len(insertedAgain)]
			if fmt.Sprint(first) != fmt.Sprint(repeated) || fmt.Sprint(first) == fmt.Sprint(other) {
				t.Errorf("the writes are %v, then %v; with another key %v", first, repeated, other)
			}
			seen := map[string]bool{}
			for _, id := range first {
				if seen[id] || id[len(id)-2:] != " 1" || len(id) < 30 {
					t.Errorf("the writes are %v, want a session and the number 1 for each", first)
				}
				seen[id] = true
			}
			for i := range inserted {
				if !bytes.Equal(inserted[i], insertedAgain[i]) {
					t.Errorf("document %d is %v, then %v", i, inserted[i], insertedAgain[i])
				}
			}
		})
	}
}

// TestSessionsOfKeys: the sessions and _ids of calls with a key are the same bytes as ever, if the
// idempotency key is the handle key that they were made of once.
func TestSessionsOfKeys(t *testing.T) {
	schedule, err := idempotency.ParseSchedule(
		[]byte("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="))
	if err != nil {
		t.Fatal(err)
	}
	g := startReplicaSet(t, servicetest.Config{Idempotency: schedule})
	for name, key := range map[string]string{
		"InsertOne": "k", "UpdateOne": "lUpdateOne", "InsertMany": "lInsertMany",
	} {
		if err := writes(g)[name](withKey(t.Context(), key)); err != nil {
			t.Error(err)
		}
	}
	identities, inserted := sentWrites(t, g, 0)
	sent := fmt.Sprintf("%v %x", identities, inserted)
	for _, want := range []string{
		"1000000004e37398f14be78dd886897894d7d2d779 1", "00bff357fd736c155d349d4e", // InsertOne
		"10000000045b8420cce53e891ab529c8705f39b9a1 1",                               // UpdateOne
		"10000000042a2e4d2af83a8af8ac96770be9c9f8c7 1", "00eaf0b201cff0deda91a7c1fd", // InsertMany
		"10000000045c481631101e8ddf93b5c283ff39fced 1", "00075d9fe6ce0d1f094a9d6665",
	} {
		if !strings.Contains(sent, want) {
			t.Errorf("the server got no %s: %s", want, sent)
		}
	}
}

// TestKeysOfTracedCalls: the comment that traced calls have changes nothing in a call with a key,
// which may be repeated untraced.
func TestKeysOfTracedCalls(t *testing.T) {
	server := fakemongo.NewServer(t, fakemongo.Handlers{
		"hello": answer(t, `{"ok": 1, "isWritablePrimary": true, "setName": "rs", "hosts": ["db.test:27017"],
			"me": "db.test:27017", "maxWireVersion": 25, "maxMessageSizeBytes": 3000, "logicalSessionTimeoutMinutes": 30}`),
		"insert": answer(t, `{"ok": 1, "n": 1}`),
	})
	var comment *bson.Value
	g := servicetest.Start(t, server, servicetest.Config{
		Comment: func(context.Context) *bson.Value { return comment },
	})
	documents := make([]*mooringv1.Document, 200)
	for i := range documents {
		documents[i] = doc(fmt.Sprintf(`{"_id": %d}`, i))
	}
	traced := bson.StringValue(strings.Repeat("x", 70))
	var sent [2][]string
	for i, c := range []*bson.Value{&traced, nil} {
		comment = c
		before := len(server.Commands("insert"))
		_, err := g.Document.InsertMany(withKey(t.Context(), "k"), &mooringv1.InsertManyRequest{
			Database: "d", Collection: "c", Documents: documents,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range server.Commands("insert")[before:] {
			sent[i] = append(sent[i],
				fmt.Sprint(identity(t, c), ": ", len(c.Sequences["documents"])))
		}
	}
	if len(sent[0]) < 2 || !slices.Equal(sent[0], sent[1]) {
		t.Errorf("the writes are %v, then %v", sent[0], sent[1])
	}
}

// TestKeysUnderAChangedPolicy: a call that is repeated with its key is the same write, although the
// policy has changed in between what it adds to the request.
func TestKeysUnderAChangedPolicy(t *testing.T) {
	rules := func(filter string) *policy.Policy {
		p, err := policy.Parse([]byte(`@id("all") @filter("` + filter + `")
			permit (principal, action in [Action::"read", Action::"write"], resource);`))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	enforcer := policy.NewEnforcer(policy.Config{Policy: rules("{'tenant': 1}")})
	g := startReplicaSet(t, servicetest.Config{Policy: enforcer})
	for _, name := range []string{"UpdateOne", "DeleteOne", "FindOneAndUpdate"} {
		enforcer.Replace(rules("{'tenant': 1}"))
		seen, _ := sentWrites(t, g, 0)
		write, ctx := writes(g)[name], withKey(t.Context(), "k"+name)
		first := write(ctx)
		enforcer.Replace(rules("{'tenant': 1, 'open': true}"))
		if err := errors.Join(first, write(ctx)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		sent, _ := sentWrites(t, g, len(seen))
		if len(sent) != 2 || sent[0] != sent[1] {
			t.Errorf("%s was sent as %v, want the same write twice", name, sent)
		}
	}
}

// TestRepeatedAnswers: a server that repeats its answer to a write applies no projection to the
// document, and does not look whether the filter of the rules matches it now.
func TestRepeatedAnswers(t *testing.T) {
	rules := func(limits string) *policy.Policy {
		p, err := policy.Parse([]byte(limits + `
			permit (principal, action in [Action::"read", Action::"write"], resource);`))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	enforcer := policy.NewEnforcer(policy.Config{Policy: rules(`@hidden("x")`)})
	g := startReplicaSet(t, servicetest.Config{Policy: enforcer})
	filter, set := doc(`{"_id": 1}`), operators(`{"$set": {"n": 1}}`)
	id := &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: "1"}}
	type response interface{ GetDocument() *mooringv1.Document }
	type document = mooringv1.Document
	calls := map[string]func(context.Context, *document) (response, error){
		"FindOneAndUpdate": func(ctx context.Context, fields *document) (response, error) {
			return g.Document.FindOneAndUpdate(ctx, &mooringv1.FindOneAndUpdateRequest{
				Database: "d", Collection: "c", Filter: filter, Update: set,
				Projection: fields,
			})
		},
		"FindOneAndDelete": func(ctx context.Context, fields *document) (response, error) {
			return g.Document.FindOneAndDelete(ctx, &mooringv1.FindOneAndDeleteRequest{
				Database: "d", Collection: "c", Filter: filter, Projection: fields,
			})
		},
		"PatchDocument": func(ctx context.Context, fields *document) (response, error) {
			return g.Resource.PatchDocument(ctx, &mooringv1.PatchDocumentRequest{
				Database: "d", Collection: "c", Id: id, Update: set, Projection: fields,
			})
		},
	}
	const value = `"value": {"_id": 1, "a": 1, "b": {"c": 2, "d": 3}, "salary": 5}`
	const refused = "PolicyRefused"
	for i, row := range []struct{ limits, projection, mark, want string }{
		{`@hidden("salary, b.c")`, "", "", `{"_id":1,"a":1,"b":{"d":3}}`},
		{`@hidden("salary")`, `{"a": 0}`, `"retriedStmtId": 0`, `{"_id":1,"b":{"c":2,"d":3}}`},
		{`@hidden("salary")`, `{"a": 1}`, `"retriedStmtId": 0`, `{"_id":1,"a":1}`},
		{`@hidden("salary")`, `{"_id": 0, "a": 1}`, `"retriedStmtId": 0`, `{"_id":1,"a":1,"b":{"c":2,"d":3}}`},
		{``, `{"b.c": 1}`, `"retriedStmtId": 0`, `{"_id":1,"b":{"c":2}}`},
		{`@filter("{'a': 1}") @hidden("a")`, "", `"retriedStmtId": 0`, `{"_id":1,"b":{"c":2,"d":3},"salary":5}`},
		{`@filter("{'a': 2}")`, "", `"retriedStmtId": 0`, refused},
		{`@filter("{'z': 2}")`, `{"b": 1}`, `"retriedStmtId": 0`, refused},
	} {
		reply := `{"ok": 1, ` + value + `}`
		if row.mark != "" {
			reply = `{"ok": 1, ` + value + `, ` + row.mark + `}`
		}
		g.Server.Handle("findAndModify", answer(t, reply))
		enforcer.Replace(rules(row.limits))
		var projection *mooringv1.Document
		if row.projection != "" {
			projection = doc(row.projection)
		}
		for name, call := range calls {
			ctx := withKey(t.Context(), fmt.Sprint(name, i))
			for range 2 {
				res, err := call(ctx, projection)
				got := ""
				if err != nil {
					got = errorOf(t, err).GetReason()
				} else {
					text, _ := extjson.Append(nil, res.GetDocument().GetBson(), extjson.Relaxed)
					got = string(text)
				}
				if got != row.want {
					t.Errorf("%s with %s and the projection %q = %s, want %s", name, row.limits,
						row.projection, got, row.want)
				}
			}
		}
	}
}

// TestKeysThatAreRefused: nothing is sent.
func TestKeysThatAreRefused(t *testing.T) {
	g := startReplicaSet(t, servicetest.Config{})
	ctx := withKey(t.Context(), "k")
	// The calls below that are refused later have keys of their own.
	fresh := func(key string) context.Context { return withKey(t.Context(), key) }
	none := &mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Nodes{Nodes: 0}}}
	many := &mooringv1.WriteModel{
		Kind: &mooringv1.WriteModel_DeleteMany{
			DeleteMany: &mooringv1.DeleteManyModel{Filter: doc(`{}`)},
		},
	}
	started, err := g.Session.Start(t.Context(), &mooringv1.SessionServiceStartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	insert := func(ctx context.Context, change func(*mooringv1.InsertOneRequest)) error {
		req := &mooringv1.InsertOneRequest{Database: "d", Collection: "c", Document: doc(`{}`)}
		change(req)
		_, err := g.Document.InsertOne(ctx, req)
		return err
	}
	standalone := start(t, nil)
	off := servicetest.Start(t,
		fakemongo.NewServer(t, fakemongo.Handlers{"hello": answer(t, helloOfReplicaSet)}),
		servicetest.Config{URIOptions: "retryWrites=false"})
	const unsupported = "IdempotencyKeyUnsupported"
	for name, test := range map[string]struct {
		call func() error
		want string
	}{
		"UpdateMany": {func() error {
			_, err := g.Document.UpdateMany(ctx, &mooringv1.UpdateManyRequest{
				Database: "d", Collection: "c", Filter: doc(`{}`),
				Update: operators(`{"$set": {"a": 1}}`),
			})
			return err
		}, unsupported},
		"Find": {func() error {
			_, err := g.Document.Find(ctx, &mooringv1.FindRequest{Database: "d", Collection: "c"})
			return err
		}, unsupported},
		"GetTopology": {func() error {
			_, err := g.Deployment.GetTopology(ctx, &mooringv1.GetTopologyRequest{})
			return err
		}, unsupported},
		"a bulk with many": {func() error {
			_, err := g.Document.BulkWrite(fresh("bulk"), &mooringv1.BulkWriteRequest{
				Database: "d", Collection: "c",
				Models: []*mooringv1.WriteModel{insertOne(`{}`), many},
			})
			return err
		}, unsupported},
		"no acknowledgement": {func() error {
			return insert(fresh("none"), func(r *mooringv1.InsertOneRequest) {
				r.WriteConcern = none
			})
		}, unsupported},
		"a session": {func() error {
			return insert(ctx, func(r *mooringv1.InsertOneRequest) { r.Session = &started.Session })
		}, unsupported},
		"a standalone server":      {func() error { return writes(standalone)["InsertOne"](ctx) }, unsupported},
		"retryable writes are off": {func() error { return writes(off)["InsertMany"](ctx) }, unsupported},
		"two keys": {func() error {
			return insert(withKey(ctx, "l"), func(*mooringv1.InsertOneRequest) {})
		}, "InvalidArgument"},
		"an empty key": {func() error {
			return insert(withKey(t.Context(), ""), func(*mooringv1.InsertOneRequest) {})
		}, "InvalidArgument"},
	} {
		if e := errorOf(t, test.call()); e.GetReason() != test.want {
			t.Errorf("%s: %s (%s), want %s", name, e.GetReason(), e.GetMessage(), test.want)
		}
	}
	for _, g := range []*servicetest.Gateway{g, standalone, off} {
		if n := len(g.Server.Commands("insert", "update", "delete", "find")); n != 0 {
			t.Errorf("%d commands were sent", n)
		}
	}
	ctx = withKey(t.Context(), "fresh")
	if err := insert(ctx, func(*mooringv1.InsertOneRequest) {}); err != nil {
		t.Fatal(err)
	}
	err = insert(ctx, func(r *mooringv1.InsertOneRequest) { r.Document = doc(`{"other": 1}`) })
	if e := errorOf(t, err); e.GetReason() != "IdempotencyKeyReused" {
		t.Errorf("another body: %s, want IdempotencyKeyReused", e.GetReason())
	}
}

// TestKeyOfRefusedCall: a key is free for another call until something was sent.
func TestKeyOfRefusedCall(t *testing.T) {
	g := startReplicaSet(t, servicetest.Config{})
	ctx := withKey(t.Context(), "k")
	insert := func(body string) string {
		_, err := g.Document.InsertOne(ctx,
			&mooringv1.InsertOneRequest{Database: "d", Collection: "c", Document: doc(body)})
		if err == nil {
			return ""
		}
		return rpcerr.HTTP(err).Body.GetError().GetReason()
	}
	for _, refused := range []string{`{"a": x}`, `{"a": {"$oid": "1"}}`} {
		if got := insert(refused); got != "MalformedDocument" {
			t.Errorf("InsertOne(%s) = %q, want MalformedDocument", refused, got)
		}
	}
	if got := insert(`{"a": 1}`); got != "" {
		t.Errorf("InsertOne of the corrected document = %q", got)
	}
	g.Server.Handle("insert",
		fakemongo.Always(fakemongo.Error(121, "DocumentValidationFailure", "no")))
	if got := insert(`{"a": 2}`); got != "IdempotencyKeyReused" {
		t.Errorf("InsertOne of another document = %q, want IdempotencyKeyReused", got)
	}
}

// TestFailedExactlyOnceMayBeRepeated compares the advice after a failure with and without a key.
func TestFailedExactlyOnceMayBeRepeated(t *testing.T) {
	server := fakemongo.NewServer(t, fakemongo.Handlers{
		"hello":  answer(t, helloOfReplicaSet),
		"insert": fakemongo.Always(fakemongo.Drop()),
	})
	g := servicetest.Start(t, server, servicetest.Config{})
	insert := writes(g)["InsertOne"]
	for want, ctx := range map[string]context.Context{
		"never": t.Context(), "same-request": withKey(t.Context(), "k"),
	} {
		if got := rpcerr.HTTP(insert(ctx)).Body.GetError(); got.GetRetry() != want {
			t.Errorf("retry is %q, want %q: %v", got.GetRetry(), want, got)
		}
	}
}
