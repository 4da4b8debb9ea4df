package resource_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ejson(t *testing.T, text string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var doc = servicetest.JSON

func value(json string) *mooringv1.Value {
	return &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: json}}
}

func set(json string) *mooringv1.Update {
	return &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: doc(json)}}
}

// helloOfReplicaSet is a primary's, which takes exactly-once writes.
const helloOfReplicaSet = `{"ok": 1, "isWritablePrimary": true, "setName": "rs", "hosts": ["db.test:27017"], "me": "db.test:27017",
	"maxWireVersion": 25, "logicalSessionTimeoutMinutes": 30}`

// again is the name of the reply to all finds but the first.
const again = "find again"

// start starts a gateway before a server that answers these commands with these replies.
func start(t *testing.T, replies map[string]string) *servicetest.Gateway {
	t.Helper()
	handlers := fakemongo.Handlers{
		"hello": fakemongo.Always(fakemongo.Document(ejson(t, helloOfReplicaSet))),
	}
	for name, reply := range replies {
		if name != again {
			handlers[name] = fakemongo.Always(fakemongo.Document(ejson(t, reply)))
		}
	}
	if reply, ok := replies[again]; ok {
		then := fakemongo.Always(fakemongo.Document(ejson(t, reply)))
		handlers["find"] = fakemongo.Times(1, handlers["find"], then)
	}
	return servicetest.Start(t, fakemongo.NewServer(t, handlers), servicetest.Config{})
}

func found(docs string) string {
	return `{"ok": 1, "cursor": {"id": 0, "ns": "d.c", "firstBatch": [` + docs + `]}}`
}

// sent returns the commands of that name, as JSON without what does not matter.
func sent(t *testing.T, g *servicetest.Gateway, names ...string) (texts []string) {
	t.Helper()
	for _, c := range g.Server.Commands(names...) {
		text, err := extjson.Append(nil,
			bson.Without(c.Body, "$db", "maxTimeMS", "lsid", "txnNumber", "$clusterTime"),
			extjson.Relaxed)
		if err != nil {
			t.Fatal(err)
		}
		for _, docs := range c.Sequences {
			for _, d := range docs {
				if text, err = extjson.Append(append(text, ' '), d, extjson.Relaxed); err != nil {
					t.Fatal(err)
				}
			}
		}
		texts = append(texts, string(text))
	}
	return texts
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	e := rpcerr.HTTP(err).Body.GetError()
	return strings.TrimSpace(e.GetReason() + " " + e.GetField())
}

