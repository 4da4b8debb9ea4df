package rest_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

const (
	changesPath = "/v1/databases/shop/collections/orders:watch"
	lines       = "application/x-ndjson"
	events      = "text/event-stream"
)

type changeStream = grpc.ServerStreamingServer[mooringv1.WatchResponse]

// token returns the resume token {"_data": text} and its id as an event.
func token(tb testing.TB, text string) (*mooringv1.Document, string) {
	tb.Helper()
	raw := ejson(tb, `{"_data": "`+text+`"}`)
	return payload.NewDocument(raw), base64.RawURLEncoding.EncodeToString(raw)
}

// progress returns the event with the resume token {"_data": text}, which has this id.
func progress(id, text string) string {
	return "id: " + id + "\nevent: progress\ndata: {\"resumeToken\":{\"_data\":\"" + text +
		"\"}}\n\n"
}

// changes sends events with these tokens, a message each, between tokens without events, which
// begin with "-"; then it returns err.
func changes(tb testing.TB, err error, tokens ...string) *fake {
	return &fake{changes: func(_ *mooringv1.WatchRequest, s changeStream) error {
		for _, text := range tokens {
			m := &mooringv1.WatchResponse{}
			name, idle := strings.CutPrefix(text, "-")
			if m.ResumeToken, _ = token(tb, name); !idle {
				m.Documents = docs(tb, `{"_id": {"_data": "`+name+`"}, "n": 1}`)
			}
			if text == "" { // a server without tokens
				m = &mooringv1.WatchResponse{}
			}
			if err := s.Send(m); err != nil {
				return err
			}
		}
		return err
	}}
}

var (
	errStops   = &rpcerr.Error{Reason: rpcerr.ShuttingDown, Message: "bye"}
	errLost    = &mongoerr.CommandError{Code: 286, Name: "ChangeStreamHistoryLost", Message: "no"}
	errFatal   = &mongoerr.CommandError{Code: 280, Name: "ChangeStreamFatalError", Message: "no"}
	errToken   = &mongoerr.CommandError{Code: 260, Name: "InvalidResumeToken", Message: "no"}
	errBusy    = &mongoerr.CommandError{Code: 91, Name: "ShutdownInProgress", Message: "no"}
	errExpired = &caller.Error{Problem: caller.Invalid, Message: "expired"}
)

// TestChangeForms checks each form of a stream of changes, and each way in which it ends.
func TestChangeForms(t *testing.T) {
	_, a := token(t, "a")
	_, b := token(t, "b")
	opened, one := progress(a, "a"), "id: "+b+"\ndata: {\"_id\":{\"_data\":\"b\"},\"n\":1}\n\n"
	const line = `{"progress":{"resumeToken":{"_data":"a"}}}` + "\n" +
		`{"document":{"_id":{"_data":"b"},"n":1}}` + "\n"
	const transient, final = "retry: 1000\nevent: failure\ndata: ERROR ",
		"event: failure\nid: end\ndata: ERROR "
	for _, c := range []struct {
		name           string
		err            error
		tokens         []string
		method, accept string
		code           int
		body           string
	}{
		{"lines", nil, []string{"-a", "b"}, "POST", lines, 200, line + `{"end":{}}` + "\n"},
		{"lines by GET", nil, []string{"-a", "b"}, "GET", "", 200, line + `{"end":{}}` + "\n"},
		{"lines of a stopping gateway", errStops, []string{"-a", "b"}, "POST", lines, 200, line + "ERROR ShuttingDown\n"},
		{"lines that fail at once", errLost, nil, "POST", lines, 410, "ERROR ChangeStreamHistoryLost"},
		{"bare lines", nil, []string{"-a", "b"}, "POST", lines + ";bare=true", 200, `{"_id":{"_data":"b"},"n":1}` + "\n"},
		{"no token yet", nil, []string{""}, "POST", lines, 200, `{"end":{}}` + "\n"},

		{"events", nil, []string{"-a", "b"}, "GET", events, 200, opened + one + "event: end\nid: end\ndata: {}\n\n"},
		{"events by POST", nil, []string{"-a", "b"}, "POST", events, 200, opened + one + "event: end\nid: end\ndata: {}\n\n"},
		{"events of a stopping gateway", errStops, []string{"-a", "b"}, "GET", events, 200, opened + one + transient + "ShuttingDown\n\n"},
		{"lost history", errLost, []string{"-a"}, "GET", events, 200, opened + final + "ChangeStreamHistoryLost\n\n"},
		{"a fatal error", errFatal, []string{"-a"}, "POST", events, 200, opened + final + "ChangeStreamFatalError\n\n"},
		{"an expired credential", errExpired, []string{"-a"}, "GET", events, 200, opened + final + "Unauthenticated\n\n"},
		{"a document that JSON cannot carry", &payload.EncodeError{InvalidUTF8: true, Err: errors.New("x")}, []string{"-a"}, "GET", events, 200, opened + final + "InvalidUTF8\n\n"},
		{"a server that stops", errBusy, []string{"-a"}, "GET", events, 200, opened + transient + "ShutdownInProgress\n\n"},

		{"lost history at once", errLost, nil, "GET", events, 200, final + "ChangeStreamHistoryLost\n\n"},
		{"a wrong token at once", errToken, nil, "GET", events, 200, final + "InvalidResumeToken\n\n"},
		{"a transient error at once", errDown, nil, "GET", events, 200, transient + "NoSuitableServer\n\n"},
		{"a server that stops at once", errBusy, nil, "GET", events, 200, transient + "ShutdownInProgress\n\n"},
		{"a refusal at once", errRefused, nil, "GET", events, 400, "ERROR BadValue"},
		{"an expired credential at once", errExpired, nil, "GET", events, 401, "ERROR Unauthenticated"},
		{"lost history at once, by POST", errLost, nil, "POST", events, 410, "ERROR ChangeStreamHistoryLost"},
		{"a transient error at once, by POST", errDown, nil, "POST", events, 503, "ERROR NoSuitableServer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := "{}"
			if c.method == "GET" {
				body = ""
			}
			w := do(newHandler(t, changes(t, c.err, c.tokens...)), c.method, changesPath, body,
				"Accept", c.accept)
			if got := cutErrors(w.Body.String()); w.Code != c.code || got != c.body {
				t.Errorf("%d %q\nwant %d %q", w.Code, got, c.code, c.body)
			}
		})
	}
}

