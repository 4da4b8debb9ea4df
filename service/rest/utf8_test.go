package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/command"
	"github.com/mooringdb/mooring/service/cursor"
	"github.com/mooringdb/mooring/service/deployment"
	"github.com/mooringdb/mooring/service/document"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/servicetest"
	"github.com/mooringdb/mooring/service/stream"
)

// badText is a document that JSON cannot represent.
var badText = bson.NewBuilder(nil).Int32("_id", 2).String("name", "caf\xe9").Finish()

// mixed returns a valid document, a document that JSON cannot represent, and another valid one.
func mixed(t *testing.T) []*mooringv1.Document {
	t.Helper()
	return []*mooringv1.Document{
		docs(t, `{"_id": 1}`)[0], payload.NewDocument(badText), docs(t, `{"_id": 3}`)[0],
	}
}

// TestInvalidUTF8EndsPages reads such a document and those around it with the real services. A page
// of JSON ends before it, and the next page, which begins with it, is the error and closes the
// cursor. Pages of BSON are unchanged.
func TestInvalidUTF8EndsPages(t *testing.T) {
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{})
	valid := func(id int32) bson.Raw { return bson.NewBuilder(nil).Int32("_id", id).Finish() }
	whole := []bson.Raw{valid(1), badText, valid(3), valid(4)}
	g.Server.SetDocuments("shop.orders", whole...)
	chain := interceptor.New(interceptor.Config{Gate: g.Gate})
	conn := inproc.NewConn(chain.Unary(), chain.Stream())
	streams := stream.New(stream.Config{})
	mooringv1.RegisterDocumentServiceServer(conn, document.New(document.Config{
		Client: g.Client, Handles: g.Handles, Streams: streams,
	}))
	mooringv1.RegisterCommandServiceServer(conn, command.New(command.Config{
		Client: g.Client, Handles: g.Handles, Streams: streams,
	}))
	mooringv1.RegisterCursorServiceServer(conn, cursor.New(cursor.Config{
		Handles: g.Handles, Streams: streams,
	}))
	mooringv1.RegisterDeploymentServiceServer(conn, deployment.New(deployment.Config{
		Client: g.Client, Handles: g.Handles,
	}))
	h := newHandler(t, &fake{}, func(c *config) { c.Conn = conn })
	first := map[string]string{"application/json": `1`, "application/ejson": `{"$numberInt":"1"}`}
	for _, call := range []struct{ method, url, body string }{
		{"GET", documents, ""},
		{"POST", documents + ":find", `{}`},
		{"POST", documents + ":find", `{"batchSize":3}`},
		{"POST", documents + ":aggregate", `{}`},
		{"POST", "/v1/databases/shop:runCursorCommand", `{"command":{"find":"orders"}}`},
	} {
		for accept, id := range first {
			w := do(h, call.method, call.url, call.body, "Accept", accept)
			var page struct{ Cursor string }
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
				t.Fatal(err)
			}
			want := `{"documents":[{"_id":` + id + `}],"cursor":"` + page.Cursor + `"}`
			if w.Code != 200 || page.Cursor == "" || w.Body.String() != want {
				t.Errorf("%v as %s: %d %s, want %s", call, accept, w.Code, w.Body, want)
			}
			next := `{"cursor":"` + page.Cursor + `"}`
			w = do(h, "POST", "/v1/cursors:next", next, "Accept", accept)
			if e := errorOf(t, w.Code, w.Body.Bytes(), 422); e.Reason != "InvalidUTF8" {
				t.Errorf("%v as %s: the next page: %+v", call, accept, e)
			}
			if n := len(g.Handles.Handles(handle.Query{Limit: 10})); n != 0 {
				t.Errorf("%v as %s: %d open handles", call, accept, n)
			}
			g.Idle(0)
		}
	}
	w := do(h, "POST", documents+":find", `{}`, "Accept", "application/bson")
	if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), slices.Concat(whole...)) {
		t.Errorf("as BSON: %d %q", w.Code, w.Body)
	}
}