// TestGet reads documents by ids of all kinds.
func TestGet(t *testing.T) {
	const stored = `{"_id": 7, "a": {"$numberLong": "5"}}`
	g := start(t, map[string]string{"find": found(stored)})
	for _, row := range []struct {
		name, id string
		filter   string
		want     string
	}{
		{"number", `7`, ``, `"filter":{"_id":7}`},
		{"text", `"7"`, ``, `"filter":{"_id":"7"}`},
		{"null", `null`, ``, `"filter":{"_id":null}`},
		{"a document is not a condition", `{"$gt": ""}`, ``, `"filter":{"_id":{"$eq":{"$gt":""}}}`},
		{"a pattern is a value", `{"$regularExpression": {"pattern": "", "options": ""}}`, ``, `"filter":{"_id":{"$eq":{"$regularExpression":{"pattern":"","options":""}}}}`},
		{"with a shard key", `7`, `{"k": 1}`, `"filter":{"_id":7,"$and":[{"k":1}]}`},
		{"with the same _id", `7`, `{"_id": 7}`, `"filter":{"_id":7}`},
		{"with another _id", `7`, `{"_id": 8}`, `"filter":{"_id":7,"$and":[{"_id":8}]}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := &mooringv1.GetDocumentRequest{Database: "d", Collection: "c", Id: value(row.id)}
			if row.filter != "" {
				req.Filter = doc(row.filter)
			}
			res, err := g.Resource.GetDocument(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(res.GetDocument().GetBson(), ejson(t, stored)) ||
				len(res.GetEtag()) != 24 {
				t.Errorf("response %v", res)
			}
			all := sent(t, g, "find")
			if last := all[len(all)-1]; !strings.Contains(last, row.want) {
				t.Errorf("sent %s, want %s", last, row.want)
			}
		})
	}
	res, err := g.Resource.GetDocument(t.Context(), &mooringv1.GetDocumentRequest{
		Database: "d", Collection: "c", Id: value("7"), Projection: doc(`{"a": 1}`),
	})
	if err != nil || res.Etag != nil {
		t.Errorf("a projection: %v, %v; want no etag", res, err)
	}
}

// TestEtags: another document has another etag, the same one always the same.
func TestEtags(t *testing.T) {
	seen := map[string]string{}
	for _, stored := range []string{
		`{"_id": 1}`, `{"_id": {"$numberLong": "1"}}`, `{"_id": 1, "a": 1}`, `{"_id": 1, "a": {"$numberDouble": "1"}}`, `{"_id": 1}`,
	} {
		g := start(t, map[string]string{"find": found(stored)})
		res, err := g.Resource.GetDocument(t.Context(),
			&mooringv1.GetDocumentRequest{Database: "d", Collection: "c", Id: value("1")})
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[res.GetEtag()]; ok && other != stored {
			t.Errorf("%s and %s have the same etag", other, stored)
		}
		seen[res.GetEtag()] = stored
	}
	if len(seen) != 4 {
		t.Errorf("%d etags, want 4", len(seen))
	}
}

// stored is the document of the tests below, and tag its etag.
const stored = `{"_id": 7, "v": 1}`

func tagOf(t *testing.T, stored string) string {
	t.Helper()
	g := start(t, map[string]string{"find": found(stored)})
	res, err := g.Resource.GetDocument(t.Context(),
		&mooringv1.GetDocumentRequest{Database: "d", Collection: "c", Id: value("7")})
	if err != nil {
		t.Fatal(err)
	}
	return res.GetEtag()
}

const (
	replaced = `{"ok": 1, "lastErrorObject": {"n": 1, "updatedExisting": true}, "value": {"_id": 7, "v": 2}}`
	upserted = `{"ok": 1, "lastErrorObject": {"n": 1, "updatedExisting": false, "upserted": 7}, "value": {"_id": 7, "v": 2}}`
	unfound  = `{"ok": 1, "lastErrorObject": {"n": 0, "updatedExisting": false}, "value": null}`
	same     = `"$and":[{"$expr":{"$eq":["$$ROOT",{"$literal":{"_id":7,"v":1}}]}}]`
	never    = `"$and":[{"$expr":{"$eq":["$$ROOT",{"$literal":{}}]}}]`
)

// TestPut: each form of a PUT is one command that writes.
func TestPut(t *testing.T) {
	const cased = `{"_id": "A", "v": 1}`
	tag := tagOf(t, stored)
	for _, row := range []struct {
		name    string
		replies map[string]string
		change  func(*mooringv1.PutDocumentRequest)
		key     string
		want    string // the reason of the error
		created bool
		sent    []string // part of each write
	}{
		{
			"replaces",
			map[string]string{"findAndModify": replaced},
			nil, "", "", false,
			[]string{`"query":{"_id":7},"update":{"v":2},"new":true,"upsert":true`},
		},
		{"creates", map[string]string{"findAndModify": upserted}, nil, "", "", true, []string{`"upsert":true`}},
		{
			"with a filter",
			map[string]string{"findAndModify": replaced},
			func(r *mooringv1.PutDocumentRequest) { r.Filter = doc(`{"k": 1}`) }, "", "", false,
			[]string{`"query":{"_id":7,"$and":[{"k":1}]}`},
		},
		{
			"any",
			map[string]string{"findAndModify": replaced},
			func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{"*"} }, "", "", false,
			[]string{`"query":{"_id":7},"update":{"v":2},"new":true}`},
		},
		{
			"any, and there is none",
			map[string]string{"findAndModify": unfound},
			func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{"*"} }, "", "PreconditionFailed", false,
			[]string{`"new":true`},
		},
		{
			"etag",
			map[string]string{"find": found(stored), "findAndModify": replaced},
			func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{"other", tag} }, "", "", false,
			[]string{`"query":{"_id":7,` + same + `},"update":{"v":2},"new":true,"collation":{"locale":"simple"}`},
		},
		{
			"etag, and it changes before the write",
			map[string]string{"find": found(stored), "findAndModify": unfound, again: found(`{"_id": 7, "v": 3}`)},
			func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{tag} }, "", "PreconditionFailed", false,
			[]string{same},
		},
		{
			"etag, and it is deleted before the write",
			map[string]string{"find": found(stored), "findAndModify": unfound, again: found("")},
			func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{tag} }, "", "PreconditionFailed", false,
			[]string{same},
		},
		{
			"etag, and a server that does not evaluate $expr",
			map[string]string{"find": found(stored), "findAndModify": unfound},
			func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{tag} }, "", "InvalidArgument ifMatch", false,
			[]string{same},
		},
		{
			"etag, and an _id that is the same by the collection's collation",
			map[string]string{"find": found(cased), "findAndModify": replaced},
			func(r *mooringv1.PutDocumentRequest) { r.Id, r.IfMatch = value(`"a"`), []string{tagOf(t, cased)} }, "", "", false,
			[]string{`"query":{"_id":"A","$and"`},
		},
		{
			"another etag",
			map[string]string{"find": found(stored)},
			func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{"x"} }, "", "PreconditionFailed", false, nil,
		},
		{
			"etag, and there is none",
			map[string]string{"find": found("")},
			func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{tag} }, "", "PreconditionFailed", false, nil,
		},
		{
			"etag, repeated with a key",
			map[string]string{"find": found(`{"_id": 7, "v": 2}`), "findAndModify": replaced},
			func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{tag} }, "k", "", false,
			[]string{never},
		},
		{
			"another etag with a key",
			map[string]string{"find": found(`{"_id": 7, "v": 2}`), "findAndModify": unfound},
			func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{tag} }, "k", "PreconditionFailed", false,
			[]string{never},
		},
		{
			"only creates",
			map[string]string{"insert": `{"ok": 1, "n": 1}`},
			func(r *mooringv1.PutDocumentRequest) { r.OnlyCreate = new(true) }, "", "", true,
			[]string{`{"_id":7,"v":2}`},
		},
		{
			"only creates, and there is one",
			map[string]string{"insert": `{"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": 11000, "keyPattern": {"_id": 1}, "errmsg": "x"}]}`},
			func(r *mooringv1.PutDocumentRequest) { r.OnlyCreate = new(true) }, "", "PreconditionFailed", false,
			[]string{`{"_id":7,"v":2}`},
		},
		{
			"in the words of old servers",
			map[string]string{"insert": `{"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "E11000 duplicate key error collection: d.c index: _id_ dup key: { _id: 7 }"}]}`},
			func(r *mooringv1.PutDocumentRequest) { r.OnlyCreate = new(true) }, "", "PreconditionFailed", false,
			[]string{`{"_id":7,"v":2}`},
		},
		{
			"only creates, and another index has it",
			map[string]string{"insert": `{"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "E11000 duplicate key error collection: d.c index: user_id_1 dup key: { user_id: 7 }"}]}`},
			func(r *mooringv1.PutDocumentRequest) { r.OnlyCreate = new(true) }, "", "DuplicateKey", false,
			[]string{`{"_id":7,"v":2}`},
		},
		{
			"in no words, and there is one",
			map[string]string{"find": found(stored), "insert": `{"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "E11000 duplicate key error collection: d.c"}]}`},
			func(r *mooringv1.PutDocumentRequest) { r.OnlyCreate = new(true) }, "", "PreconditionFailed", false,
			[]string{`{"_id":7,"v":2}`},
		},
		{
			"in no words, and there is none",
			map[string]string{"find": found(""), "insert": `{"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "E11000 duplicate key error collection: d.c"}]}`},
			func(r *mooringv1.PutDocumentRequest) { r.OnlyCreate = new(true) }, "", "DuplicateKey", false,
			[]string{`{"_id":7,"v":2}`},
		},
		{
			"a server without collations",
			map[string]string{"find": found(stored), "findAndModify": `{"ok": 0, "code": 238, "errmsg": "collation is not implemented yet"}`},
			func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{tag} }, "", "InvalidArgument ifMatch", false,
			[]string{`"collation":{"locale":"simple"}`, same + `},"update":{"v":2},"new":true}`},
		},
		{
			"a server without $expr",
			map[string]string{"find": found(stored), "findAndModify": `{"ok": 0, "code": 2, "errmsg": "unknown top level operator: $expr"}`},
			func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{tag} }, "", "InvalidArgument ifMatch", false,
			[]string{same},
		},
		{
			"the same _id",
			map[string]string{"findAndModify": replaced},
			func(r *mooringv1.PutDocumentRequest) { r.Replacement = doc(`{"_id": {"$numberLong": "7"}, "v": 2}`) }, "", "", false,
			[]string{`"update":{"v":2}`},
		},
		{"another _id", nil, func(r *mooringv1.PutDocumentRequest) { r.Replacement = doc(`{"_id": 8}`) }, "", "InvalidArgument replacement._id", false, nil},
		{"no _id", nil, func(r *mooringv1.PutDocumentRequest) { r.Id = nil }, "", "InvalidArgument id", false, nil},
		{"no document", nil, func(r *mooringv1.PutDocumentRequest) { r.Replacement = nil }, "", "InvalidArgument replacement", false, nil},
		{"operators", nil, func(r *mooringv1.PutDocumentRequest) { r.Replacement = doc(`{"$set": {}}`) }, "", "InvalidArgument replacement", false, nil},
		{"both preconditions", nil, func(r *mooringv1.PutDocumentRequest) { r.OnlyCreate, r.IfMatch = new(true), []string{"x"} }, "", "InvalidArgument onlyCreate", false, nil},
		{"a filter of nothing", nil, func(r *mooringv1.PutDocumentRequest) { r.OnlyCreate, r.Filter = new(true), doc(`{"k": 1}`) }, "", "InvalidArgument filter", false, nil},
		{"* and an etag", nil, func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{"*", "x"} }, "", "InvalidArgument ifMatch", false, nil},
		{"empty etag", nil, func(r *mooringv1.PutDocumentRequest) { r.IfMatch = []string{""} }, "", "InvalidArgument ifMatch", false, nil},
		{"unacknowledged", nil, func(r *mooringv1.PutDocumentRequest) {
			r.WriteConcern = &mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Nodes{}}}
		}, "", "InvalidArgument writeConcern.w", false, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := start(t, row.replies)
			req := &mooringv1.PutDocumentRequest{
				Database: "d", Collection: "c", Id: value("7"), Replacement: doc(`{"v": 2}`),
			}
			if row.change != nil {
				row.change(req)
			}
			ctx := t.Context()
			if row.key != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", row.key)
			}
			res, err := g.Resource.PutDocument(ctx, req)
			if reasonOf(err) != row.want || res.GetCreated() != row.created {
				t.Fatalf("%v, %v; want %q, created %v", res, err, row.want, row.created)
			}
			if err == nil &&
				(res.Etag == nil ||
					!bytes.Equal(res.GetDocument().GetBson(), ejson(t, `{"_id": 7, "v": 2}`))) {
				t.Errorf("response %v", res)
			}
			expectSent(t, g, row.sent)
		})
	}
}