// TestLastEventID checks where a stream of events goes on.
func TestLastEventID(t *testing.T) {
	old, _ := token(t, "old")
	at, id := token(t, "at")
	var got *mooringv1.WatchRequest
	h := newHandler(t, &fake{changes: func(r *mooringv1.WatchRequest, _ changeStream) error {
		got = r
		return nil
	}})
	query := `?resumeAfter={"_data":"old"}&startAtOperationTime={"$timestamp":{"t":1,"i":2}}`
	for _, c := range []struct {
		name, accept, last string
		code               int
		startAfter, resume *mooringv1.Document
	}{
		{"none", events, "", 200, nil, old},
		{"a token", events, id, 200, at, nil},
		{"of lines", lines, id, 200, nil, old},
		{"the end", events, "end", 204, nil, nil},
		{"of a query", events, "q", 400, nil, nil},
		{"not base64", events, "!", 400, nil, nil},
		{"not BSON", events, "AAAA", 400, nil, nil},
	} {
		got = nil
		w := do(h, "GET", changesPath+strings.NewReplacer(`"`, "%22").Replace(query), "", "Accept",
			c.accept, "Last-Event-ID", c.last)
		if w.Code != c.code || (got != nil) != (c.code == 200) {
			t.Errorf("%s: %d %s, want %d", c.name, w.Code, w.Body, c.code)
			continue
		}
		if !proto.Equal(got.GetStartAfter(), c.startAfter) ||
			!proto.Equal(got.GetResumeAfter(), c.resume) ||
			got != nil && (got.GetStartAtOperationTime() == nil) != (c.resume == nil) {
			t.Errorf("%s: the request is %v", c.name, got)
		}
	}
}

