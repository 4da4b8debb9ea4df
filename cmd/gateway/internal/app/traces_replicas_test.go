package app_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/event/eventtrace"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/otlptest"
)

// do sends a request to REST with these headers, and returns its status and body.
func (g *gateway) do(method, path, body string, header http.Header) (int, string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, "http://"+g.Addresses().REST+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header = header.Clone()
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.http.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestTraceOfTwoReplicas asks one replica for the page of a cursor that the other one holds, over
// gRPC and REST. The trace is that of the client, with its tracestate, and has the spans of both
// replicas, those of the second below that of the first.
func TestTraceOfTwoReplicas(t *testing.T) {
	const grpcTrace, restTrace = findTrace, transactionTrace
	receiver := otlptest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	uri, _ := balanced(t)
	b := replica(t, uri, "", "--tracing-sampling=0%")
	a := replica(t, uri, b.Addresses().Replica, "--tracing-sampling=0%")

	_, token := a.find()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceparent(grpcTrace),
		"tracestate", "vendor=one", "baggage", "user=anna")
	if _, err := b.cursors().NextPage(ctx, &mooringv1.NextPageRequest{Cursor: token}); err != nil {
		t.Fatal(err)
	}
	_, token = a.find()
	body, err := protojson.Marshal(&mooringv1.NextPageRequest{Cursor: token})
	if err != nil {
		t.Fatal(err)
	}
	code, answer := b.do(http.MethodPost, "/v1/cursors:next", string(body), http.Header{
		"Traceparent": {traceparent(restTrace)}, "Tracestate": {"vendor=one"},
		"Baggage":    {"user=anna"},
		"User-Agent": {"not UTF-8: \xff"},
	})
	if code != http.StatusOK {
		t.Fatalf("nextPage = %d %s", code, answer)
	}
	// Neither is sound: the traces begin here, and are not recorded.
	for _, bad := range []string{
		"00-" + findTrace + "-b7ad6b7169203331", strings.ToUpper(traceparent(findTrace)),
	} {
		if code, answer := a.do(http.MethodPost, "/v1/databases/db/collections/c/documents:findOne",
			`{}`, http.Header{"Traceparent": {bad}}); code != http.StatusOK {
			t.Errorf("findOne = %d %s", code, answer)
		}
	}
	a.stop()
	b.stop()

	const below = `
  server mooring.v1.CursorService/NextPage
    client getMore db.c
      client getMore
`
	for trace, first := range map[string]string{
		grpcTrace: "server mooring.v1.CursorService/NextPage",
		restTrace: "server POST /v1/cursors:next",
	} {
		if got, want := receiver.Tree(trace), first+below; got != want {
			t.Errorf("the trace:\n%s\nwant:\n%s", got, want)
		}
		for _, s := range receiver.Spans(trace) {
			if s.GetTraceState() != "vendor=one" {
				t.Errorf("%s: tracestate %q", s.GetName(), s.GetTraceState())
			}
			if s.GetParentSpanId() == nil {
				t.Errorf("%s has no parent", s.GetName())
			}
		}
	}
	if all := receiver.Spans(""); len(all) != 8 {
		t.Errorf("%d spans, want 8, since no other call is recorded:\n%s", len(all),
			receiver.Tree(""))
	}
}

