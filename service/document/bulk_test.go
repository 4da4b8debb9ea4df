package document_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func answer(t *testing.T, json string) fakemongo.Handler {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatal(err)
	}
	return fakemongo.Always(fakemongo.Document(d))
}

func operators(json string) *mooringv1.Update {
	return &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(json)}}
}

func insertOne(json string) *mooringv1.WriteModel {
	return &mooringv1.WriteModel{Kind: &mooringv1.WriteModel_InsertOne{
		InsertOne: &mooringv1.InsertOneModel{Document: doc(json)},
	}}
}

func updateOne(m *mooringv1.UpdateOneModel) *mooringv1.WriteModel {
	return &mooringv1.WriteModel{Kind: &mooringv1.WriteModel_UpdateOne{UpdateOne: m}}
}

func replaceOne(m *mooringv1.ReplaceOneModel) *mooringv1.WriteModel {
	return &mooringv1.WriteModel{Kind: &mooringv1.WriteModel_ReplaceOne{ReplaceOne: m}}
}

func deleteOne(m *mooringv1.DeleteOneModel) *mooringv1.WriteModel {
	return &mooringv1.WriteModel{Kind: &mooringv1.WriteModel_DeleteOne{DeleteOne: m}}
}

// allModels has a write of each kind, with every option.
func allModels() []*mooringv1.WriteModel {
	yes, name := new(true), &mooringv1.Hint{Kind: &mooringv1.Hint_Name{Name: "a_1"}}
	swedish, sort, filter := doc(`{"locale": "sv"}`), doc(`[["b", 1], ["2", -1]]`), doc(`{"a": 1}`)
	elements := []*mooringv1.Document{doc(`{"e": 1}`)}
	return []*mooringv1.WriteModel{
		insertOne(`{"_id": 1}`),
		updateOne(&mooringv1.UpdateOneModel{
			Filter: filter, Update: operators(`{"$set": {"b": 1}}`), Collation: swedish, Hint: name,
			Upsert: yes, Sort: sort, ArrayFilters: elements,
		}),
		{Kind: &mooringv1.WriteModel_UpdateMany{UpdateMany: &mooringv1.UpdateManyModel{
			Filter: filter, Update: operators(`{"$set": {"b": 2}}`), Collation: swedish, Hint: name,
			Upsert: yes, ArrayFilters: elements,
		}}},
		replaceOne(&mooringv1.ReplaceOneModel{
			Filter: filter, Replacement: doc(`{"b": 3}`), Collation: swedish, Hint: name,
			Upsert: yes, Sort: sort,
		}),
		deleteOne(&mooringv1.DeleteOneModel{Filter: filter, Collation: swedish, Hint: name}),
		{Kind: &mooringv1.WriteModel_DeleteMany{DeleteMany: &mooringv1.DeleteManyModel{
			Filter: filter, Collation: swedish, Hint: name,
		}}},
	}
}

