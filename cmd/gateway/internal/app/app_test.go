package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/cmd/gateway/internal/app"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const waitTime = 30 * time.Second

// gateway is an App on ports that the kernel chose, with clients.
type gateway struct {
	*app.App
	t    *testing.T
	http *http.Client
	cc   *grpc.ClientConn
	log  logged
}

// logged keeps what the gateway logs.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func start(t *testing.T, uri string, options ...string) *gateway {
	t.Helper()
	return startWith(t, func(g *gateway) *slog.Logger {
		return slog.New(slog.NewTextHandler(&g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}, uri, options...)
}

// startWith is start with another logger.
func startWith(
	t *testing.T, log func(*gateway) *slog.Logger, uri string, options ...string,
) *gateway {
	t.Helper()
	return startOptions(t, log, append([]string{"--uri", uri}, options...)...)
}

// startOptions is startWith where the options have the connection string.
func startOptions(t *testing.T, log func(*gateway) *slog.Logger, options ...string) *gateway {
	t.Helper()
	g := &gateway{t: t}
	cfg := load(t, append([]string{
		"--grpc-address=127.0.0.1:0", "--rest-address=127.0.0.1:0", "--drain-linger=0s",
	}, options...)...)
	var err error
	logger := log(g)
	t.Cleanup(func() { logging.Close(logger) })
	g.App, err = app.New(cfg, logger)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatalf("Start = %v", err)
	}
	tr := &http.Transport{}
	g.http = &http.Client{Transport: tr, Timeout: waitTime}
	t.Cleanup(tr.CloseIdleConnections)
	g.cc, err = grpc.NewClient("passthrough:///"+g.Addresses().GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.cc.Close() })
	return g
}

func load(t testing.TB, args ...string) *config.Config {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(flags, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func (g *gateway) stop() {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	if err := g.Stop(ctx); err != nil {
		g.t.Errorf("Stop = %v", err)
	}
	select {
	case err := <-g.Failed():
		g.t.Errorf("Failed: %v", err)
	default:
	}
	if strings.Contains(g.log.String(), "hunter2") {
		g.t.Error("the log shows a secret")
	}
}

// post sends a request to REST and returns its status and body.
func (g *gateway) post(path, body string) (int, string) {
	g.t.Helper()
	r := g.send(path, body)
	if r.err != nil {
		g.t.Fatalf("POST %s: %v", path, r.err)
	}
	return r.code, r.body
}

// result is the outcome of a request to REST.
type result struct {
	code int
	body string
	err  error
}

// send is post for goroutines other than the test's, which must not end the test.
func (g *gateway) send(path, body string) result {
	resp, err := g.http.Post("http://"+g.Addresses().REST+path, "application/json", strings.NewReader(body))
	if err != nil {
		return result{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return result{resp.StatusCode, string(text), err}
}

func (g *gateway) status(path string) int {
	g.t.Helper()
	resp, err := g.http.Get("http://" + g.Addresses().REST + path)
	if err != nil {
		g.t.Fatalf("GET %s: %v", path, err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// ready waits until gRPC's health service reports it, as a client would.
func (g *gateway) ready() {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), waitTime)
	defer cancel()
	w, err := healthpb.NewHealthClient(g.cc).Watch(ctx, &healthpb.HealthCheckRequest{
		Service: mooringv1.DocumentService_ServiceDesc.ServiceName,
	})
	for err == nil {
		var r *healthpb.HealthCheckResponse
		if r, err = w.Recv(); err == nil && r.Status == healthpb.HealthCheckResponse_SERVING {
			return
		}
	}
	g.t.Fatalf("not ready: %v", err)
}

// documents returns n documents of so many bytes.
func documents(n, bytes int) []bson.Raw {
	docs := make([]bson.Raw, n)
	for i := range docs {
		b := bson.NewBuilder(nil)
		b.Int32("_id", int32(i))
		b.String("text", strings.Repeat("x", bytes))
		docs[i] = b.Finish()
	}
	return docs
}

func TestBothPortsServeTheSame(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("shop.orders", documents(3, 10)...)
	g := start(t, mongo.URI())
	g.ready()
	if got := g.status("/readyz"); got != http.StatusOK {
		t.Errorf("/readyz = %d", got)
	}

	code, body := g.post("/v1/databases/shop/collections/orders/documents:find", `{}`)
	var page struct{ Documents []json.RawMessage }
	if err := json.Unmarshal([]byte(body), &page); err != nil || code != http.StatusOK ||
		len(page.Documents) != 3 {
		t.Errorf("REST find = %d %s (%v), want 3 documents", code, body, err)
	}
	found, err := mooringv1.NewDocumentServiceClient(g.cc).
		Find(t.Context(), &mooringv1.FindRequest{Database: "shop", Collection: "orders"})
	if err != nil || len(found.GetDocuments()) != 3 {
		t.Errorf("gRPC Find = %v, %v, want 3 documents", found, err)
	}

	// Reflection names every service.
	r, err := reflectionpb.NewServerReflectionClient(g.cc).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	}); err != nil {
		t.Fatal(err)
	}
	list, err := r.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"mooring.v1.CommandService", "mooring.v1.DocumentService", "mooring.v1.CursorService", "mooring.v1.DeploymentService", "grpc.health.v1.Health",
	} {
		if !strings.Contains(list.String(), name) {
			t.Errorf("reflection does not name %s: %v", name, list)
		}
	}
	g.stop()
	noConnections(t, mongo)
}

// noConnections waits until the server has noticed the end of all connections.
func noConnections(t *testing.T, mongo *fakemongo.Server) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	late := time.After(waitTime)
	for mongo.OpenConnections() > 0 {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("%d connections to MongoDB are left", mongo.OpenConnections())
		}
	}
}