// TestInvalidUTF8OnPages checks pages that cannot be written. The error reports invalid data, and
// the cursor is closed. As BSON, the page is sent unchanged.
func TestInvalidUTF8OnPages(t *testing.T) {
	var closed []string
	token := "next"
	h := newHandler(t, &fake{
		find: func(context.Context, *mooringv1.FindRequest) (*mooringv1.FindResponse, error) {
			return &mooringv1.FindResponse{Documents: mixed(t), Cursor: &token}, nil
		},
		findOne: func(
			context.Context, *mooringv1.FindOneRequest,
		) (*mooringv1.FindOneResponse, error) {
			return &mooringv1.FindOneResponse{Document: payload.NewDocument(badText)}, nil
		},
		distinct: func(
			context.Context, *mooringv1.DistinctRequest,
		) (*mooringv1.DistinctResponse, error) {
			return &mooringv1.DistinctResponse{
				Values: []*mooringv1.Value{payload.NewValue(bson.StringValue("\xff"))},
			}, nil
		},
		close: func(
			_ context.Context, r *mooringv1.CloseCursorRequest,
		) (*mooringv1.CloseCursorResponse, error) {
			closed = append(closed, r.GetCursor())
			return &mooringv1.CloseCursorResponse{}, nil
		},
	})
	for _, c := range []struct{ verb, accept, closed string }{
		{":find", "application/json", "next"},
		{":find", "application/ejson", "next"},
		{":findOne", "application/json", ""},
		{":distinct", "application/json", ""},
	} {
		closed = nil
		w := do(h, "POST", documents+c.verb, `{}`, "Accept", c.accept)
		e := errorOf(t, w.Code, w.Body.Bytes(), 422)
		if e.Status != "FAILED_PRECONDITION" || e.Reason != "InvalidUTF8" || e.Field != "" ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %+v", c.verb, e)
		}
		if strings.Join(closed, " ") != c.closed {
			t.Errorf("%s: closed %q, want %q", c.verb, closed, c.closed)
		}
	}
	closed = nil
	w := do(h, "POST", documents+":find", `{}`, "Accept", "application/bson")
	if w.Code != 200 || !strings.Contains(w.Body.String(), string(badText)) ||
		w.Header().Get("Mooring-Cursor") != token || closed != nil {
		t.Errorf("as BSON: %d %q, closed %q", w.Code, w.Body, closed)
	}
}

// TestInvalidUTF8InStreams checks that documents before such a document are delivered.
func TestInvalidUTF8InStreams(t *testing.T) {
	first := mixed(t)
	h := newHandler(t, &fake{streamFind: func(
		_ *mooringv1.StreamFindRequest, s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
	) error {
		return s.Send(&mooringv1.StreamFindResponse{Documents: first})
	}})
	for accept, want := range map[string]string{
		"application/x-ndjson": "{\"document\":{\"_id\":1}}\nERROR InvalidUTF8\n",
		"text/event-stream":    "id: q\ndata: {\"_id\":1}\n\nevent: failure\nid: q\ndata: ERROR InvalidUTF8\n\n",
	} {
		w := do(h, "POST", documents+":streamFind", `{}`, "Accept", accept)
		if got := cutErrors(w.Body.String()); w.Code != 200 || got != want {
			t.Errorf("%s: %d %q, want %q", accept, w.Code, got, want)
		}
	}
	first = first[1:]
	for _, accept := range []string{"application/x-ndjson", "text/event-stream"} {
		w := do(h, "POST", documents+":streamFind", `{}`, "Accept", accept)
		if e := errorOf(t, w.Code, w.Body.Bytes(), 422); e.Reason != "InvalidUTF8" {
			t.Errorf("%s: %+v", accept, e)
		}
	}
}

// TestInvalidUTF8InRows has rows of CSV, whose text is UTF-8 as JSON's is: the first such document
// is a status, and a later one aborts the body.
func TestInvalidUTF8InRows(t *testing.T) {
	bad := bson.NewBuilder(nil).String("name", "caf\xe9")
	bad.OpenDocument("in").String("name", "caf\xe9").Close()
	sent := []*mooringv1.Document{payload.NewDocument(bad.Finish())}
	h := newHandler(t, &fake{streamFind: func(
		_ *mooringv1.StreamFindRequest, s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
	) error {
		return s.Send(&mooringv1.StreamFindResponse{Documents: sent})
	}})
	for _, columns := range []string{"name", "name.string()", "in", "in.json()", "in.name"} {
		w := do(h, "POST", documents+":streamFind?columns="+columns, `{}`, "Accept", "text/csv")
		if e := errorOf(t, w.Code, w.Body.Bytes(), 422); e.Reason != "InvalidUTF8" {
			t.Errorf("%s: %+v", columns, e)
		}
	}
	sent = mixed(t)
	defer func() {
		if recover() == nil {
			t.Error("a body with such a document in the middle is whole")
		}
	}()
	do(h, "POST", documents+":streamFind?columns=name", `{}`, "Accept", "text/csv")
}

// TestMalformedBSONFromTheServer checks that documents that are not BSON have another error than
// documents that are not UTF-8.
func TestMalformedBSONFromTheServer(t *testing.T) {
	malformed := payload.NewDocument(bson.Raw("\x08\x00\x00\x00\x99a\x00\x00"))
	h := newHandler(t, &fake{findOne: func(
		context.Context, *mooringv1.FindOneRequest,
	) (*mooringv1.FindOneResponse, error) {
		return &mooringv1.FindOneResponse{Document: malformed}, nil
	}, streamFind: func(
		_ *mooringv1.StreamFindRequest, s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
	) error {
		return s.Send(&mooringv1.StreamFindResponse{
			Documents: []*mooringv1.Document{malformed},
		})
	}})
	for url, accept := range map[string]string{
		":findOne": "application/json", ":streamFind?columns=a": "text/csv",
	} {
		w := do(h, "POST", documents+url, `{}`, "Accept", accept)
		if e := errorOf(t, w.Code, w.Body.Bytes(), 500); e.Reason != "MalformedReply" {
			t.Errorf("%s: %+v", url, e)
		}
	}
	if _, err := extjson.Append(nil, badText, extjson.Relaxed); err == nil {
		t.Error("extjson writes text that is not UTF-8")
	}
}
