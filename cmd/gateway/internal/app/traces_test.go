package app_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/event/eventtrace"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/otlptest"
)

// Ids of the traces of clients, whose spans are recorded.
const (
	findTrace        = "0af7651916cd43dd8448eb211c80319c"
	transactionTrace = "1af7651916cd43dd8448eb211c80319c"
)

func traceparent(trace string) string { return "00-" + trace + "-b7ad6b7169203331-01" }

// startCollector runs a collector that sends what it gets to a receiver. It returns the address for
// a protocol.
func startCollector(t *testing.T, to, protocol string) string {
	t.Helper()
	binary, err := filepath.Abs("../../../../bin/otelcol")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skip("there is no bin/otelcol: make collector builds it")
	}
	path := filepath.Join(t.TempDir(), "collector.yaml")
	at := map[string]string{"grpc": freeAddress(t), "http/protobuf": freeAddress(t)}
	text := fmt.Sprintf(collectorConfig, at["grpc"], at["http/protobuf"], to)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	collector := exec.CommandContext(t.Context(), binary, "--config", path)
	collector.Stderr = t.Output()
	collector.Cancel = func() error { return collector.Process.Signal(os.Interrupt) }
	if err := collector.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = collector.Wait() }) // the context of the test has ended
	for deadline := time.Now().Add(waitTime); ; {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at[protocol])
		if err == nil {
			conn.Close()
			return "http://" + at[protocol]
		}
		if time.Now().After(deadline) {
			t.Fatalf("the collector does not listen: %v", err)
		}
	}
}

const collectorConfig = `
receivers: {otlp: {protocols: {grpc: {endpoint: "%s"}, http: {endpoint: "%s"}}}}
exporters: {otlp_http: {endpoint: "%s", compression: none, sending_queue: {enabled: false}}}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines: {traces: {receivers: [otlp], exporters: [otlp_http]}}
`

// freeAddress returns an address of this machine that was free just now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// failPoint has the server fail some commands.
func (g *gateway) failPoint(json string) {
	g.t.Helper()
	if code, body := g.post("/v1/databases/admin:runCommand",
		`{"command": {"configureFailPoint": "failCommand", `+json+`}}`); code != http.StatusOK {
		g.t.Fatalf("fail point: %d %s", code, body)
	}
}

// TestTraces follows a find over REST and a transaction over gRPC, both with a command that is
// sent again, from the gateway into a receiver of OTLP.
func TestTraces(t *testing.T) {
	for _, tt := range []struct {
		protocol, compression string
		collector             bool // between the gateway and the receiver
	}{
		{"http/protobuf", "none", false},
		{"http/protobuf", "gzip", false},
		{"http/protobuf", "none", true},
		{"grpc", "none", true},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			receiver := otlptest.New(t)
			endpoint := receiver.URL
			if tt.collector {
				endpoint = startCollector(t, receiver.URL, tt.protocol)
			}
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", tt.protocol)
			t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", tt.compression)
			t.Setenv(eventtrace.MaxQueryTextLengthVariable, "1000")
			d := deployment.Listen(t, deployment.ReplicaSet, "8.0.0")
			g := start(t, d.URI(false, nil), "--tracing-sampling=0%", "--tracing-comment")
			g.ready()
			g.tracedFind()
			g.tracedTransaction()
			g.stop()
			receiver.Wait(t, 13) // the collector passes them on when it likes

			attributes := []string{
				"http.response.status_code", "rpc.response.status_code", "db.response.status_code",
			}
			const find = `
server POST /v1/databases/{database}/collections/{collection}/documents:find 200
  client find db.c
    client find failed 89
    client find
`
			if got := "\n" + receiver.Tree(findTrace, attributes...); got != find {
				t.Errorf("the trace of the find:%s\nwant:%s", got, find)
			}
			const transaction = `
server mooring.v1.TransactionService/Begin OK
server mooring.v1.DocumentService/InsertOne OK
  client transaction
    client insert db.c
      client insert
    client commitTransaction admin
      client commitTransaction failed 89
      client commitTransaction
server mooring.v1.TransactionService/Commit OK
`
			if got := "\n" + receiver.Tree(transactionTrace, attributes...); got != transaction {
				t.Errorf("the trace of the transaction:%s\nwant:%s", got, transaction)
			}
			if all := receiver.Spans(""); len(all) != 13 {
				t.Errorf("%d spans, want 13: those of the two traces, since no other is "+
					"recorded:\n%s", len(all), receiver.Tree(""))
			}
			for _, s := range receiver.Spans(findTrace) {
				const comment = `"comment":{"traceparent":"00-` + findTrace
				if s.GetName() == "find" &&
					!strings.Contains(otlptest.Attribute(s, "db.query.text"), comment) {
					t.Errorf("no trace in the command: %v", s.GetAttributes())
				}
				if strings.HasPrefix(s.GetName(), "POST") &&
					otlptest.Attribute(s, "mooring.request_id") != "traced" {
					t.Errorf("attributes of the request: %v", s.GetAttributes())
				}
			}
		})
	}
}