// TestStopCutsStreams checks that streams whose clients do not read are cut when the drain time
// is over, that their cursors are killed on the server, and that a stream that ends in time is
// not cut.
func TestStopCutsStreams(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("shop.orders", documents(2000, 16<<10)...)
	g := start(t, mongo.URI(), "--drain-timeout=200ms", "--handle-keys", handleKey,
		"--idempotency-key", handleKey)
	g.ready()

	const n = 5
	var streams []grpc.ServerStreamingClient[mooringv1.StreamFindResponse]
	for range n {
		s, err := mooringv1.NewDocumentServiceClient(g.cc).
			StreamFind(t.Context(),
				&mooringv1.StreamFindRequest{Database: "shop", Collection: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatalf("the first batch: %v", err)
		}
		streams = append(streams, s)
	}
	// Compressed, the documents fit in the buffers of the socket and the stream ends by itself.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+g.Addresses().REST+"/v1/databases/shop/collections/orders/documents:streamFind", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept-Encoding", "identity")
	resp, err := g.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if mongo.OpenCursors() != n+1 {
		t.Errorf("%d cursors are open, want %d", mongo.OpenCursors(), n+1)
	}

	begin := time.Now()
	g.stop()
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("Stop took %s", took)
	}
	noConnections(t, mongo)
	if open, killed := mongo.OpenCursors(), mongo.KilledCursors(); open != 0 || killed != n+1 {
		t.Errorf("%d cursors are open and %d killed, want 0 and %d", open, killed, n+1)
	}
	for _, s := range streams {
		var err error
		for err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a stream ended with %v, want UNAVAILABLE", err)
		}
	}
}

