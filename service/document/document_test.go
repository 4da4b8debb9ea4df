package document_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var doc = servicetest.JSON

func value(json string) *mooringv1.Value {
	return &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: json}}
}

func start(t *testing.T, handlers fakemongo.Handlers) *servicetest.Gateway {
	t.Helper()
	return servicetest.Start(t, fakemongo.NewServer(t, handlers), servicetest.Config{})
}

// sent is the last command of that name, as JSON, without what does not matter.
func sent(t *testing.T, g *servicetest.Gateway, name string) string {
	t.Helper()
	commands := g.Server.Commands(name)
	if len(commands) == 0 {
		t.Fatalf("no %s was sent", name)
	}
	c := commands[len(commands)-1]
	body := bson.Without(c.Body, "$db", "maxTimeMS", "lsid")
	text, err := extjson.Append(nil, body, extjson.Relaxed)
	if err != nil {
		t.Fatal(err)
	}
	for sequence, docs := range c.Sequences {
		for _, d := range docs {
			text = append(text, (" " + sequence + ":")...)
			if text, err = extjson.Append(text, d, extjson.Relaxed); err != nil {
				t.Fatal(err)
			}
		}
	}
	return strings.ReplaceAll(string(text), " ", "")
}

func reply(add func(*bson.Builder)) fakemongo.Handler { return fakemongo.Always(fakemongo.OK(add)) }

func errorOf(t *testing.T, err error) *mooringv1.Error {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	return rpcerr.HTTP(err).Body.GetError()
}

// TestHeadClosesItsCursor checks that a HEAD, whose client gets no token, leaves no cursor.
func TestHeadClosesItsCursor(t *testing.T) {
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{})
	g.Server.SetDocuments("d.c", servicetest.Docs(150, 10)...)
	w := httptest.NewRecorder()
	g.REST.ServeHTTP(w,
		httptest.NewRequest(http.MethodHead, "/v1/databases/d/collections/c/documents", nil))
	if w.Code != http.StatusOK {
		t.Errorf("HEAD: %d", w.Code)
	}
	if infos := g.Handles.Handles(handle.Query{Limit: 1}); len(infos) != 0 {
		t.Errorf("a cursor is open: %+v", infos)
	}
	g.Idle(0)
}

// TestLearntBatches checks the commands of a result of 101 documents: one more the first time that
// its namespace is seen, and none more afterwards. A result without a batch size fills a page.
func TestLearntBatches(t *testing.T) {
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{})
	g.Server.SetDocuments("d.c", servicetest.Docs(101, 10)...)
	for i, want := range []int{2, 3} {
		page, err := g.Document.Find(t.Context(),
			&mooringv1.FindRequest{Database: "d", Collection: "c"})
		if err != nil || len(page.GetDocuments()) != 101 || page.Cursor != nil {
			t.Fatalf("Find = %d documents, cursor %v, %v", len(page.GetDocuments()), page.Cursor,
				err)
		}
		if got := len(g.Server.Commands("find", "getMore")); got != want {
			t.Errorf("after reading %d times: %d commands, want %d", i+1, got, want)
		}
	}
	for _, limit := range []int32{1, 8, 9, 50} {
		g.Server.SetDocuments("d.other", servicetest.Docs(101, 10)...)
		page, err := g.Document.Find(t.Context(), &mooringv1.FindRequest{
			Database: "d", Collection: "other", Limit: new(int64(limit)),
		})
		if err != nil || len(page.GetDocuments()) != int(limit) || page.Cursor != nil {
			t.Errorf("limit %d: %d documents, cursor %v, %v", limit, len(page.GetDocuments()),
				page.Cursor, err)
		}
	}
	g.Idle(0)
}
