package document_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

// badText is a document that JSON cannot carry.
var badText = bson.NewBuilder(nil).Int32("_id", 2).String("name", "caf\xe9").Finish()

func wantInvalidUTF8(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	r := rpcerr.HTTP(err)
	if e := r.Body.GetError(); r.Code != 422 || e.GetReason() != "InvalidUTF8" ||
		e.GetStatus() != "FAILED_PRECONDITION" || e.Field != nil {
		t.Errorf("%s: %d %v, want 422 InvalidUTF8 without a field", what, r.Code, e)
	}
}

// TestInvalidUTF8 reads documents, one of which JSON cannot carry, as JSON and as BSON. Pages end
// before the document. The page that begins with it fails with an error of the data, and closes its
// cursor.
func TestInvalidUTF8(t *testing.T) {
	g := start(t, fakemongo.Handlers{
		"findAndModify": reply(func(b *bson.Builder) { b.Document("value", badText) }),
		"distinct": reply(func(b *bson.Builder) {
			b.OpenArray("values").String("", "\xff").Close()
		}),
		"ping": reply(func(b *bson.Builder) { b.String("text", "\xff") }),
	})
	docs := append(servicetest.Docs(5, 1), badText)
	docs = append(docs, servicetest.Docs(5, 1)...)
	g.Server.SetDocuments("d.c", docs...)
	g.Server.SetDocuments("d.begins", docs[5:]...)
	collection, size, filter := new("c"), new(int32(4)), doc(`{}`)
	set := &mooringv1.Update{
		Kind: &mooringv1.Update_Operators{Operators: doc(`{"$set": {"a": 1}}`)},
	}
	find := doc(`{"find": "c", "batchSize": 4}`)
	type page interface {
		GetDocuments() []*mooringv1.Document
		GetCursor() string
	}
	// all reads all pages. The pages before the failing page have the 5 documents before badText.
	all := func(ctx context.Context, page page, err error) error {
		if err != nil {
			t.Errorf("the first page: %v", err)
			return err
		}
		n, token := len(page.GetDocuments()), page.GetCursor()
		for token != "" {
			var page *mooringv1.NextPageResponse
			page, err = g.Cursor.NextPage(ctx, &mooringv1.NextPageRequest{Cursor: token})
			if err != nil && n != 5 {
				t.Errorf("%d documents before %v, want 5", n, err)
			}
			n, token = n+len(page.GetDocuments()), page.GetCursor()
		}
		if err == nil && n != len(docs) {
			t.Errorf("%d documents, want %d", n, len(docs))
		}
		return err
	}
	calls := map[string]func(context.Context) error{
		"Find": func(ctx context.Context) error {
			page, err := g.Document.Find(ctx,
				&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(8))})
			return all(ctx, page, err)
		},
		"Find that begins with it": func(ctx context.Context) error {
			page, err := g.Document.Find(ctx,
				&mooringv1.FindRequest{Database: "d", Collection: "begins", BatchSize: size})
			if err == nil {
				_, err = g.Cursor.CloseCursor(ctx,
					&mooringv1.CloseCursorRequest{Cursor: page.GetCursor()})
			}
			return err
		},
		"Find of one batch": func(ctx context.Context) error {
			page, err := g.Document.Find(ctx,
				&mooringv1.FindRequest{Database: "d", Collection: "c"})
			return all(ctx, page, err)
		},
		"Find with a limit": func(ctx context.Context) error {
			page, err := g.Document.Find(ctx,
				&mooringv1.FindRequest{Database: "d", Collection: "c", Limit: new(int64(20))})
			return all(ctx, page, err)
		},
		"Find and NextPage": func(ctx context.Context) error {
			page, err := g.Document.Find(ctx,
				&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: size})
			return all(ctx, page, err)
		},
		"Aggregate and NextPage": func(ctx context.Context) error {
			page, err := g.Document.Aggregate(ctx,
				&mooringv1.AggregateRequest{Database: "d", Collection: collection, BatchSize: size})
			return all(ctx, page, err)
		},
		"RunCursorCommand and NextPage": func(ctx context.Context) error {
			page, err := g.Command.RunCursorCommand(ctx,
				&mooringv1.RunCursorCommandRequest{Database: "d", Command: find, BatchSize: size})
			return all(ctx, page, err)
		},
		"FindOneAndUpdate": func(ctx context.Context) error {
			_, err := g.Document.FindOneAndUpdate(ctx, &mooringv1.FindOneAndUpdateRequest{
				Database: "d", Collection: "c", Filter: filter, Update: set,
			})
			return err
		},
		"FindOneAndReplace": func(ctx context.Context) error {
			_, err := g.Document.FindOneAndReplace(ctx, &mooringv1.FindOneAndReplaceRequest{
				Database: "d", Collection: "c", Filter: filter, Replacement: filter,
			})
			return err
		},
		"FindOneAndDelete": func(ctx context.Context) error {
			_, err := g.Document.FindOneAndDelete(ctx,
				&mooringv1.FindOneAndDeleteRequest{Database: "d", Collection: "c", Filter: filter})
			return err
		},
		"Distinct": func(ctx context.Context) error {
			_, err := g.Document.Distinct(ctx,
				&mooringv1.DistinctRequest{Database: "d", Collection: "c", FieldName: "a"})
			return err
		},
		"RunCommand": func(ctx context.Context) error {
			_, err := g.Command.RunCommand(ctx,
				&mooringv1.RunCommandRequest{Database: "d", Command: doc(`{"ping": 1}`)})
			return err
		},
	}
	for name, call := range calls {
		for _, enc := range []string{"json", "canonical-json"} {
			wantInvalidUTF8(t, name+" as "+enc,
				call(metadata.AppendToOutgoingContext(t.Context(), "mooring-document-encoding",
					enc)))
		}
		g.Idle(0)
		if n := len(g.Handles.Handles(handle.Query{Limit: 10})); n != 0 {
			t.Errorf("%s: %d handles are open", name, n)
		}
	}
	for name, call := range calls {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s as BSON: %v", name, err)
		}
	}
}