// TestWatchRequests checks the paths, the query of a GET and the body of a POST.
func TestWatchRequests(t *testing.T) {
	var got *mooringv1.WatchRequest
	h := newHandler(t, &fake{changes: func(r *mooringv1.WatchRequest, _ changeStream) error {
		got = r
		return nil
	}})
	stage := docs(t, `{"$match": {"n": 1}}`)
	want := &mooringv1.WatchRequest{
		Database: "shop", Collection: new("orders"), Pipeline: stage, BatchSize: new(int32(5)),
		MaxAwaitTimeMs: new(int64(9)), FullDocument: new("updateLookup"),
		ShowExpandedEvents:       new(true),
		FullDocumentBeforeChange: new("off"),
		ReadPreference:           &mooringv1.ReadPreference{Mode: new("nearest")},
	}
	const query = "?pipeline=%5B%7B%22$match%22:%7B%22n%22:1%7D%7D%5D&batchSize=5&maxAwaitTimeMS=9&fullDocument=updateLookup" +
		"&showExpandedEvents=true&fullDocumentBeforeChange=off&readPreference=nearest"
	const body = `{"pipeline":[{"$match":{"n":1}}],"batchSize":5,"maxAwaitTimeMS":9,"fullDocument":"updateLookup",` +
		`"showExpandedEvents":true,"fullDocumentBeforeChange":"off","readPreference":"nearest"}`
	for _, c := range []struct{ method, path, body, database, collection string }{
		{"GET", changesPath + query, "", "shop", "orders"},
		{"POST", changesPath, body, "shop", "orders"},
		{"GET", "/v1/databases/shop:watch" + query, "", "shop", ""},
		{"POST", "/v1/databases/shop:watch", body, "shop", ""},
		{"GET", "/v1/deployment:watch" + query, "", "", ""},
		{"POST", "/v1/deployment:watch", body, "", ""},
	} {
		got = nil
		w := do(h, c.method, c.path, c.body)
		want.Database, want.Collection = c.database, nil
		if c.collection != "" {
			want.Collection = &c.collection
		}
		if w.Code != 200 || !proto.Equal(got, want) {
			t.Errorf("%s %s: %d %s\n%v\nwant %v", c.method, c.path, w.Code, w.Body, got, want)
		}
	}
	for _, c := range []struct{ method, path, body string }{
		{"POST", changesPath, `{"database":"x"}`},
		{"POST", changesPath, `{"transaction":"x"}`},
		{"GET", changesPath + "?session=x", ""},
		{"GET", changesPath + "?filter={}", ""},
		{"GET", documents + "?maxAwaitTimeMS=5", ""},
	} {
		if w := do(h, c.method, c.path, c.body); w.Code != 400 {
			t.Errorf("%s %s %s: %d, want 400", c.method, c.path, c.body, w.Code)
		}
	}
}

// TestQuietChangesAreKeptAlive checks the comments of a stream without events.
func TestQuietChangesAreKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, id := token(t, "a")
		h := newHandler(t, &fake{changes: func(_ *mooringv1.WatchRequest, s changeStream) error {
			m := &mooringv1.WatchResponse{}
			m.ResumeToken, _ = token(t, "a")
			if err := s.Send(m); err != nil {
				return err
			}
			<-s.Context().Done()
			return s.Context().Err()
		}})
		w := do(h, "GET", changesPath+"?timeout=40s", "", "Accept", events)
		want := progress(id, "a") +
			":\n\n:\n\nretry: 1000\nevent: failure\ndata: ERROR DeadlineExceeded\n\n"
		if got := cutErrors(w.Body.String()); got != want {
			t.Errorf("%q\nwant %q", got, want)
		}
	})
}

// TestQuietLinesAreKeptAlive checks that a client that reads changes or live documents as lines
// gets empty ones while nothing changes: it can tell a quiet stream from a dead connection. Bare
// lines are documents only.
func TestQuietLinesAreKeptAlive(t *testing.T) {
	const quiet = 40 * time.Second
	for _, c := range []struct{ path, accept, want string }{
		{documents + ":live", lines, `{"ready":{}}` + "\n\n\n{\"end\":{}}\n"},
		{changesPath, lines, `{"document":{"_id":{"_data":"a"}}}` + "\n\n\n{\"end\":{}}\n"},
		{changesPath, lines + ";bare=true", `{"_id":{"_data":"a"}}` + "\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHandler(t, &fake{
				changes: func(_ *mooringv1.WatchRequest, s changeStream) error {
					m := &mooringv1.WatchResponse{Documents: docs(t, `{"_id": {"_data": "a"}}`)}
					err := s.Send(m)
					time.Sleep(quiet) //nolint:forbidigo // fake time
					return err
				},
				live: func(
					_ *mooringv1.LiveRequest, s grpc.ServerStreamingServer[mooringv1.LiveResponse],
				) error {
					err := s.Send(&mooringv1.LiveResponse{Kind: "ready"})
					time.Sleep(quiet) //nolint:forbidigo // fake time
					return err
				},
			})
			if w := do(h, "POST", c.path, "{}", "Accept", c.accept); w.Body.String() != c.want {
				t.Errorf("%s as %s: %q, want %q", c.path, c.accept, w.Body, c.want)
			}
		})
	}
}

// tickets knows the ticket "right", of key:ann.
type tickets struct{ watch *mooringv1.WatchRequest }

func (k tickets) Open(ticket string) (*caller.Identity, proto.Message, error) {
	if ticket != "right" {
		return nil, nil, &caller.Error{Problem: caller.Invalid, Message: "the ticket is wrong"}
	}
	return &caller.Identity{Principal: "key:ann"}, k.watch, nil
}

