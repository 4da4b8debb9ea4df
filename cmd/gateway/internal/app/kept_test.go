package app_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/interceptor"
)

// TestKeptWords checks, over each protocol, that a client with a key is told that the server's
// words are kept back and by which option, and that the log has a line with the request's id; and
// that it is told what is wrong with its own request.
func TestKeptWords(t *testing.T) {
	const told = "Unrecognized pipeline stage name: '$grup'"
	var asked atomic.Int32
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{
		"insert": func(c *fakemongo.Command) fakemongo.Reply {
			if n := asked.Add(1); n <= 5 { // the log sums up lines of the same reason
				return fakemongo.Always(fakemongo.Error(60_000+n, fmt.Sprintf("Odd%d", n),
					"hunter2"))(c)
			}
			return fakemongo.Always(fakemongo.Error(40324, "", told))(c)
		},
	})
	key, line := newKey(t, "shop", time.Time{})
	g := start(t, mongo.URI(), "--auth-api-keys-file", secretFile(t, "keys", line),
		"--data-api-sources", "s")
	defer g.stop()
	insert := anInsert()
	message, err := proto.Marshal(insert)
	if err != nil {
		t.Fatal(err)
	}
	framed := append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
	const method = mooringv1.DocumentService_InsertOne_FullMethodName
	post := func(path, form string, body []byte) func(string) string {
		return func(id string) string {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+g.Addresses().REST+path, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{
				"Content-Type": {form}, "Authorization": {"Bearer " + key},
				"Mooring-Request-Id": {id},
			}
			resp, err := g.http.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(string(text), resp.Header, resp.Trailer)
		}
	}
	calls := map[string]func(id string) string{
		"gRPC": func(id string) string {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key,
				interceptor.RequestIDKey, id)
			_, err := mooringv1.NewDocumentServiceClient(g.cc).InsertOne(ctx, insert)
			return fmt.Sprint(err)
		},
		"REST":     post("/v1/databases/db/collections/c/documents:insertOne", "application/json", []byte(`{"document": {"a": 1}}`)),
		"gRPC-Web": post(method, "application/grpc-web+proto", framed),
		"Connect":  post(method, "application/proto", message),
		"Data API": post("/action/insertOne", "application/json", []byte(`{"dataSource": "s", "database": "db", "collection": "c", "document": {"a": 1}}`)),
	}
	for name, call := range calls {
		if got := call("id-" + strings.ReplaceAll(name, " ", "-")); !strings.Contains(got,
			"errors.serverTexts") {
			t.Errorf("%s: the client is told %s", name, got)
		}
	}
	for name, call := range calls {
		id := "request_id=id-" + strings.ReplaceAll(name, " ", "-") + " "
		logged := false
		for line := range strings.Lines(g.log.String()) {
			logged = logged ||
				strings.Contains(line, "level=INFO") && strings.Contains(line, id) &&
					strings.Contains(line, "reason=Odd")
		}
		if !logged {
			t.Errorf("%s: the log has no %s: %s", name, id, g.log.String())
		}
		if got := call("other"); !strings.Contains(got, "$grup") &&
			!strings.Contains(got, "%24grup") {
			t.Errorf("%s: the client is told %s", name, got)
		}
	}
}