func expectSent(t *testing.T, g *servicetest.Gateway, want []string) {
	t.Helper()
	got := sent(t, g, "findAndModify", "insert", "update", "delete")
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.Contains(got[i], want[i]) {
			t.Fatalf("sent %q, want %q", got, want)
		}
	}
}

// TestTimestampOfZero: the server sets it, so that the etag is not known.
func TestTimestampOfZero(t *testing.T) {
	g := start(t, map[string]string{"insert": `{"ok": 1, "n": 1}`})
	res, err := g.Resource.PutDocument(t.Context(), &mooringv1.PutDocumentRequest{
		Database: "d", Collection: "c", Id: value("7"), OnlyCreate: new(true),
		Replacement: doc(`{"t": {"$timestamp": {"t": 0, "i": 0}}}`),
	})
	if err != nil || res.Etag != nil {
		t.Errorf("%v, %v; want no etag", res, err)
	}
}

// TestPatchAndDelete: the forms of the other changes.
func TestPatchAndDelete(t *testing.T) {
	tag := tagOf(t, stored)
	patch := func(
		ctx context.Context, g *servicetest.Gateway, tags []string, update *mooringv1.Update,
	) error {
		res, err := g.Resource.PatchDocument(ctx, &mooringv1.PatchDocumentRequest{
			Database: "d", Collection: "c", Id: value("7"), IfMatch: tags, Update: update,
		})
		if err == nil && res.Etag == nil {
			t.Error("no etag")
		}
		return err
	}
	remove := func(
		ctx context.Context, g *servicetest.Gateway, tags []string, _ *mooringv1.Update,
	) error {
		_, err := g.Resource.DeleteDocument(ctx, &mooringv1.DeleteDocumentRequest{
			Database: "d", Collection: "c", Id: value("7"), IfMatch: tags,
		})
		return err
	}
	for _, row := range []struct {
		name    string
		call    func(context.Context, *servicetest.Gateway, []string, *mooringv1.Update) error
		replies map[string]string
		tags    []string
		update  *mooringv1.Update
		want    string
		sent    []string
	}{
		{"patch", patch, map[string]string{"findAndModify": replaced}, nil, set(`{"$set": {"v": 2}}`), "", []string{`"query":{"_id":7},"update":{"$set":{"v":2}},"new":true}`}},
		{
			"patch by a pipeline", patch,
			map[string]string{"findAndModify": replaced},
			nil,
			&mooringv1.Update{Kind: &mooringv1.Update_Pipeline{Pipeline: &mooringv1.Pipeline{Stages: []*mooringv1.Document{doc(`{"$set": {"v": 2}}`)}}}},
			"",
			[]string{`"update":[{"$set":{"v":2}}]`},
		},
		{"patch of nothing", patch, map[string]string{"findAndModify": unfound}, nil, set(`{"$set": {"v": 2}}`), "DocumentNotFound", []string{`"new":true`}},
		{"patch of any", patch, map[string]string{"findAndModify": unfound}, []string{"*"}, set(`{"$set": {"v": 2}}`), "PreconditionFailed", []string{`"new":true`}},
		{"patch of an etag", patch, map[string]string{"find": found(stored), "findAndModify": replaced}, []string{tag}, set(`{"$set": {"v": 2}}`), "", []string{same}},
		{"patch of another", patch, map[string]string{"find": found(stored)}, []string{"x"}, set(`{"$set": {"v": 2}}`), "PreconditionFailed", nil},
		{"patch without operators", patch, nil, nil, set(`{"v": 2}`), "InvalidArgument update", nil},
		{"patch without an update", patch, nil, nil, nil, "InvalidArgument update", nil},
		{"delete", remove, map[string]string{"delete": `{"ok": 1, "n": 1}`}, nil, nil, "", []string{`{"q":{"_id":7},"limit":1}`}},
		{"delete of nothing", remove, map[string]string{"delete": `{"ok": 1, "n": 0}`}, nil, nil, "DocumentNotFound", []string{`{"_id":7}`}},
		{"delete of any", remove, map[string]string{"delete": `{"ok": 1, "n": 0}`}, []string{"*"}, nil, "PreconditionFailed", []string{`{"_id":7}`}},
		{"delete of an etag", remove, map[string]string{"find": found(stored), "delete": `{"ok": 1, "n": 1}`}, []string{tag}, nil, "", []string{same}},
		{"delete where $expr is not evaluated", remove, map[string]string{"find": found(stored), "delete": `{"ok": 1, "n": 0}`}, []string{tag}, nil, "InvalidArgument ifMatch", []string{same}},
		{"delete of another", remove, map[string]string{"find": found(stored)}, []string{"x"}, nil, "PreconditionFailed", nil},
		{
			"delete without $expr", remove,
			map[string]string{"find": found(stored), "delete": `{"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": 2, "errmsg": "unknown operator: $expr"}]}`},
			[]string{tag},
			nil, "InvalidArgument ifMatch",
			[]string{same},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := start(t, row.replies)
			if err := row.call(t.Context(), g, row.tags, row.update); reasonOf(err) != row.want {
				t.Fatalf("%v, want %q", err, row.want)
			}
			expectSent(t, g, row.sent)
		})
	}
}

