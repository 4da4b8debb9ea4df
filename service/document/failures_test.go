package document_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestPartialFailure(t *testing.T) {
	writeErrors := func(b *bson.Builder) {
		b.Int32("n", 2).OpenArray("writeErrors").OpenDocument("").Int32("index", 1).
			Int32("code", 11000).String("errmsg", "E11000").
			OpenDocument("keyPattern").Int32("_id", 1).Close().OpenDocument("keyValue").
			Int32("_id", 2).Close().Close().Close()
	}
	g := start(t, fakemongo.Handlers{"insert": reply(writeErrors)})
	req := &mooringv1.InsertManyRequest{
		Database: "d", Collection: "c", Ordered: new(false),
		Documents: []*mooringv1.Document{doc(`{"_id": 1}`), doc(`{"_id": 2}`), doc(`{"_id": 3}`)},
	}
	_, err := g.Document.InsertMany(t.Context(), req)
	r := rpcerr.HTTP(err)
	e := r.Body.GetError()
	if r.Code != 409 || e.GetServer().GetCode() != 11000 || len(e.GetWriteErrors()) != 1 ||
		e.GetWriteErrors()[0].GetIndex() != 1 {
		t.Errorf("error %v", e)
	}
	if res := r.Body.GetResult(); res.GetInsertedCount() != 2 || len(res.GetInsertedIds()) != 2 ||
		res.GetInsertedIds()[1].GetIndex() != 2 {
		t.Errorf("result %v", res)
	}
	req.ReturnPartialSuccess = new(true)
	res, err := g.Document.InsertMany(t.Context(), req)
	if err != nil || res.GetInsertedCount() != 2 || len(res.GetWriteErrors()) != 1 ||
		res.GetWriteErrors()[0].GetKeyValue() == nil {
		t.Errorf("InsertMany = %v, %v", res, err)
	}
	_, err = g.Document.InsertOne(t.Context(),
		&mooringv1.InsertOneRequest{Database: "d", Collection: "c", Document: doc(`{"_id": 2}`)})
	if e := errorOf(t, err); status.Code(err) != codes.AlreadyExists ||
		len(e.GetWriteErrors()) != 1 {
		t.Errorf("InsertOne: %v", e)
	}
}