func TestBulkWrite(t *testing.T) {
	g := start(t, fakemongo.Handlers{
		"insert": answer(t, `{"ok": 1, "n": 1}`),
		"update": answer(t, `{"ok": 1, "n": 4, "nModified": 2, "upserted": [{"index": 2, "_id": "new"}],
			"writeConcernError": {"code": 64, "errmsg": "late"}}`),
		"delete": answer(t, `{"ok": 1, "n": 5}`),
	})
	res, err := g.Document.BulkWrite(t.Context(), &mooringv1.BulkWriteRequest{
		Database: "d", Collection: "c", Models: allModels(), Let: doc(`{"x": 1}`),
		Comment:                  value(`"hi"`),
		BypassDocumentValidation: new(true), Ordered: new(true), Options: doc(`{"future": 1}`),
		WriteConcern: &mooringv1.WriteConcern{
			W: &mooringv1.W{Kind: &mooringv1.W_Tag{Tag: "majority"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	const common = `"comment":"hi","writeConcern":{"w":"majority"},"future":1`
	const statement = `"collation":{"locale":"sv"},"hint":"a_1"`
	for command, want := range map[string]string{
		"insert": `{"insert":"c","ordered":true,"bypassDocumentValidation":true,` + common + `}documents:{"_id":1}`,
		"update": `{"update":"c","ordered":true,"bypassDocumentValidation":true,"let":{"x":1},` +
			common + `}` +
			`updates:{"q":{"a":1},"u":{"$set":{"b":1}},"upsert":true,"arrayFilters":[{"e":1}],` +
			statement + `,"sort":{"b":1,"2":-1}}` +
			`updates:{"q":{"a":1},"u":{"$set":{"b":2}},"multi":true,"upsert":true,"arrayFilters":[{"e":1}],` + statement + `}` +
			`updates:{"q":{"a":1},"u":{"b":3},"upsert":true,` + statement +
			`,"sort":{"b":1,"2":-1}}`,
		"delete": `{"delete":"c","ordered":true,"let":{"x":1},` + common + `}` +
			`deletes:{"q":{"a":1},"limit":1,` + statement + `}deletes:{"q":{"a":1},"limit":0,` +
			statement + `}`,
	} {
		if got := sent(t, g, command); got != want {
			t.Errorf("sent %s\nwant %s", got, want)
		}
	}
	got := fmt.Sprint(res.GetAcknowledged(), res.GetInsertedCount(), res.GetMatchedCount(),
		res.GetModifiedCount(),
		res.GetDeletedCount(), res.GetUpsertedCount(), len(res.GetInsertedIds()),
		len(res.GetUpsertedIds()))
	if want := "true 1 3 2 5 1 1 1"; got != want {
		t.Errorf("the result is %s, want %s", got, want)
	}
	if ids := res.GetUpsertedIds(); ids[0].GetIndex() != 3 ||
		res.GetWriteConcernError().GetCode() != 64 {
		t.Errorf("upserted %v, write concern error %v", ids, res.GetWriteConcernError())
	}
}

// TestBulkWriteInPart has a duplicate key between writes that are done.
func TestBulkWriteInPart(t *testing.T) {
	g := start(t, fakemongo.Handlers{
		"insert": answer(t,
			`{"ok": 1, "n": 1, "writeErrors": [{"index": 1, "code": 11000, "errmsg": "E11000"}]}`),
		"update": answer(t,
			`{"ok": 1, "n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": 7}]}`),
		"delete": answer(t, `{"ok": 1, "n": 2}`),
	})
	req := &mooringv1.BulkWriteRequest{
		Database: "d", Collection: "c", Ordered: new(false), Models: []*mooringv1.WriteModel{
			insertOne(`{"_id": 1}`), insertOne(`{"_id": 2}`),
			updateOne(&mooringv1.UpdateOneModel{Filter: doc(`{}`), Update: operators(`{"$set": {"b": 1}}`), Upsert: new(true)}),
			deleteOne(&mooringv1.DeleteOneModel{Filter: doc(`{}`)}),
		},
	}
	_, err := g.Document.BulkWrite(t.Context(), req)
	r := rpcerr.HTTP(err)
	e, res := r.Body.GetError(), r.Body.GetResult()
	got := fmt.Sprint(r.Code, e.GetReason(), e.GetRetry(), len(e.GetWriteErrors()),
		res.GetInsertedCount(),
		res.GetMatchedCount(), res.GetUpsertedCount(), res.GetDeletedCount(),
		len(res.GetUpsertedIds()))
	if want := "409DuplicateKeynever1 1 0 1 2 1"; got != want {
		t.Errorf("the error is %s, want %s", got, want)
	}
	req.ReturnPartialSuccess = new(true)
	whole, err := g.Document.BulkWrite(t.Context(), req)
	if err != nil || len(whole.GetWriteErrors()) != 1 ||
		whole.GetWriteErrors()[0].GetIndex() != 1 || whole.GetDeletedCount() != 2 {
		t.Errorf("BulkWrite = %v, %v, want a partial success", whole, err)
	}
	// A later command that is refused is an error in any case, and nothing may be sent again.
	g.Server.Handle("delete",
		fakemongo.Always(fakemongo.Error(10107, "NotWritablePrimary", "not primary",
			"RetryableWriteError")))
	_, err = g.Document.BulkWrite(t.Context(), req)
	r = rpcerr.HTTP(err)
	e = r.Body.GetError()
	if e.GetReason() != "NotWritablePrimary" || e.GetRetry() != "never" ||
		r.Body.GetResult().GetInsertedCount() != 1 || len(e.GetWriteErrors()) != 1 {
		t.Errorf("the error is %v, %v", e, r.Body.GetResult())
	}
}

const hello25 = `{"ok": 1, "isWritablePrimary": true, "maxWireVersion": 25, "maxWriteBatchSize": 100, "maxBsonObjectSize": 16777216, "maxMessageSizeBytes": 48000000}`

func on(namespace string, m *mooringv1.WriteModel) *mooringv1.WriteModel {
	m.Namespace = &namespace
	return m
}

// manyModels are writes on two collections.
func manyModels() []*mooringv1.WriteModel {
	return []*mooringv1.WriteModel{
		on("d.c", insertOne(`{"_id": 1}`)),
		on("e.x.y", updateOne(&mooringv1.UpdateOneModel{Filter: doc(`{}`), Update: operators(`{"$set": {"b": 1}}`)})),
		on("d.c", deleteOne(&mooringv1.DeleteOneModel{Filter: doc(`{}`)})),
	}
}

func TestBulkWriteOnManyCollections(t *testing.T) {
	g := start(t, fakemongo.Handlers{"hello": answer(t, hello25), "bulkWrite": answer(t, `{"ok": 1, "nErrors": 0, "nInserted": 1,
		"nMatched": 0, "nModified": 0, "nUpserted": 1, "nDeleted": 2, "writeConcernError": {"code": 64, "errmsg": "late"},
		"cursor": {"id": 0, "ns": "admin.$cmd.bulkWrite", "firstBatch": [{"ok": 1, "idx": 0, "n": 1},
			{"ok": 1, "idx": 1, "n": 1, "nModified": 0, "upserted": {"_id": "new"}}, {"ok": 1, "idx": 2, "n": 2}]}}`)})
	res, err := g.Document.BulkWrite(t.Context(), &mooringv1.BulkWriteRequest{
		Models: manyModels(), VerboseResults: new(true), Let: doc(`{"x": 1}`),
		Comment: value(`"hi"`),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(res.GetInsertedCount(), res.GetDeletedCount(), res.GetUpsertedCount(),
		res.GetWriteConcernError().GetCode(),
		len(res.GetInsertedIds()), len(res.GetUpsertedIds()), len(res.GetUpdateResults()),
		len(res.GetDeleteResults()))
	if want := "1 2 1 64 1 1 1 1"; got != want {
		t.Errorf("the result is %s, want %s", got, want)
	}
	if u := res.GetUpdateResults()[0]; u.GetIndex() != 1 || u.GetUpsertedId() == nil {
		t.Errorf("the update's result is %v", u)
	}
	commands := g.Server.Commands("bulkWrite")
	if len(commands) != 1 || len(commands[0].Sequences["ops"]) != 3 ||
		len(commands[0].Sequences["nsInfo"]) != 2 {
		t.Errorf("sent %v", commands)
	}
}

func TestBulkWriteOnManyCollectionsInPart(t *testing.T) {
	g := start(t, fakemongo.Handlers{"hello": answer(t, hello25), "bulkWrite": answer(t, `{"ok": 1, "nErrors": 1, "nInserted": 1,
		"nMatched": 0, "nModified": 0, "nUpserted": 0, "nDeleted": 0, "cursor": {"id": 0, "ns": "admin.$cmd.bulkWrite",
		"firstBatch": [{"ok": 0, "idx": 1, "code": 11000, "errmsg": "E11000", "n": 0}]}}`)})
	req := &mooringv1.BulkWriteRequest{Models: manyModels()}
	_, err := g.Document.BulkWrite(t.Context(), req)
	r := rpcerr.HTTP(err)
	if e := r.Body.GetError(); r.Code != 409 || len(e.GetWriteErrors()) != 1 ||
		e.GetRetry() != "never" || r.Body.GetResult().GetInsertedCount() != 1 {
		t.Errorf("the error is %v, %v", e, r.Body.GetResult())
	}
	req.ReturnPartialSuccess = new(true)
	res, err := g.Document.BulkWrite(t.Context(), req)
	if err != nil || len(res.GetWriteErrors()) != 1 || res.GetWriteErrors()[0].GetIndex() != 1 {
		t.Errorf("BulkWrite = %v, %v, want a partial success", res, err)
	}
	g.Server.Handle("bulkWrite", fakemongo.Always(fakemongo.Error(13, "Unauthorized", "not you")))
	_, err = g.Document.BulkWrite(t.Context(), req)
	if e := errorOf(t, err); e.GetReason() != "Unauthorized" {
		t.Errorf("the error is %v, want Unauthorized", e)
	}
	if result := rpcerr.HTTP(err).Body.GetResult(); result != nil {
		t.Errorf("the result of what did nothing is %v", result)
	}
}

// TestBulkWriteOnManyCollectionsEnds has a bulk write with a duplicate key end before the results
// of all its writes are read, and before all are sent.
func TestBulkWriteOnManyCollectionsEnds(t *testing.T) {
	const part = `{"ok": 1, "nErrors": 1, "nInserted": 1, "nMatched": 0, "nModified": 0,
		"nUpserted": 0, "nDeleted": 0, "cursor": {"id": %d, "ns": "admin.$cmd.bulkWrite",
		"firstBatch": [{"ok": 0, "idx": 1, "code": 11000, "errmsg": "E11000", "n": 0}]}}`
	const hello = `{"ok": 1, "isWritablePrimary": true, "maxWireVersion": 25, "maxWriteBatchSize": 2, "maxBsonObjectSize": 16777216, "maxMessageSizeBytes": 48000000}`
	lost := fakemongo.Always(fakemongo.Drop())
	for name, handlers := range map[string]fakemongo.Handlers{
		"503 NetworkError": {"hello": answer(t, hello25), "bulkWrite": answer(t, fmt.Sprintf(part, 7)), "getMore": lost},
		"500 WriteOutcomeUnknown": {
			"hello":     answer(t, hello),
			"bulkWrite": fakemongo.Times(1, answer(t, fmt.Sprintf(part, 0)), lost),
		},
	} {
		_, err := start(t, handlers).Document.BulkWrite(t.Context(), &mooringv1.BulkWriteRequest{
			Models: manyModels(), Ordered: new(false), ReturnPartialSuccess: new(true),
		})
		r := rpcerr.HTTP(err)
		e := r.Body.GetError()
		got := fmt.Sprint(r.Code, " ", e.GetReason())
		if got != name || e.GetRetry() != "never" || len(e.GetWriteErrors()) != 1 ||
			r.Body.GetResult().GetInsertedCount() != 1 {
			t.Errorf("%s, want %s: %v", got, name, r.Body)
		}
	}
}

func TestBulkWriteRefuses(t *testing.T) {
	g := start(t, nil)
	one := func(models ...*mooringv1.WriteModel) *mooringv1.BulkWriteRequest {
		return &mooringv1.BulkWriteRequest{Database: "d", Collection: "c", Models: models}
	}
	many := func(models ...*mooringv1.WriteModel) *mooringv1.BulkWriteRequest {
		return &mooringv1.BulkWriteRequest{Models: models}
	}
	fine := insertOne(`{}`)
	strange := insertOne(`{}`)
	unknownField(strange.GetInsertOne())
	late := insertOne(`{}`)
	unknownField(late)
	verbose := one(fine)
	verbose.VerboseResults = new(true)
	for name, test := range map[string]struct {
		req   *mooringv1.BulkWriteRequest
		field string
	}{
		"no models":             {one(), "models"},
		"no models at all":      {many(), "models"},
		"no kind":               {one(fine, &mooringv1.WriteModel{}), "models.1.kind"},
		"no document":           {one(&mooringv1.WriteModel{Kind: &mooringv1.WriteModel_InsertOne{InsertOne: &mooringv1.InsertOneModel{}}}), "models.0.insertOne.document"},
		"a malformed document":  {one(fine, insertOne(`{"a": x}`)), "models.1.insertOne.document.a"},
		"no filter":             {one(deleteOne(&mooringv1.DeleteOneModel{})), "models.0.deleteOne.filter"},
		"no update":             {one(updateOne(&mooringv1.UpdateOneModel{Filter: doc(`{}`)})), "models.0.updateOne.update"},
		"no operators":          {one(fine, updateOne(&mooringv1.UpdateOneModel{Filter: doc(`{}`), Update: operators(`{"a": 1}`)})), "models.1.updateOne.update"},
		"no replacement":        {one(replaceOne(&mooringv1.ReplaceOneModel{Filter: doc(`{}`)})), "models.0.replaceOne.replacement"},
		"operators":             {one(replaceOne(&mooringv1.ReplaceOneModel{Filter: doc(`{}`), Replacement: doc(`{"$set": {}}`)})), "models.0.replaceOne.replacement"},
		"an empty hint":         {one(deleteOne(&mooringv1.DeleteOneModel{Filter: doc(`{}`), Hint: &mooringv1.Hint{}})), "models.0.deleteOne.hint"},
		"an unknown field":      {one(strange), "models.0.insertOne"},
		"an unknown kind":       {one(late), "models.0.kind"},
		"a namespace for one":   {one(on("d.c", insertOne(`{}`))), "models.0.namespace"},
		"no namespace for many": {many(fine), "models.0.namespace"},
		"half a namespace":      {many(on("d.", insertOne(`{}`))), "models.0.namespace"},
		"verbose results":       {verbose, "verboseResults"},
		"no collection":         {&mooringv1.BulkWriteRequest{Database: "d", Models: []*mooringv1.WriteModel{fine}}, "collection"},
	} {
		_, err := g.Document.BulkWrite(t.Context(), test.req)
		if e := errorOf(t, err); status.Code(err) != codes.InvalidArgument ||
			e.GetField() != test.field {
			t.Errorf("%s: %v, field %q, want %q: %v", name, status.Code(err), e.GetField(),
				test.field, err)
		}
	}
	_, err := g.Document.BulkWrite(t.Context(), many(manyModels()...))
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a server without bulkWrite: %v", err)
	}
	if n := len(g.Server.Commands("insert", "update", "delete", "bulkWrite")); n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}

// TestBulkWriteTooLarge: what the server does not take is named, too.
func TestBulkWriteTooLarge(t *testing.T) {
	g := start(t, fakemongo.Handlers{
		"hello": answer(t,
			`{"ok": 1, "isWritablePrimary": true, "maxWireVersion": 21, "maxBsonObjectSize": 100}`),
	})
	large := payloadOf(servicetest.Doc(1, 200))
	_, err := g.Document.BulkWrite(t.Context(), &mooringv1.BulkWriteRequest{
		Database: "d", Collection: "c", Models: []*mooringv1.WriteModel{insertOne(`{}`), {
			Kind: &mooringv1.WriteModel_InsertOne{InsertOne: &mooringv1.InsertOneModel{Document: large}},
		}},
	})
	if r := rpcerr.HTTP(err); r.Code != 413 || r.Body.GetError().GetField() != "models.1" {
		t.Errorf("%d: %v, want 413 for models.1", r.Code, r.Body)
	}
}

func payloadOf(d bson.Raw) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: d}}
}

// TestExplain: the command is explained as it would be sent, and the reply comes as it is.
func TestExplain(t *testing.T) {
	g := start(t,
		fakemongo.Handlers{"explain": answer(t, `{"ok": 1, "queryPlanner": {"winningPlan": {}}}`)})
	ctx := t.Context()
	find, err := g.Document.ExplainFind(ctx, &mooringv1.ExplainFindRequest{
		Database: "d", Collection: "c", Filter: doc(`{"a": 1}`), Sort: doc(`{"a": 1}`),
		Limit:     new(int64(3)),
		BatchSize: new(int32(2)), Comment: value(`7`), Verbosity: new("executionStats"),
	})
	if err != nil || !bson.Raw(find.GetReply().GetBson()).Has("queryPlanner") {
		t.Errorf("ExplainFind = %v, %v", find, err)
	}
	want := `{"explain":{"find":"c","filter":{"a":1},"sort":{"a":1},"limit":3,"batchSize":2,"comment":7},"verbosity":"executionStats"}`
	if got := sent(t, g, "explain"); got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
	aggregate, err := g.Document.ExplainAggregate(ctx, &mooringv1.ExplainAggregateRequest{
		Database: "d", Collection: new("c"), Pipeline: []*mooringv1.Document{doc(`{"$match": {}}`)},
		AllowDiskUse: new(true), Options: doc(`{"future": 1}`),
	})
	if err != nil || !bson.Raw(aggregate.GetReply().GetBson()).Has("queryPlanner") {
		t.Errorf("ExplainAggregate = %v, %v", aggregate, err)
	}
	want = `{"explain":{"aggregate":"c","pipeline":[{"$match":{}}],"cursor":{},"allowDiskUse":true,"future":1}}`
	if got := sent(t, g, "explain"); got != want {
		t.Errorf("sent %s\nwant %s", got, want)
	}
	for name, call := range map[string]func() error{
		"verbosity": func() error {
			_, err := g.Document.ExplainFind(ctx, &mooringv1.ExplainFindRequest{
				Database: "d", Collection: "c", Verbosity: new(string),
			})
			return err
		},
		"verbosity ": func() error {
			_, err := g.Document.ExplainAggregate(ctx,
				&mooringv1.ExplainAggregateRequest{Database: "d", Verbosity: new(string)})
			return err
		},
		"collection": func() error {
			_, err := g.Document.ExplainAggregate(ctx,
				&mooringv1.ExplainAggregateRequest{Database: "d", Collection: new(string)})
			return err
		},
		"options.explain": func() error {
			_, err := g.Document.ExplainAggregate(ctx, &mooringv1.ExplainAggregateRequest{
				Database: "d", Options: doc(`{"explain": true}`),
			})
			return err
		},
	} {
		err := call()
		if e := errorOf(t, err); status.Code(err) != codes.InvalidArgument ||
			e.GetField()+" " != name && e.GetField() != name {
			t.Errorf("%s: %v, field %q", name, err, e.GetField())
		}
	}
}