// TestMissing: GET of nothing.
func TestMissing(t *testing.T) {
	g := start(t, map[string]string{"find": found("")})
	_, err := g.Resource.GetDocument(t.Context(),
		&mooringv1.GetDocumentRequest{Database: "d", Collection: "c", Id: value("7")})
	if reasonOf(err) != "DocumentNotFound" {
		t.Error(err)
	}
}

// changesOf returns each form of a change of the document 7, by name.
func changesOf(
	g *servicetest.Gateway, session *string, tags []string,
) map[string]func(context.Context) error {
	const d, c = "d", "c"
	return map[string]func(context.Context) error{
		"put": func(ctx context.Context) error {
			_, err := g.Resource.PutDocument(ctx, &mooringv1.PutDocumentRequest{
				Database: d, Collection: c, Id: value("7"), Session: session, IfMatch: tags,
				Replacement: doc(`{"v": 2}`),
			})
			return err
		},
		"patch": func(ctx context.Context) error {
			_, err := g.Resource.PatchDocument(ctx, &mooringv1.PatchDocumentRequest{
				Database: d, Collection: c, Id: value("7"), Session: session, IfMatch: tags,
				Update: set(`{"$set": {"v": 2}}`),
			})
			return err
		},
		"delete": func(ctx context.Context) error {
			_, err := g.Resource.DeleteDocument(ctx, &mooringv1.DeleteDocumentRequest{
				Database: d, Collection: c, Id: value("7"), Session: session, IfMatch: tags,
			})
			return err
		},
		"create": func(ctx context.Context) error {
			_, err := g.Resource.PutDocument(ctx, &mooringv1.PutDocumentRequest{
				Database: d, Collection: c, Id: value("7"), Session: session,
				OnlyCreate: new(true), Replacement: doc(`{"v": 2}`),
			})
			return err
		},
	}
}