// TestTickets checks that a ticket opens its stream without a credential, that it is refused as
// one, that nothing beside it counts, and that no log shows it.
func TestTickets(t *testing.T) {
	keys, err := caller.ParseKeys(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, id := token(t, "a")
	watch := &mooringv1.WatchRequest{Database: "shop"}
	var got *mooringv1.WatchRequest
	var who call.Local
	var log, lines bytes.Buffer
	audited := audit.New(audit.Config{Handler: slog.NewTextHandler(&lines, nil)})
	f := &fake{
		changes: func(r *mooringv1.WatchRequest, s changeStream) error {
			got, who = r, call.LocalFrom(s.Context())
			return s.Send(&mooringv1.WatchResponse{Documents: docs(t, `{"_id": {"_data": "a"}}`)})
		},
	}
	h := newHandler(t, f, func(c *config) {
		c.Callers, c.REST.Tickets = caller.New(caller.Config{Keys: keys}), tickets{watch}
		c.Refusals.Logger = slog.New(slog.NewTextHandler(&log,
			&slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Refusals.Audit = audited
	})
	w := do(h, "GET", "/v1/changeStreams/right", "", "Accept", events)
	if want := "id: " + id +
		"\ndata: {\"_id\":{\"_data\":\"a\"}}\n\nevent: end\nid: end\ndata: {}\n\n"; w.Code != 200 ||
		w.Body.String() != want {
		t.Errorf("%d %q, want %q", w.Code, w.Body, want)
	}
	if !proto.Equal(got, watch) || who.Identity.Principal != "key:ann" || who.Built {
		t.Errorf("the request is %v of %v", got, who)
	}
	w = do(h, "GET", "/v1/changeStreams/right", "", "Accept", events, "Last-Event-ID", id)
	if _, data := token(t, "a"); w.Code != 200 ||
		base64.RawURLEncoding.EncodeToString(got.GetStartAfter().GetBson()) != data {
		t.Errorf("%d, the request is %v, want one that goes on", w.Code, got)
	}
	for _, c := range []struct {
		method, path string
		header       []string
		code         int
	}{
		{"GET", "/v1/changeStreams/wrong", nil, 401},
		{"GET", "/v1/changeStreams/", nil, 401},
		{"GET", "/v1/changeStreams/right/secret", nil, 401},
		{"GET", "/v1/changeStreams/right%2Fsecret", nil, 401},
		{"POST", "/v1/changeStreams/right", nil, 401},
		{"HEAD", "/v1/changeStreams/right", nil, 401},
		{"GET", "/v1/changeStreams/right?batchSize=1", nil, 400},
		{"GET", "/v1/changeStreams/right", []string{"Mooring-Session", "s"}, 400},
		{"GET", "/v1/changeStreams/right", []string{"Accept", "application/json"}, 406},
		{"GET", "/v1/changeStreams/right", []string{"Accept", events, "Last-Event-ID", "end"}, 204},
	} {
		w := do(h, c.method, c.path, "", c.header...)
		if w.Code != c.code || (c.code == 401) != (w.Header().Get("Www-Authenticate") != "") {
			t.Errorf("%s %s %q: %d %s, want %d", c.method, c.path, c.header, w.Code, w.Body, c.code)
		}
	}
	if err := audited.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := log.String() + lines.String(); !strings.Contains(text, "path=/v1/changeStreams/…") ||
		!strings.Contains(text, `action="GET /v1/changeStreams/…"`) ||
		strings.Contains(text, "right") || strings.Contains(text, "secret") {
		t.Errorf("the log has a ticket: %s", text)
	}
	got = nil
	for _, path := range []string{"/v1/changeStreams/right", "/v1/changeStreams/right%2Fsecret"} {
		w := do(newHandler(t, f), "GET", path, "", "Accept", events, "Last-Event-ID", id)
		if w.Code != 401 || got != nil {
			t.Errorf("%s without tickets: %d, the request is %v", path, w.Code, got)
		}
	}
}

// TestCreateTicket checks the body, in which the database is not in the path.
func TestCreateTicket(t *testing.T) {
	h := newHandler(t, &fake{ticket: func(
		r *mooringv1.CreateTicketRequest,
	) (*mooringv1.CreateTicketResponse, error) {
		w := r.GetWatch()
		return &mooringv1.CreateTicketResponse{Url: w.GetDatabase() + "/" + w.GetCollection()}, nil
	}})
	w := do(h, "POST", "/v1/changeStreams:ticket",
		`{"watch":{"database":"shop","collection":"orders"}}`)
	if want := `{"url":"shop/orders"}`; w.Code != 200 || w.Body.String() != want {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
}
