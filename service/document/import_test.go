package document_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

// importing sends messages, as far as they are taken, and returns the answer.
func importing(
	ctx context.Context, t *testing.T, g *servicetest.Gateway, messages ...*mooringv1.ImportRequest,
) (*mooringv1.ImportResponse, error) {
	t.Helper()
	ss, err := g.Document.Import(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if err := ss.Send(m); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	return ss.CloseAndRecv()
}

// batch is a message with documents {_id: first}, {_id: first+1}, ….
func batch(first, n, size int) *mooringv1.ImportRequest {
	m := &mooringv1.ImportRequest{}
	for i := range n {
		m.Documents = append(m.Documents, payloadOf(servicetest.Doc(first+i, size)))
	}
	return m
}

func to(m *mooringv1.ImportRequest) *mooringv1.ImportRequest {
	m.Database, m.Collection = "d", "c"
	return m
}

// refusing answers inserts, and refuses the documents with these _ids.
func refusing(ids ...int32) fakemongo.Handler {
	return func(c *fakemongo.Command) fakemongo.Reply {
		ordered, _ := c.Body.Lookup("ordered")
		stop, _ := ordered.Bool()
		n := 0
		b := bson.NewBuilder(nil).Int32("ok", 1).OpenArray("writeErrors")
		for i, doc := range c.Sequences["documents"] {
			v, _ := doc.Lookup("_id")
			id, _ := v.Int32()
			refused := false
			for _, r := range ids {
				refused = refused || r == id
			}
			if !refused {
				n++
				continue
			}
			b.OpenDocument("").Int32("index", int32(i)).Int32("code", 11000).
				String("errmsg", "E11000").Close()
			if stop {
				break
			}
		}
		b.Close().Int32("n", int32(n))
		d := b.Finish()
		if v, _ := d.Lookup("writeErrors"); len(v.Data) == 5 {
			d = bson.Without(d, "writeErrors")
		}
		return fakemongo.Document(d)
	}
}

// TestImport: small messages go together, large ones alone, and the options hold for all.
func TestImport(t *testing.T) {
	g := start(t, nil)
	const size = 100 << 10
	first := to(batch(0, 4, size))
	first.Ordered, first.BypassDocumentValidation = new(false), new(true)
	first.Comment, first.Options = value(`"hi"`), doc(`{"future": 1}`)
	res, err := importing(t.Context(), t, g, first, batch(4, 4, size), batch(8, 4, size),
		batch(12, 20, size), batch(32, 1, 0))
	if err != nil || !res.GetAcknowledged() || res.GetInsertedCount() != 33 ||
		res.FailedCount == nil || res.GetFailedCount() != 0 {
		t.Fatalf("Import = %v, %v, want 33 documents", res, err)
	}
	var sizes []int
	for _, c := range g.Server.Commands("insert") {
		sizes = append(sizes, len(c.Sequences["documents"]))
		for _, option := range []string{"bypassDocumentValidation", "comment", "future"} {
			if !c.Body.Has(option) {
				t.Errorf("a batch has no %s: %v", option, c.Body)
			}
		}
	}
	if got, want := fmt.Sprint(sizes), "[12 20 1]"; got != want {
		t.Errorf("the batches have %s documents, want %s", got, want)
	}
	if n := len(g.Server.Documents("d.c")); n != 33 {
		t.Errorf("the collection has %d documents, want 33", n)
	}
}

// TestImportOfTinyDocuments checks that a batch has no more documents than there is memory for,
// which is much more than their bytes.
func TestImportOfTinyDocuments(t *testing.T) {
	g := start(t, nil)
	m := &mooringv1.ImportRequest{}
	for range 1000 {
		m.Documents = append(m.Documents, payloadOf(bson.NewBuilder(nil).Finish()))
	}
	messages := []*mooringv1.ImportRequest{to(proto.CloneOf(m))}
	for range 19 {
		messages = append(messages, m)
	}
	res, err := importing(t.Context(), t, g, messages...)
	if err != nil || res.GetInsertedCount() != 20_000 {
		t.Fatalf("Import = %v, %v, want 20,000 documents", res, err)
	}
	var sizes []int
	for _, c := range g.Server.Commands("insert") {
		sizes = append(sizes, len(c.Sequences["documents"]))
	}
	if got, want := fmt.Sprint(sizes), "[8000 8000 4000]"; got != want {
		t.Errorf("the batches have %s documents, want %s", got, want)
	}
}

// TestImportTakesPlaces checks that an import needs a place among the calls in flight: its first
// batch is refused without one, and later ones wait.
func TestImportTakesPlaces(t *testing.T) {
	a := admission.New(admission.Config{Calls: admission.Limits{Each: 1}})
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{Admission: a})
	ctx := servicetest.As(t.Context(), "p")
	var other admission.Account
	a.Open(&other, admission.Principal{Name: "p"})
	if err := other.EnterCommand(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	_, err := importing(ctx, t, g, to(batch(0, 1, 10)))
	if status.Code(err) != codes.ResourceExhausted || len(g.Server.Commands("insert")) > 0 {
		t.Errorf("Import without a place: %v, want a refusal before anything is sent", err)
	}
	other.LeaveCommand()
	ss, err := g.Document.Import(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const large = 2 << 20 // a batch of its own
	if err := ss.Send(to(batch(0, 1, large))); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "the first batch", func() bool {
		return len(g.Server.Documents("d.c")) == 1 && a.Calls().Held == 0
	})
	if err := other.EnterCommand(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := ss.Send(batch(1, 1, large)); err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "the second batch waiting", func() bool {
		return a.Calls().Waiting == 1
	})
	other.LeaveCommand()
	if res, err := ss.CloseAndRecv(); err != nil || res.GetInsertedCount() != 2 {
		t.Errorf("Import = %v, %v, want 2 documents", res, err)
	}
}

func TestImportInPart(t *testing.T) {
	const size = 600 << 10
	messages := func() []*mooringv1.ImportRequest {
		return []*mooringv1.ImportRequest{
			to(batch(0, 2, size)), batch(2, 2, size), batch(4, 2, size),
		}
	}
	for name, test := range map[string]struct {
		ordered, tolerant bool
		// inserted, failed or write errors, index of the first, inserts sent
		want string
	}{
		"ordered":                 {true, false, "409 DuplicateKey never 3 1 3 2"},
		"ordered, and tolerant":   {true, true, "207 3 1 3 2"},
		"unordered":               {false, false, "409 DuplicateKey never 4 2 3 3"},
		"unordered, and tolerant": {false, true, "207 4 2 3 3"},
	} {
		g := start(t, fakemongo.Handlers{"insert": refusing(3, 5)})
		all := messages()
		all[0].Ordered, all[0].ReturnPartialSuccess = &test.ordered, &test.tolerant
		res, err := importing(t.Context(), t, g, all...)
		var got string
		if err != nil {
			r := rpcerr.HTTP(err)
			e := r.Body.GetError()
			got = fmt.Sprint(r.Code, " ", e.GetReason(), " ", e.GetRetry(), " ",
				r.Body.GetResult().GetInsertedCount(), " ",
				len(e.GetWriteErrors()), " ", e.GetWriteErrors()[0].GetIndex())
		} else {
			got = fmt.Sprint(207, " ", res.GetInsertedCount(), " ", res.GetFailedCount(), " ",
				res.GetWriteErrors()[0].GetIndex())
		}
		got += fmt.Sprint(" ", len(g.Server.Commands("insert")))
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestImportKeepsSomeErrors: all failures are counted, and a thousand are kept.
func TestImportKeepsSomeErrors(t *testing.T) {
	ids := make([]int32, 1500)
	for i := range ids {
		ids[i] = int32(i)
	}
	g := start(t, fakemongo.Handlers{"insert": refusing(ids...)})
	first := to(batch(0, 1600, 0))
	first.Ordered, first.ReturnPartialSuccess = new(false), new(true)
	res, err := importing(t.Context(), t, g, first)
	if err != nil || res.GetFailedCount() != 1500 || res.GetInsertedCount() != 100 ||
		len(res.GetWriteErrors()) != 1000 {
		t.Errorf("Import = %d failed, %d errors, %v", res.GetFailedCount(),
			len(res.GetWriteErrors()), err)
	}
}

// TestImportEnds has imports that end for another reason than a write error.
func TestImportEnds(t *testing.T) {
	const mib = 1 << 20
	broken := batch(2, 1, 0)
	broken.Documents = append(broken.Documents, doc(`{"a": {"b": x}}`),
		payloadOf(servicetest.Doc(9, 0)))
	empty := to(batch(0, 1, 0))
	empty.Documents = append(empty.Documents, &mooringv1.Document{})
	late := batch(1, 1, 0)
	late.Ordered = new(false)
	strange := batch(1, 1, 0)
	unknownField(strange)
	for name, test := range map[string]struct {
		handlers fakemongo.Handlers
		messages []*mooringv1.ImportRequest
		want     string // HTTP status, reason, retry, field, inserted
	}{
		"malformed":        {nil, []*mooringv1.ImportRequest{to(batch(0, 2, 0)), broken}, "400 MalformedDocument never documents.3.a.b 3"},
		"neither form":     {nil, []*mooringv1.ImportRequest{empty}, "400 InvalidArgument never documents.1 1"},
		"no message":       {nil, nil, "400 InvalidArgument never  0"},
		"no document":      {nil, []*mooringv1.ImportRequest{to(&mooringv1.ImportRequest{})}, "400 InvalidArgument never documents 0"},
		"no collection":    {nil, []*mooringv1.ImportRequest{{Database: "d", Documents: batch(0, 1, 0).GetDocuments()}}, "400 InvalidArgument never collection 0"},
		"late options":     {nil, []*mooringv1.ImportRequest{to(batch(0, 1, 0)), late}, "400 InvalidArgument never request 0"},
		"an unknown field": {nil, []*mooringv1.ImportRequest{to(batch(0, 1, 0)), strange}, "400 InvalidArgument never request 0"},
		"too large": {
			fakemongo.Handlers{"hello": answer(t, `{"ok": 1, "isWritablePrimary": true, "maxWireVersion": 21, "maxBsonObjectSize": 3000000}`)},
			[]*mooringv1.ImportRequest{to(batch(0, 2, mib)), batch(2, 1, 4*mib)},
			"413 TooLarge never documents.2 2",
		},
		"refused": {
			fakemongo.Handlers{"insert": fakemongo.Times(1, answer(t, `{"ok": 1, "n": 2}`), fakemongo.Always(fakemongo.Error(10107, "NotWritablePrimary", "not primary")))},
			[]*mooringv1.ImportRequest{to(batch(0, 2, mib)), batch(2, 1, mib)},
			"503 NotWritablePrimary never  2",
		},
		"refused at once": {
			fakemongo.Handlers{"insert": fakemongo.Always(fakemongo.Error(10107, "NotWritablePrimary", "not primary"))},
			[]*mooringv1.ImportRequest{to(batch(0, 2, mib)), batch(2, 1, mib)},
			"503 NotWritablePrimary same-request  0",
		},
	} {
		g := start(t, test.handlers)
		_, err := importing(t.Context(), t, g, test.messages...)
		r := rpcerr.HTTP(err)
		e := r.Body.GetError()
		got := fmt.Sprint(r.Code, " ", e.GetReason(), " ", e.GetRetry(), " ", e.GetField(), " ",
			r.Body.GetResult().GetInsertedCount())
		if got != test.want {
			t.Errorf("%s: %s, want %s: %v", name, got, test.want, err)
		}
		g.Idle(0)
	}
}

// TestImportIsCut: a client that sends nothing more does not hold the gateway back when it stops.
func TestImportIsCut(t *testing.T) {
	g := start(t, nil)
	ss, err := g.Document.Import(t.Context())
	if err == nil {
		err = ss.Send(to(batch(0, 1, 0)))
	}
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "the call", func() bool { return g.Gate.InFlight() == 1 })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Gate.Drain(ended); err != nil {
		t.Errorf("Drain = %v", err)
	}
	if _, err := ss.CloseAndRecv(); status.Code(err) != codes.Unavailable {
		t.Errorf("Import = %v, want that the gateway shuts down", err)
	}
	if n := len(g.Server.Commands("insert")); n != 0 {
		t.Errorf("%d inserts were sent, want none: the client did not end its stream", n)
	}
}

// TestImportTimeouts: a batch has the time of a call without a deadline, and the deadline of the
// call is that of all batches.
func TestImportTimeouts(t *testing.T) {
	for name, test := range map[string]struct {
		call, each  time.Duration
		least, most int64 // of the commands' maxTimeMS
	}{
		"neither":      {0, 0, 0, 0},
		"of the batch": {0, time.Hour, 1, 3_600_000},
		"of the call":  {2 * time.Hour, time.Hour, 3_600_001, 7_200_000},
	} {
		g := servicetest.Start(t, fakemongo.NewServer(t, nil),
			servicetest.Config{DefaultTimeout: test.each})
		ctx := t.Context()
		if test.call > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, test.call)
			defer cancel()
		}
		if _, err := importing(ctx, t, g, to(batch(0, 2, 600<<10)), batch(2, 1, 0)); err != nil {
			t.Errorf("%s: Import = %v", name, err)
		}
		inserts := g.Server.Commands("insert")
		if len(inserts) != 2 {
			t.Errorf("%s: %d batches, want 2", name, len(inserts))
		}
		for _, cmd := range inserts {
			v, _ := cmd.Body.Lookup("maxTimeMS")
			if ms, _ := v.AsInt64(); ms < test.least || ms > test.most {
				t.Errorf("%s: maxTimeMS is %d, want one from %d to %d", name, ms, test.least,
					test.most)
			}
		}
	}
}