// TestNoValuesLeave has servers repeat what clients sent in their messages, and looks for it in all
// that is exported, and in the log (see gateway.stop).
func TestNoValuesLeave(t *testing.T) {
	const secret, document = "hunter2", `{"name": "hunter2"}`
	told := fmt.Sprintf("not authorized on db to execute command { filter: { name: %q } }", secret)
	writeErrors := fakemongo.Always(fakemongo.OK(func(b *bson.Builder) {
		b.Int32("n", 0).OpenArray("writeErrors").OpenDocument("").Int32("index", 0).
			Int32("code", 11000).
			String("errmsg", "E11000 duplicate key: "+secret).OpenDocument("keyValue").
			String("name", secret).Close().
			Close().Close()
	}))
	concern := fakemongo.Always(fakemongo.OK(func(b *bson.Builder) {
		b.Int32("n", 1).OpenDocument("writeConcernError").Int32("code", 64).String("errmsg", told).
			Close()
	}))
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{
		"find":      fakemongo.Always(fakemongo.Error(13, "Unauthorized", told)),
		"aggregate": fakemongo.Always(fakemongo.Error(8000, "AtlasError", told)),
		"distinct":  fakemongo.Always(fakemongo.Error(0, "", told)),
		"count": fakemongo.Always(fakemongo.Error(91, "ShutdownInProgress", told,
			"RetryableError")),
		// once more with the label of a retryable write
		"findAndModify": fakemongo.Always(fakemongo.Error(112, "WriteConflict", told,
			"TransientTransactionError")),
		"insert": writeErrors, "update": writeErrors, "delete": concern,
	})
	receiver := otlptest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	g := start(t, mongo.URI(), "--log-driver=command", "--log-slow-request=1ms")
	g.ready()
	const documents = "/v1/databases/db/collections/c/documents"
	for _, call := range [][2]string{
		{"findOne", `{"filter": ` + document + `}`},
		{"find", `{"filter": ` + document + `}`},
		{"find", `{"filter": {"name": "hunter2"`},
		{"find", `{"filter": {"$hunter2": {"$date": "hunter2"}}}`},
		{"find", `{"hunter2": "hunter2"}`},
		{"streamFind", `{"filter": ` + document + `}`},
		{"aggregate", `{"pipeline": [{"$match": ` + document + `}]}`},
		{"distinct", `{"field": "a", "filter": ` + document + `}`},
		{"countDocuments", `{"filter": ` + document + `}`},
		{"estimatedDocumentCount", `{}`},
		{"findOneAndUpdate", `{"filter": ` + document + `, "update": {"$set": ` + document + `}}`},
		{"insertOne", `{"document": ` + document + `}`},
		{"insertMany", `{"documents": [` + document + `]}`},
		{"updateOne", `{"filter": ` + document + `, "update": {"$set": ` + document + `}}`},
		{"updateOne", `{"filter": ` + document + `, "update": ` + document + `}`},
		{"replaceOne", `{"filter": ` + document + `, "replacement": ` + document + `}`},
		{"deleteMany", `{"filter": ` + document + `}`},
		{"bulkWrite", `{"operations": [{"insertOne": {"document": ` + document + `}}]}`},
	} {
		if code, body := g.post(documents+":"+call[0], call[1]); code == http.StatusOK &&
			!strings.Contains(body, secret) {
			t.Errorf("%s = %d %s, want an error", call[0], code, body)
		}
	}
	g.do(http.MethodGet, documents+`?filter={"name":"hunter2"}`, "", http.Header{})
	g.do(http.MethodPost, documents+":streamFind", `{"filter": `+document+`}`,
		http.Header{"Accept": {"application/x-ndjson"}})
	for line := range strings.Lines(g.log.String()) {
		if strings.Contains(line, secret) {
			t.Errorf("the log has a value: %s", line)
		}
	}
	g.stop()

	failed := 0
	for _, s := range receiver.Spans("") {
		bytes, err := proto.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(bytes), secret) {
			t.Errorf("%s has a value: %v", s.GetName(), s)
		}
		if message := otlptest.Attribute(s, "exception.message"); message != "" {
			failed++
		}
	}
	if failed < 20 {
		t.Errorf("%d spans have failed, want one for each operation and each command", failed)
	}
}

// TestQueryText checks that a command with its values is in its span only if the environment asks
// for it, and no longer than it says.
func TestQueryText(t *testing.T) {
	for _, row := range []struct {
		limit string
		want  string // empty: none
	}{
		{"", ""},
		{"0", ""},
		{"39", `{"find":"c","filter":{"name":"hunter3"}`},
		{"20", `{"find":"c","filter"`},
	} {
		t.Run(row.limit, func(t *testing.T) {
			receiver := otlptest.New(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
			t.Setenv(eventtrace.MaxQueryTextLengthVariable, row.limit)
			g := start(t, fakemongo.NewTCPServer(t, nil).URI())
			g.ready()
			if code, body := g.post("/v1/databases/db/collections/c/documents:find",
				`{"filter": {"name": "hunter3"}}`); code != http.StatusOK {
				t.Fatalf("find = %d %s", code, body)
			}
			g.stop()
			found := false
			for _, s := range receiver.Spans("") {
				if s.GetName() == "find" {
					found = true
					if got := otlptest.Attribute(s, "db.query.text"); got != row.want {
						t.Errorf("the text is %q, want %q", got, row.want)
					}
				}
			}
			if !found {
				t.Errorf("no span of the command:\n%s", receiver.Tree(""))
			}
		})
	}
}
