package app_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// audited returns the lines of an audit log, each as principal, action, namespace and outcome.
func audited(t *testing.T, path string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Principal, Action, Namespace, Outcome string
			RequestID                             string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.RequestID == "" {
			t.Errorf("line %q: %v", line, err)
		}
		lines = append(lines,
			strings.Join([]string{e.Principal, e.Action, e.Namespace, e.Outcome}, " "))
	}
	return lines
}

// TestAudit checks that the file has a line for each write and each refusal, of both listeners, and
// that a new file is begun when the old one was renamed.
func TestAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	key, line := newKey(t, "shop", time.Time{})
	mongo := fakemongo.NewTCPServer(t,
		fakemongo.Handlers{"insert": fakemongo.Always(fakemongo.OK(func(
			b *bson.Builder,
		) {
			b.Int32("n", 1)
		}))})
	g := start(t, mongo.URI(), "--auth-api-keys-file", secretFile(t, "keys", line), "--audit-file",
		path)
	defer g.stop()
	documents := mooringv1.NewDocumentServiceClient(g.cc)
	insert := &mooringv1.InsertOneRequest{
		Database: "db", Collection: "c",
		Document: &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: `{"a": 1}`}},
	}
	known := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key)
	if _, err := documents.InsertOne(known, insert); err != nil {
		t.Fatal(err)
	}
	if _, err := documents.FindOne(known,
		&mooringv1.FindOneRequest{Database: "db", Collection: "c"}); err != nil {
		t.Fatal(err)
	}
	if _, err := documents.FindOne(t.Context(),
		&mooringv1.FindOneRequest{Database: "db", Collection: "c"}); err == nil {
		t.Error("a call without a key succeeds")
	}
	resp, err := http.Get("http://" + g.Addresses().REST + "/v1/databases") //nolint:noctx // a test's own
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	flush := func() {
		if err := g.FlushAudit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	want := []string{
		"key:shop DocumentService/InsertOne db.c ok",
		" DocumentService/FindOne  Unauthenticated",
		" GET /v1/databases  Unauthenticated",
	}
	if got := audited(t, path); !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	g.Reload()
	if _, err := documents.InsertOne(known, insert); err != nil {
		t.Fatal(err)
	}
	flush()
	if got := audited(t, path); !slices.Equal(got, want[:1]) {
		t.Errorf("the new file has %q, want %q", got, want[:1])
	}
	if got := audited(t, path+".1"); !slices.Equal(got, want) {
		t.Errorf("the old file has %q, want %q", got, want)
	}
}

// TestAuditOfUnreadRequests sends writes that are larger than a request may be, by all ways in.
// They are refused before they are calls, and the file has each as a call of its client.
func TestAuditOfUnreadRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	key, line := newKey(t, "shop", time.Time{})
	g := start(t, fakemongo.NewTCPServer(t, nil).URI(), "--requests-max-size=64KiB",
		"--auth-api-keys-file", secretFile(t, "keys", line), "--audit-file", path,
		"--data-api-sources=main", "--admin-address=127.0.0.1:0")
	defer g.stop()
	known := metadata.AppendToOutgoingContext(t.Context(), "api-key", key)
	_, err := mooringv1.NewDocumentServiceClient(g.cc).InsertMany(known,
		&mooringv1.InsertManyRequest{
			Database: "db", Collection: "c",
			Documents: []*mooringv1.Document{{Encoding: &mooringv1.Document_Bson{
				Bson: documents(1, 100<<10)[0],
			}}},
		})
	id := ""
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RequestInfo); ok {
			id = info.GetRequestId()
		}
	}
	if log := g.log.String(); id == "" || !strings.Contains(log, "request_id="+id+
		" method=/mooring.v1.DocumentService/InsertMany code=ResourceExhausted "+
		"reason=MessageTooLarge principal=key:shop") {
		t.Errorf("InsertMany = %v with the id %q, which is not in the log", err, id)
	}
	const series = `mooring_errors_total{reason="MessageTooLarge",rpc_response_status_code="RESOURCE_EXHAUSTED"} 1`
	if got := g.metrics(); !strings.Contains(got, series+"\n") {
		t.Errorf("the metrics have no %s", series)
	}
	text := strings.Repeat("x", 100<<10)
	for _, to := range []struct{ path, contentType string }{
		{"/v1/databases/db/collections/c/documents:insertMany", "application/json"},
		{"/mooring.v1.DocumentService/InsertMany", "application/proto"},
		{"/mooring.v1.DocumentService/InsertMany", "application/grpc-web+proto"},
		{"/action/insertMany", "application/json"},
	} {
		for _, method := range []string{http.MethodPost, http.MethodOptions} {
			r, err := http.NewRequestWithContext(t.Context(), method,
				"http://"+g.Addresses().REST+to.path, strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if method == http.MethodPost {
				r.Header.Set("Content-Type", to.contentType)
				r.Header.Set("Api-Key", key)
			} else { // what browsers ask before a call is none, and anyone may ask
				r.Header.Set("Access-Control-Request-Method", "POST")
			}
			resp, err := g.http.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
	}
	if err := g.FlushAudit(t.Context()); err != nil {
		t.Fatal(err)
	}
	const insert = "key:shop DocumentService/InsertMany  "
	want := []string{
		insert + "MessageTooLarge", insert + "TooLarge", insert + "TooLarge", insert + "TooLarge", insert + "TooLarge",
	}
	if got := audited(t, path); !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

// TestAuditAtTheEnd checks that the file has the line of a call that ends during the shutdown.
func TestAuditAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	begun, end := make(chan struct{}), make(chan struct{})
	inserted := fakemongo.OK(func(b *bson.Builder) { b.Int32("n", 1) })
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{
		"insert": func(c *fakemongo.Command) fakemongo.Reply {
			close(begun)
			<-end
			return fakemongo.Always(inserted)(c)
		},
	})
	g := start(t, mongo.URI(), "--audit-file", path)
	answered := make(chan error, 1)
	go func() {
		_, err := mooringv1.NewDocumentServiceClient(g.cc).InsertOne(t.Context(), anInsert())
		answered <- err
	}()
	<-begun
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		g.stop()
	}()
	close(end)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	<-stopped
	want := []string{" DocumentService/InsertOne db.c ok"}
	if got := audited(t, path); !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

func anInsert() *mooringv1.InsertOneRequest {
	return &mooringv1.InsertOneRequest{
		Database: "db", Collection: "c",
		Document: &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: `{"a": 1}`}},
	}
}

// TestAuditDestinations checks that calls go on, and the gateway stops, if the audit log is on a
// full disk or a pipe that nothing reads.
func TestAuditDestinations(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	inserted := fakemongo.OK(func(b *bson.Builder) { b.Int32("n", 1) })
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{"insert": fakemongo.Always(inserted)})
	for path, want := range map[string]string{
		"/dev/full": "the audit log cannot be written",
		pipe:        "the gateway stopped before they were written",
	} {
		if _, err := os.Stat(path); err != nil {
			t.Skip(err)
		}
		g := start(t, mongo.URI(), "--audit-file", path)
		documents := mooringv1.NewDocumentServiceClient(g.cc)
		for range 500 { // more than a pipe holds
			if _, err := documents.InsertOne(t.Context(), anInsert()); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
		g.stop()
		if text := g.log.String(); !strings.Contains(text, want) {
			t.Errorf("%s: the gateway's log has %s", path, text)
		}
	}
}