// TestStopEndsAbandonedWrites checks that a write whose client has gone, and whose server hangs, is
// cut when the drain time is over as any other call, so that the rest of the stop has its time.
func TestStopEndsAbandonedWrites(t *testing.T) {
	reached := make(chan struct{})
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{"delete": func(
		*fakemongo.Command,
	) fakemongo.Reply {
		close(reached)
		return fakemongo.Hang()
	}})
	mongo.SetDocuments("db.c", fakemongo.Numbered(0, 50, 10)...)
	g := start(t, mongo.URI(), "--drain-timeout=200ms")
	g.ready()
	for range 3 {
		g.find()
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := mooringv1.NewDocumentServiceClient(g.cc).DeleteMany(ctx,
			&mooringv1.DeleteManyRequest{
				Database: "db", Collection: "c",
				Filter: &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: `{}`}},
			})
		gone <- err
	}()
	select {
	case <-reached:
	case err := <-gone:
		t.Fatalf("DeleteMany = %v", err)
	}
	cancel()
	if err := <-gone; status.Code(err) != codes.Canceled {
		t.Errorf("the write whose client has gone = %v", err)
	}
	within, end := context.WithTimeout(t.Context(), operation.RunOnLimit/2)
	defer end()
	if err := g.Stop(within); err != nil {
		t.Errorf("Stop = %v", err)
	}
	if open := mongo.OpenCursors(); open != 0 {
		t.Errorf("%d cursors are open", open)
	}
	g.logs(`level=INFO msg=drained cursors_handed_over=0 cursors_ended=3 cursors_left=0 transactions_ended=0 change_streams_ended=0 calls_cut=1`, 1)
}

// TestStopRefusesNewCalls checks that the gateway is not ready and refuses calls while it waits
// for a call in flight, which gets its answer.
func TestStopRefusesNewCalls(t *testing.T) {
	reached, answer := make(chan struct{}), make(chan struct{})
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{"slow": func(
		*fakemongo.Command,
	) fakemongo.Reply {
		close(reached)
		<-answer
		return fakemongo.OK(nil)
	}})
	g := start(t, mongo.URI(), "--drain-timeout=1m", "--admin-address=127.0.0.1:0")
	g.ready()
	slow := make(chan result, 1)
	go func() { slow <- g.send("/v1/databases/db:runCommand", `{"command":{"slow":1}}`) }()
	select {
	case <-reached:
	case r := <-slow:
		t.Fatalf("the call in flight ended early: %+v", r)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		g.stop()
	}()
	for g.status("/readyz") == http.StatusOK {
		select {
		case <-stopped:
			t.Fatal("stopped although a call is in flight")
		default:
		}
	}
	if got := g.status("/healthz"); got != http.StatusOK {
		t.Errorf("/healthz = %d while it drains", got)
	}
	if got := g.metrics(); !strings.Contains(got, "\nmooring_stopping 1\n") {
		t.Error("the metrics do not say that it stops")
	}
	// Readiness ends first, the gate closes after it.
	for code := 0; code != http.StatusServiceUnavailable; {
		if code, _ = g.post("/v1/databases/db:runCommand",
			`{"command":{"ping":1}}`); code != http.StatusOK &&
			code != http.StatusServiceUnavailable {
			t.Fatalf("a call while it drains = %d, want 503", code)
		}
	}
	close(answer)
	if r := <-slow; r.err != nil || r.code != http.StatusOK {
		t.Errorf("the call in flight = %+v", r)
	}
	<-stopped
}

// TestHealthBesideClients checks that clients that hold all connections do not hide the gateway's
// health from the admin port.
func TestHealthBesideClients(t *testing.T) {
	g := start(t, fakemongo.NewTCPServer(t, nil).URI(), "--connections-max=1",
		"--admin-address=127.0.0.1:0")
	if code, body := g.post("/v1/databases/db:runCommand",
		`{"command":{"ping":1}}`); code != http.StatusOK { // the connection stays open
		t.Fatalf("runCommand = %d %s", code, body)
	}
	another := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: waitTime,
	}
	if resp, err := another.Get("http://" + g.Addresses().REST + "/healthz"); err == nil {
		resp.Body.Close()
		t.Errorf("a connection more is answered: %s", resp.Status)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		resp, err := another.Get("http://" + g.Addresses().Admin + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s on the admin port = %s", path, resp.Status)
		}
	}
	g.stop()
}