// TestPartialFailureOfALaterCommand has an insert that the gateway splits into two commands, the
// second of which the server refuses in a way that alone could be repeated.
func TestPartialFailureOfALaterCommand(t *testing.T) {
	notPrimary := fakemongo.Error(10107, "NotWritablePrimary", "not primary", "RetryableWriteError")
	halfDone := fakemongo.OK(func(b *bson.Builder) {
		b.Int32("n", 1).OpenArray("writeErrors").OpenDocument("").
			Int32("index", 1).Int32("code", 11000).String("errmsg", "E11000").Close().Close()
	})
	noneDone := fakemongo.OK(func(b *bson.Builder) {
		b.Int32("n", 0).OpenArray("writeErrors").
			OpenDocument("").Int32("index", 0).Int32("code", 11000).String("errmsg", "E11000").
			Close().
			OpenDocument("").Int32("index", 1).Int32("code", 11000).String("errmsg", "E11000").
			Close().Close()
	})
	allDone := fakemongo.OK(func(b *bson.Builder) { b.Int32("n", 2) })
	for name, test := range map[string]struct {
		first, second fakemongo.Reply
		partial       bool
		want          string // HTTP status, reason, retry, what was inserted, write errors
	}{
		"all of the first":          {allDone, notPrimary, false, "503 NotWritablePrimary never 2 0"},
		"all, and partial success":  {allDone, notPrimary, true, "503 NotWritablePrimary never 2 0"},
		"half of the first":         {halfDone, notPrimary, false, "503 NotWritablePrimary never 1 1"},
		"half, and partial success": {halfDone, notPrimary, true, "503 NotWritablePrimary never 1 1"},
		"none of the first":         {noneDone, notPrimary, false, "503 NotWritablePrimary same-request 0 2"},
		"nothing at all":            {notPrimary, notPrimary, false, "503 NotWritablePrimary same-request 0 0"},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, fakemongo.Handlers{
				"hello": reply(func(b *bson.Builder) {
					b.Bool("isWritablePrimary", true).Int32("maxWriteBatchSize", 2).
						Int32("maxWireVersion", 21)
				}),
				"insert": fakemongo.Times(1, fakemongo.Always(test.first),
					fakemongo.Always(test.second)),
			})
			_, err := g.Document.InsertMany(t.Context(), &mooringv1.InsertManyRequest{
				Database: "d", Collection: "c", Ordered: new(false),
				ReturnPartialSuccess: &test.partial,
				Documents: []*mooringv1.Document{
					doc(`{"_id": 1}`), doc(`{"_id": 2}`), doc(`{"_id": 3}`),
				},
			})
			r := rpcerr.HTTP(err)
			e := r.Body.GetError()
			got := fmt.Sprint(r.Code, " ", e.GetReason(), " ", e.GetRetry(), " ",
				r.Body.GetResult().GetInsertedCount(), " ", len(e.GetWriteErrors()))
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestUnconfirmedInPart has writes of two commands, of which the first is done without its write
// concern, and the second fails.
func TestUnconfirmedInPart(t *testing.T) {
	hello := answer(t, `{"ok": 1, "isWritablePrimary": true, "maxWireVersion": 25,
		"maxWriteBatchSize": 1, "maxBsonObjectSize": 16777216, "maxMessageSizeBytes": 48000000}`)
	first := answer(t, `{"ok": 1, "n": 1, "writeConcernError": {"code": 64, "errmsg": "late"}}`)
	duplicate := answer(t,
		`{"ok": 1, "n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "E11000"}]}`)
	refused := fakemongo.Always(fakemongo.Error(10107, "NotWritablePrimary", "not primary"))
	const oneOfMany = `{"ok": 1, "nErrors": 0, "nInserted": 1, "nMatched": 0, "nModified": 0,
		"nUpserted": 0, "nDeleted": 0, "writeConcernError": {"code": 64, "errmsg": "late"},
		"cursor": {"id": 0, "ns": "admin.$cmd.bulkWrite", "firstBatch": []}}`
	const noneOfMany = `{"ok": 1, "nErrors": 1, "nInserted": 0, "nMatched": 0, "nModified": 0,
		"nUpserted": 0, "nDeleted": 0, "cursor": {"id": 0, "ns": "admin.$cmd.bulkWrite",
		"firstBatch": [{"ok": 0, "idx": 0, "code": 11000, "errmsg": "E11000", "n": 0}]}}`
	insertMany := func(g *servicetest.Gateway, ordered bool) error {
		_, err := g.Document.InsertMany(t.Context(), &mooringv1.InsertManyRequest{
			Database: "d", Collection: "c", Ordered: &ordered,
			Documents: []*mooringv1.Document{doc(`{"_id": 1}`), doc(`{"_id": 2}`)},
		})
		return err
	}
	bulkWrite := func(g *servicetest.Gateway, ordered bool) error {
		_, err := g.Document.BulkWrite(t.Context(), &mooringv1.BulkWriteRequest{
			Database: "d", Collection: "c", Ordered: &ordered,
			Models: []*mooringv1.WriteModel{insertOne(`{"_id": 1}`), insertOne(`{"_id": 2}`)},
		})
		return err
	}
	onMany := func(g *servicetest.Gateway, ordered bool) error {
		_, err := g.Document.BulkWrite(t.Context(), &mooringv1.BulkWriteRequest{
			Ordered: &ordered, Models: []*mooringv1.WriteModel{
				on("d.c", insertOne(`{"_id": 1}`)), on("d.c", insertOne(`{"_id": 2}`)),
			},
		})
		return err
	}
	imports := func(g *servicetest.Gateway, ordered bool) error {
		const large = 2 << 20 // a batch of its own
		m := to(batch(1, 1, large))
		m.Ordered = &ordered
		_, err := importing(t.Context(), t, g, m, batch(2, 1, large))
		return err
	}
	for name, test := range map[string]struct {
		call          func(*servicetest.Gateway, bool) error
		first, second fakemongo.Handler
		want          string // HTTP status, reason
	}{
		"an insert, a duplicate":     {insertMany, first, duplicate, "409 DuplicateKey"},
		"an insert, a refusal":       {insertMany, first, refused, "503 NotWritablePrimary"},
		"a bulk, a duplicate":        {bulkWrite, first, duplicate, "409 DuplicateKey"},
		"a bulk, a refusal":          {bulkWrite, first, refused, "503 NotWritablePrimary"},
		"a bulk on many, duplicates": {onMany, answer(t, oneOfMany), answer(t, noneOfMany), "409 DuplicateKey"},
		"a bulk on many, a refusal":  {onMany, answer(t, oneOfMany), refused, "503 NotWritablePrimary"},
		"an import, a duplicate":     {imports, first, duplicate, "409 DuplicateKey"},
		"an import, a refusal":       {imports, first, refused, "503 NotWritablePrimary"},
	} {
		for _, ordered := range []bool{true, false} {
			second := fakemongo.Times(1, test.first, test.second)
			g := start(t, fakemongo.Handlers{"hello": hello, "insert": second, "bulkWrite": second})
			r := rpcerr.HTTP(test.call(g, ordered))
			e := r.Body.GetError()
			got := fmt.Sprint(r.Code, " ", e.GetReason())
			if got != test.want || e.GetRetry() != "never" ||
				r.Body.GetResult().GetInsertedCount() != 1 ||
				e.GetWriteConcernError().GetCode() != 64 {
				t.Errorf("%s, ordered %t: %s, want %s: %v", name, ordered, got, test.want, r.Body)
			}
		}
	}
}

func raw(d *mooringv1.Document) bson.Raw { return d.GetBson() }

func TestDeadlines(t *testing.T) {
	g := start(t, fakemongo.Handlers{"update": fakemongo.Always(fakemongo.Hang())})
	g.Server.SetDocuments("d.c", servicetest.Docs(1, 1)...)
	deadline := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	maxTime := func() bool {
		c := g.Server.Commands("find", "aggregate")
		return c[len(c)-1].Body.Has("maxTimeMS")
	}
	if _, err := g.Document.Find(deadline(),
		&mooringv1.FindRequest{Database: "d", Collection: "c"}); err != nil || maxTime() {
		t.Errorf("a page sends maxTimeMS: %v, %v", maxTime(), err)
	}
	pipeline := &mooringv1.AggregateRequest{Database: "d", Collection: new("c")}
	if _, err := g.Document.Aggregate(deadline(), pipeline); err != nil || maxTime() {
		t.Errorf("a page of a pipeline sends maxTimeMS: %v, %v", maxTime(), err)
	}
	if _, err := g.Document.FindOne(deadline(),
		&mooringv1.FindOneRequest{Database: "d", Collection: "c"}); err != nil || !maxTime() {
		t.Errorf("FindOne sends maxTimeMS: %v, %v", maxTime(), err)
	}
	ss, err := g.Document.StreamFind(deadline(),
		&mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
	if err == nil {
		_, err = ss.Recv()
	}
	if err != nil || !maxTime() {
		t.Errorf("a stream sends maxTimeMS: %v, %v", maxTime(), err)
	}
	// Half a second on a slow command, and its connection is not used again.
	g.Server.Handle("find", fakemongo.Always(fakemongo.Hang()))
	connections := g.Server.AcceptedConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = g.Document.FindOne(ctx, &mooringv1.FindOneRequest{Database: "d", Collection: "c"})
	if status.Code(err) != codes.DeadlineExceeded || time.Since(begin) > 10*time.Second {
		t.Errorf("FindOne = %v after %v", err, time.Since(begin))
	}
	g.Server.Handle("find", nil)
	g.Idle(0)
	if _, err := g.Document.FindOne(t.Context(),
		&mooringv1.FindOneRequest{Database: "d", Collection: "c"}); err != nil {
		t.Error(err)
	}
	if g.Server.AcceptedConnections() == connections {
		t.Error("the connection was used again")
	}
	// A write in flight.
	ctx = metadata.AppendToOutgoingContext(t.Context(), "mooring-timeout", "500ms")
	ctx, cancel = context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err = g.Document.UpdateOne(ctx, &mooringv1.UpdateOneRequest{
		Database: "d", Collection: "c", Filter: doc(`{}`),
		Update: &mooringv1.Update{
			Kind: &mooringv1.Update_Operators{Operators: doc(`{"$set": {"a": 1}}`)},
		},
	})
	if e := errorOf(t, err); status.Code(err) != codes.DeadlineExceeded ||
		e.GetReason() != "WriteOutcomeUnknown" {
		t.Errorf("a write in flight: %v", e)
	}
}

func TestServerDown(t *testing.T) {
	g := servicetest.Start(t, fakemongo.NewServer(t, nil),
		servicetest.Config{URIOptions: "serverSelectionTimeoutMS=200"})
	g.Server.SetDown(true)
	begin := time.Now()
	_, err := g.Document.FindOne(t.Context(),
		&mooringv1.FindOneRequest{Database: "d", Collection: "c"})
	r := rpcerr.HTTP(err)
	if r.Code != 503 || r.RetryAfter == 0 || time.Since(begin) > 10*time.Second {
		t.Errorf("%d, retry after %v, in %v: %v", r.Code, r.RetryAfter, time.Since(begin), err)
	}
}

// TestLocalCannotBeForged checks that a client on the network cannot say what only a caller within
// the process can: its BSON is validated, whatever the metadata and the context of the call have.
func TestLocalCannotBeForged(t *testing.T) {
	g := start(t, nil)
	var keys []string
	for _, key := range []string{"request-id", "casual", "text", "built", "local"} {
		keys = append(keys, "mooring-"+key, "true", key, "true")
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), keys...)
	local := call.Local{RequestID: "forged", Casual: true, Text: true, Built: true}
	_, err := g.Document.InsertOne(&call.LocalContext{Context: ctx, Local: local},
		&mooringv1.InsertOneRequest{
			Database: "d", Collection: "c",
			Document: &mooringv1.Document{
				Encoding: &mooringv1.Document_Bson{Bson: []byte{5, 0, 0, 0, 1}},
			},
		})
	e := errorOf(t, err)
	if e.GetReason() != "MalformedDocument" || e.GetField() != "document" ||
		e.GetRequestId() == "forged" {
		t.Errorf("malformed BSON: %v", e)
	}
	if n := len(g.Server.Commands("insert")); n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}

// TestPageThatCannotBeEncoded: its client gets no token, so the cursor is not left open.
func TestPageThatCannotBeEncoded(t *testing.T) {
	deep := bson.NewBuilder(nil).Int32("a", 1).Finish()
	for range bson.MaxDepth + 1 {
		deep = bson.NewBuilder(nil).Document("a", deep).Finish()
	}
	g := start(t, nil)
	g.Server.SetDocuments("d.c", append([]bson.Raw{deep}, servicetest.Docs(10, 1)...)...)
	size := new(int32(2))
	for name, call := range map[string]func(ctx context.Context) error{
		"Find": func(ctx context.Context) error {
			_, err := g.Document.Find(ctx,
				&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: size})
			return err
		},
		"Aggregate": func(ctx context.Context) error {
			_, err := g.Document.Aggregate(ctx,
				&mooringv1.AggregateRequest{Database: "d", Collection: new("c"), BatchSize: size})
			return err
		},
		"RunCursorCommand": func(ctx context.Context) error {
			_, err := g.Command.RunCursorCommand(ctx, &mooringv1.RunCursorCommandRequest{
				Database: "d", Command: doc(`{"find": "c", "batchSize": 2}`),
			})
			return err
		},
	} {
		if err := call(metadata.AppendToOutgoingContext(t.Context(), "mooring-document-encoding",
			"json")); err == nil {
			t.Errorf("%s: the document was encoded", name)
		}
		g.Idle(0)
		if n := len(g.Handles.Handles(handle.Query{Limit: 10})); n != 0 {
			t.Errorf("%s: %d handles are open", name, n)
		}
		if err := call(t.Context()); err != nil {
			t.Errorf("%s in the native form: %v", name, err)
		}
		for _, h := range g.Handles.Handles(handle.Query{Limit: 10}) {
			if err := g.Handles.Kill(t.Context(), h.ID); err != nil {
				t.Error(err)
			}
		}
	}
}