// TestInvalidUTF8InStreams has what comes before such a document delivered, and the cursor closed.
func TestInvalidUTF8InStreams(t *testing.T) {
	g := start(t, nil)
	docs := append(servicetest.Docs(5, 1), badText)
	docs = append(docs, servicetest.Docs(500, 1)...)
	g.Server.SetDocuments("d.c", docs...)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "mooring-document-encoding", "json")
	type stream interface {
		Recv() ([]*mooringv1.Document, error)
	}
	for name, open := range map[string]func() (stream, error){
		"StreamFind": func() (stream, error) {
			ss, err := g.Document.StreamFind(ctx,
				&mooringv1.StreamFindRequest{Database: "d", Collection: "c"})
			return receiver(func() ([]*mooringv1.Document, error) {
				m, err := ss.Recv()
				return m.GetDocuments(), err
			}), err
		},
		"StreamAggregate": func() (stream, error) {
			ss, err := g.Document.StreamAggregate(ctx,
				&mooringv1.StreamAggregateRequest{Database: "d", Collection: new("c")})
			return receiver(func() ([]*mooringv1.Document, error) {
				m, err := ss.Recv()
				return m.GetDocuments(), err
			}), err
		},
		"StreamRunCursorCommand": func() (stream, error) {
			ss, err := g.Command.StreamRunCursorCommand(ctx,
				&mooringv1.StreamRunCursorCommandRequest{
					Database: "d", Command: doc(`{"find": "c"}`),
				})
			return receiver(func() ([]*mooringv1.Document, error) {
				m, err := ss.Recv()
				return m.GetDocuments(), err
			}), err
		},
		"CursorService.Stream": func() (stream, error) {
			page, err := g.Document.Find(ctx,
				&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(1))})
			if err != nil {
				return nil, err
			}
			ss, err := g.Cursor.Stream(ctx,
				&mooringv1.CursorServiceStreamRequest{Cursor: page.GetCursor()})
			first := page.GetDocuments()
			return receiver(func() ([]*mooringv1.Document, error) {
				m, err := ss.Recv()
				docs := append(first, m.GetDocuments()...)
				first = nil
				return docs, err
			}), err
		},
	} {
		ss, err := open()
		n := 0
		for err == nil {
			var docs []*mooringv1.Document
			docs, err = ss.Recv()
			n += len(docs)
		}
		if n != 5 || errors.Is(err, io.EOF) {
			t.Errorf("%s: %d documents and %v, want 5 and an error", name, n, err)
		}
		wantInvalidUTF8(t, name, err)
		g.Idle(0)
	}
}

// receiver is a stream of documents.
type receiver func() ([]*mooringv1.Document, error)

func (r receiver) Recv() ([]*mooringv1.Document, error) { return r() }