func TestServerDown(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDown(true)
	g := start(t, mongo.URI()+"&serverSelectionTimeoutMS=50")
	if got := g.status("/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz = %d, want 503", got)
	}
	if code, body := g.post("/v1/databases/db:runCommand",
		`{"command":{"ping":1}}`); code != http.StatusServiceUnavailable {
		t.Errorf("runCommand = %d %s, want 503", code, body)
	}
	g.stop()
}

// TestRequestTimeout checks that a request without a deadline gets the configured one.
func TestRequestTimeout(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t,
		fakemongo.Handlers{"ping": fakemongo.Always(fakemongo.Hang())})
	g := start(t, mongo.URI(), "--requests-timeout=50ms")
	if code, body := g.post("/v1/databases/db:runCommand",
		`{"command":{"ping":1}}`); code != http.StatusGatewayTimeout {
		t.Errorf("runCommand = %d %s, want 504", code, body)
	}
	g.stop()
}

func TestDebugPort(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	g := start(t, mongo.URI(), "--debug-address=127.0.0.1:0")
	g.ready()
	g.post("/v1/databases/db:runCommand", `{"command":{"ping":1}}`)
	resp, err := g.http.Get("http://" + g.Addresses().Debug + "/debug/vars")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var vars struct {
		Pools map[string]struct{ Total int } `json:"mooring_pools"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&vars); err != nil ||
		vars.Pools[string(mongo.Address())].Total == 0 {
		t.Errorf("/debug/vars = %+v, %v; want a connection to %s", vars, err, mongo.Address())
	}
	g.stop()
}

// TestComesUpWithoutDNS starts the gateway while DNS fails: it runs, is not ready, and refuses
// calls with an error that clients may retry.
func TestComesUpWithoutDNS(t *testing.T) {
	system := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(
		context.Context, string, string,
	) (net.Conn, error) {
		return nil, errors.New("no DNS here")
	}}
	defer func() { net.DefaultResolver = system }()
	g := start(t, "mongodb+srv://db.example.com/")
	if code := g.status("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz = %d, want 503", code)
	}
	if code := g.status("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz = %d, want 200", code)
	}
	code, body := g.post("/v1/databases/shop/collections/orders/documents:find", `{}`)
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "not looked up yet") ||
		!strings.Contains(body, "same-request") {
		t.Errorf("find = %d %s, want 503 that may be repeated", code, body)
	}
	g.stop()
	if text := g.log.String(); !strings.Contains(text,
		"cannot look up the MongoDB servers; retrying") || !strings.Contains(text, "no DNS here") {
		t.Errorf("log: %s", text)
	}
}

func TestRefusedAtTheStart(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"certificate", []string{"--tls-certificate-file=/no/such", "--tls-key-file=/no/such"}, "tls.certificateFile"},
		{"CA file of the connection string", []string{"--uri=mongodb://h/?tls=true&tlsCAFile=/no/such"}, "option uri"},
		{"addresses file", []string{"--addresses-file", filepath.Join(t.TempDir(), "no", "such")}, "option addressesFile"},
		{"port", []string{"--allow-plaintext", "--allow-unauthenticated", "--rest-address", "256.0.0.1:0"}, "option rest.address"},
		{"port for replicas", []string{"--handle-keys", handleKey, "--idempotency-key", handleKey, "--replica-address", "256.0.0.1:0"}, "option replica.address"},
		{"port, when replicas are answered already", []string{"--handle-keys", handleKey, "--idempotency-key", handleKey, "--replica-address=127.0.0.1:0", "--allow-plaintext", "--allow-unauthenticated", "--rest-address=256.0.0.1:0"}, "option rest.address"},
	} {
		t.Run(row.name, func(t *testing.T) {
			args := append([]string{"--uri=mongodb://127.0.0.1:1", "--grpc-address=127.0.0.1:0", "--rest-address=127.0.0.1:0"}, row.args...)
			a, err := app.New(load(t, args...), slog.New(slog.DiscardHandler))
			if err == nil {
				err = a.Start(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), row.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line that names %s", err, row.want)
			}
		})
	}
}
