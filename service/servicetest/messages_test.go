package servicetest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/servicetest"
)

// TestMessagesAreCharged sends large requests whose command is one document, or has a sequence, and
// looks at what is charged while the server works: what was decoded, the message, and an array that
// is made of documents, each once. Afterwards nothing is.
func TestMessagesAreCharged(t *testing.T) {
	const size = 4 << 20
	a := admission.New(admission.Config{Bytes: 64 << 20})
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{Admission: a})
	var held atomic.Int64
	look := func(*fakemongo.Command) fakemongo.Reply {
		held.Store(a.Bytes().Held)
		return fakemongo.Document(bson.NewBuilder(nil).Int32("ok", 1).Int32("n", 1).
			OpenDocument("cursor").Int64("id", 0).String("ns", "d.c").OpenArray("firstBatch").
			Close().Close().Finish())
	}
	for _, command := range []string{"find", "aggregate", "insert", "update", "test"} {
		g.Server.Handle(command, look)
	}
	text := strings.Repeat("x", size)
	doc := payload.NewDocument(bson.NewBuilder(nil).String("a", text).Finish())
	json := servicetest.JSON(`{"a":"` + text + `"}`)
	match := payload.NewDocument(bson.NewBuilder(nil).OpenDocument("$match").String("a", text).
		Close().Finish())
	command := payload.NewDocument(bson.NewBuilder(nil).Int32("test", 1).String("a", text).Finish())
	c := "c"
	h, err := front.New(front.Config{
		Conn: g.Local, Admission: a, APIs: []front.API{rest.New(rest.Config{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	post := func(action, body string) (err error) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://127.0.0.1/v1/databases/d/collections/c/documents:"+action,
			strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			err = fmt.Errorf("%d: %s", w.Code, w.Body)
		}
		return err
	}
	whole := grpc.MaxCallSendMsgSize(4 * size)
	for _, row := range []struct {
		name   string
		copies float64
		call   func() error
	}{
		{"find", 2, func() error {
			_, err := g.Document.Find(t.Context(), &mooringv1.FindRequest{
				Database: "d", Collection: "c", Filter: doc,
			}, whole)
			return err
		}},
		{"find in JSON", 3, func() error { // the text is a field, and stays with the request
			_, err := g.Document.Find(t.Context(), &mooringv1.FindRequest{
				Database: "d", Collection: "c", Filter: json,
			}, whole)
			return err
		}},
		{"aggregate", 3, func() error {
			_, err := g.Document.Aggregate(t.Context(), &mooringv1.AggregateRequest{
				Database: "d", Collection: &c, Pipeline: []*mooringv1.Document{match},
			}, whole)
			return err
		}},
		{"run", 2, func() error {
			_, err := g.Command.RunCommand(t.Context(), &mooringv1.RunCommandRequest{
				Database: "d", Command: command,
			}, whole)
			return err
		}},
		{"insert", 2, func() error {
			_, err := g.Document.InsertMany(t.Context(), &mooringv1.InsertManyRequest{
				Database: "d", Collection: "c", Documents: []*mooringv1.Document{doc},
			}, whole)
			return err
		}},
		{"update", 2, func() error {
			_, err := g.Document.UpdateOne(t.Context(), &mooringv1.UpdateOneRequest{
				Database: "d", Collection: "c", Filter: doc, Update: &mooringv1.Update{
					Kind: &mooringv1.Update_Operators{Operators: payload.NewDocument(
						bson.NewBuilder(nil).OpenDocument("$set").Int32("a", 1).Close().Finish())},
				},
			}, whole)
			return err
		}},
		{"find over REST", 2, func() error { return post("find", `{"filter":{"a":"`+text+`"}}`) }},
		{"aggregate over REST", 3, func() error {
			return post("aggregate", `{"pipeline":[{"$match":{"a":"`+text+`"}}]}`)
		}},
		{"insert over REST, many values", 1.9, func() error {
			return post("insertMany",
				`{"documents":[{"a":[`+strings.Repeat("1,", size/12)+`1]}]}`)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			held.Store(0)
			if err := row.call(); err != nil {
				t.Fatal(err)
			}
			if got := float64(held.Load()) / size; got < row.copies || got > row.copies+1.1 {
				t.Errorf("%.2f times the request is charged, want %.1f and little more", got,
					row.copies)
			}
			servicetest.Eventually(t, "nothing to be charged", func() bool {
				return a.Bytes().Held == 0
			})
		})
	}
}

// TestCursorsKeepTheirComments opens a cursor with a large comment, which goes with each getMore:
// it stays charged to the principal until the cursor ends.
func TestCursorsKeepTheirComments(t *testing.T) {
	const size = 2 << 20
	a := admission.New(admission.Config{Bytes: 64 << 20})
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{
		Admission: a, Handles: paging.Config{Admission: a},
	})
	g.Server.SetDocuments("d.c", servicetest.Docs(10, 10)...)
	ctx := servicetest.As(t.Context(), "key:a")
	page, err := g.Document.Find(ctx, &mooringv1.FindRequest{
		Database: "d", Collection: "c", BatchSize: new(int32(2)),
		Comment: payload.NewValue(bson.StringValue(strings.Repeat("x", size))),
	}, grpc.MaxCallSendMsgSize(2*size))
	if err != nil {
		t.Fatal(err)
	}
	kept := func() bool { held := a.Bytes().Held; return held >= size && held < size+size/2 }
	servicetest.Eventually(t, "the comment to be charged alone", kept)
	next, err := g.Cursor.NextPage(ctx, &mooringv1.NextPageRequest{Cursor: page.GetCursor()})
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "the comment to be charged still", kept)
	_, err = g.Cursor.CloseCursor(ctx, &mooringv1.CloseCursorRequest{Cursor: next.GetCursor()})
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "nothing to be charged", func() bool { return a.Bytes().Held == 0 })
}