// TestTracesOfOtherWaysIn makes calls in the other protocols of the REST port. Their spans have the
// names of what is called, and have failed with the servers, whatever the status of HTTP is.
func TestTracesOfOtherWaysIn(t *testing.T) {
	receiver := otlptest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	d := deployment.Listen(t, deployment.ReplicaSet, "8.0.0")
	d.SetDocuments("db.large", documents(200, 64<<10)...)
	g := start(t, d.URI(false, nil), "--tracing-sampling=0%", "--data-api-sources=main")
	g.ready()
	const web, service = "application/grpc-web+proto", "/mooring.v1.DocumentService/"
	find, err := proto.Marshal(&mooringv1.FindOneRequest{Database: "db", Collection: "c"})
	if err != nil {
		t.Fatal(err)
	}
	enveloped := func(message string) string {
		return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))) + message
	}
	const fields = `{"database": "db", "collection": "c"}`
	for _, call := range []struct {
		path, contentType, body string
		code                    int // of the error of the find; 0: it succeeds
	}{
		{service + "FindOne", "application/json", fields, 0},
		{service + "FindOne", "application/json", fields, 50},
		{service + "FindOne", web, enveloped(string(find)), 0},
		{service + "FindOne", web, enveloped(string(find)), 50},
		{service + "FindOne", web, enveloped(string(find)), 2}, // the client's fault
		{service + "StreamFind", "application/connect+json", enveloped(fields), 0},
		{service + "StreamFind", "application/connect+json", enveloped(fields), 50},
		{
			"/app/a/endpoint/data/v1/action/findOne", "application/json",
			`{"dataSource": "main", "database": "db", "collection": "c"}`, 0,
		},
		{"/action/nothing", "application/json", "{}", 0},
		{ // fails when its beginning is sent
			"/action/find", "application/json",
			`{"dataSource": "main", "database": "db", "collection": "large"}`, 50,
		},
	} {
		if call.code != 0 {
			command := "find"
			if strings.Contains(call.body, "large") {
				command = "getMore"
			}
			g.failPoint(fmt.Sprintf(`"mode": {"times": 1}, "data": `+
				`{"failCommands": [%q], "errorCode": %d}`, command, call.code))
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+g.Addresses().REST+call.path, strings.NewReader(call.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", call.contentType)
		req.Header.Set("Traceparent", traceparent(findTrace))
		resp, err := g.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	g.stop()
	var got []string
	for line := range strings.Lines(receiver.Tree(findTrace, "http.response.status_code",
		"error.type")) {
		if strings.HasPrefix(line, "server") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	const findOne, streamFind = "server POST " + service + "FindOne",
		"server POST " + service + "StreamFind"
	want := []string{
		findOne + " 200", findOne + " failed 504 504",
		findOne + " 200", findOne + " failed 200 DeadlineExceeded", findOne + " 200",
		streamFind + " 200", streamFind + " failed 200 DeadlineExceeded",
		"server POST /action/findOne 200", "server POST 404",
		"server POST /action/find failed 200 DeadlineExceeded",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the spans: %q\nwant: %q", got, want)
	}
}

func (g *gateway) tracedFind() {
	g.t.Helper()
	g.failPoint(`"mode": {"times": 1}, "data": {"failCommands": ["find"], "errorCode": 89}`)
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost,
		"http://"+g.Addresses().REST+"/v1/databases/db/collections/c/documents:find", strings.NewReader(`{}`))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", traceparent(findTrace))
	req.Header.Set("Mooring-Request-Id", "traced")
	resp, err := g.http.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		g.t.Fatalf("find: %d %s", resp.StatusCode, body)
	}
}

func (g *gateway) tracedTransaction() {
	g.t.Helper()
	ctx := metadata.AppendToOutgoingContext(g.t.Context(), "traceparent",
		traceparent(transactionTrace))
	transactions := mooringv1.NewTransactionServiceClient(g.cc)
	begun, err := transactions.Begin(ctx, &mooringv1.TransactionServiceBeginRequest{})
	if err != nil {
		g.t.Fatal(err)
	}
	token := begun.GetTransaction()
	if _, err := mooringv1.NewDocumentServiceClient(g.cc).
		InsertOne(ctx, &mooringv1.InsertOneRequest{
			Database: "db", Collection: "c", Transaction: &token,
			Document: &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: `{"_id": 1}`}},
		}); err != nil {
		g.t.Fatal(err)
	}
	g.failPoint(`"mode": {"times": 1}, "data": {"failCommands": ["commitTransaction"], "errorCode": 89, "errorLabels": ["RetryableWriteError"]}`)
	if _, err := transactions.Commit(ctx,
		&mooringv1.TransactionServiceCommitRequest{Transaction: &token}); err != nil {
		g.t.Fatal(err)
	}
}