// TestReadInSession checks that the read for a precondition sees what the session has seen.
func TestReadInSession(t *testing.T) {
	const seen = `"afterClusterTime":{"$timestamp":{"t":9,"i":1}}`
	tag := tagOf(t, stored)
	for _, name := range []string{"put", "patch", "delete"} {
		g := start(t, map[string]string{
			"find": strings.TrimSuffix(found(stored), "}") +
				`, "operationTime": {"$timestamp": {"t": 9, "i": 1}}}`,
			"findAndModify": replaced,
			"delete":        `{"ok": 1, "n": 1}`,
		})
		started, err := g.Session.Start(t.Context(), &mooringv1.SessionServiceStartRequest{})
		if err != nil {
			t.Fatal(err)
		}
		res, err := g.Resource.GetDocument(t.Context(), &mooringv1.GetDocumentRequest{
			Database: "d", Collection: "c", Id: value("7"), Session: &started.Session,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := changesOf(g, res.Session, []string{tag})[name](t.Context()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if reads := sent(t, g, "find"); len(reads) != 2 || !strings.Contains(reads[1], seen) {
			t.Errorf("%s: reads %q, want %s in the second", name, reads, seen)
		}
	}
}

// TestMajorityBehind checks that a precondition is that of the newest document, and not of an
// older one, which a majority of the servers has and the connection string asks for.
func TestMajorityBehind(t *testing.T) {
	tag := tagOf(t, stored)
	for _, name := range []string{"put", "patch", "delete", "create"} {
		majority := found(stored)
		if name == "create" {
			majority = found("")
		}
		server := fakemongo.NewServer(t, fakemongo.Handlers{
			"hello":         fakemongo.Always(fakemongo.Document(ejson(t, helloOfReplicaSet))),
			"findAndModify": fakemongo.Always(fakemongo.Document(ejson(t, unfound))),
			"delete":        fakemongo.Always(fakemongo.Document(ejson(t, `{"ok": 1, "n": 0}`))),
			"insert": fakemongo.Always(fakemongo.Document(ejson(t,
				`{"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "x"}]}`))),
			"find": func(c *fakemongo.Command) fakemongo.Reply {
				level, _ := c.Body.Lookup("readConcern", "level")
				if text, _ := level.Str(); text == "majority" {
					return fakemongo.Document(ejson(t, majority))
				}
				return fakemongo.Document(ejson(t, found(`{"_id": 7, "v": 3}`)))
			},
		})
		g := servicetest.Start(t, server,
			servicetest.Config{URIOptions: "readConcernLevel=majority"})
		err := changesOf(g, nil, []string{tag})[name](t.Context())
		if got := reasonOf(err); got != "PreconditionFailed" {
			t.Errorf("%s: %v, want PreconditionFailed", name, err)
		}
	}
}

// TestUnacknowledged checks that a change has no outcome if the deployment asks for none.
func TestUnacknowledged(t *testing.T) {
	for _, name := range []string{"put", "patch", "delete", "create"} {
		server := fakemongo.NewServer(t, fakemongo.Handlers{
			"hello": fakemongo.Always(fakemongo.Document(ejson(t, helloOfReplicaSet))),
			"findAndModify": fakemongo.Always(
				fakemongo.Document(ejson(t, `{"ok": 1, "value": null}`))),
		})
		g := servicetest.Start(t, server, servicetest.Config{URIOptions: "w=0"})
		err := changesOf(g, nil, nil)[name](t.Context())
		if got := reasonOf(err); got != "WriteOutcomeUnknown" {
			t.Errorf("%s: %v, want WriteOutcomeUnknown", name, err)
		}
	}
}

// TestUnencodable checks that a changed document that has no JSON is an error.
func TestUnencodable(t *testing.T) {
	bad := bson.NewBuilder(nil).Int32("_id", 7).String("v", "\xff").Finish()
	reply := bson.NewBuilder(nil).Int32("ok", 1).
		Document("lastErrorObject", ejson(t, `{"n": 1, "updatedExisting": true}`)).
		Document("value", bad).Finish()
	for _, name := range []string{"put", "patch"} {
		server := fakemongo.NewServer(t, fakemongo.Handlers{
			"hello":         fakemongo.Always(fakemongo.Document(ejson(t, helloOfReplicaSet))),
			"findAndModify": fakemongo.Always(fakemongo.Document(reply)),
		})
		g := servicetest.Start(t, server, servicetest.Config{})
		ctx := metadata.AppendToOutgoingContext(t.Context(), "mooring-document-encoding", "json")
		err := changesOf(g, nil, nil)[name](ctx)
		if got := reasonOf(err); got != "InvalidUTF8" {
			t.Errorf("%s: %v, want InvalidUTF8", name, err)
		}
	}
}
