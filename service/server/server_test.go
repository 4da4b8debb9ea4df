package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	_ "github.com/mooringdb/mooring/gen/mooring/replica/v1" // gives reflection something to hide
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server with two API streams: /test.Test/Stream runs until finish or cut is closed,
// /test.Test/Flood sends until an error.
type rig struct {
	*server.Server
	// flooded is closed when Flood has ended; nil if Flood is not called.
	flooded                        chan struct{}
	unready, draining, finish, cut chan struct{}
	failed                         chan error
	entered                        chan struct{}
}

// Drain acts as the gate: it returns when the stream has ended, or cuts it when ctx ends.
func (r *rig) Drain(ctx context.Context) error {
	close(r.draining)
	select {
	case <-r.finish:
	case <-ctx.Done():
		close(r.cut)
	}
	if r.flooded != nil {
		<-r.flooded
	}
	return nil
}

func (r *rig) flood(_ any, ss grpc.ServerStream) error {
	defer close(r.flooded)
	r.entered <- struct{}{}
	for {
		if err := ss.SendMsg(wrapperspb.Bytes(make([]byte, 64<<10))); err != nil {
			return err
		}
	}
}

func (r *rig) stream(_ any, ss grpc.ServerStream) error {
	r.entered <- struct{}{}
	select {
	case <-r.finish:
		return ss.SendMsg(&emptypb.Empty{})
	case <-r.cut:
		return status.Error(codes.Unavailable, "cut")
	case <-ss.Context().Done():
		return ss.Context().Err()
	}
}

func newRig(t *testing.T, change func(*server.Config)) *rig {
	t.Helper()
	r := &rig{
		unready: make(chan struct{}), draining: make(chan struct{}), finish: make(chan struct{}),
		cut:    make(chan struct{}),
		failed: make(chan error, 3), entered: make(chan struct{}, 1),
	}
	cfg := server.Config{
		GRPCAddress: "127.0.0.1:0", RESTAddress: "127.0.0.1:0", DebugAddress: "127.0.0.1:0",
		AdminAddress: "127.0.0.1:0",
		DrainTimeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	say := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, text)
		})
	}
	r.Server = server.New(cfg, server.Parts{
		GRPC: func() *grpc.Server {
			return r.grpc(cfg.TLS)
		}, REST: say("rest"), Debug: say("debug"), Admin: say("admin"), Gate: r,
		Unready: func() { close(r.unready) }, Failed: func(err error) { r.failed <- err },
	})
	return r
}

func (r *rig) grpc(secure *tls.Config) *grpc.Server {
	g, _ := server.NewGRPC(server.GRPCConfig{
		TLS: secure, MaxRequestSize: 1 << 20, Stopping: r.unready,
		Unary: func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler,
		) (any, error) {
			return h(ctx, req)
		},
		Stream: func(
			srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler,
		) error {
			return h(srv, ss)
		},
	})
	healthpb.RegisterHealthServer(g, health.NewServer())
	server.RegisterReflection(g)
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Test", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			{StreamName: "Stream", Handler: r.stream, ServerStreams: true},
			{StreamName: "Flood", Handler: r.flood, ServerStreams: true},
		},
	}, r)
	return g
}

func (r *rig) start(t *testing.T) {
	t.Helper()
	if err := r.Start(t.Context()); err != nil {
		t.Fatalf("Start = %v", err)
	}
}

func (r *rig) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		t.Errorf("Stop = %v", err)
	}
	select {
	case err := <-r.failed:
		t.Errorf("a port failed: %v", err)
	default:
	}
}

func (r *rig) dial(t *testing.T, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+r.Addresses().GRPC, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// open starts an API stream and waits until its handler runs.
func (r *rig) open(t *testing.T, method string) grpc.ClientStream {
	t.Helper()
	s, err := r.dial(t, insecure.NewCredentials()).
		NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SendMsg(&emptypb.Empty{}); err != nil {
		t.Fatal(err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	<-r.entered
	return s
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// client returns an HTTP client that leaves no connection behind.
func client(t *testing.T, cfg *tls.Config) *http.Client {
	tr := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestServesAndSaysWhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "addresses.json")
	r := newRig(t, func(cfg *server.Config) { cfg.AddressesFile = file })
	r.start(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var addresses server.Addresses
	if err := json.Unmarshal(text, &addresses); err != nil || addresses != r.Addresses() {
		t.Errorf("the file says %s, want %+v (%v)", text, r.Addresses(), err)
	}
	c := client(t, nil)
	if got := get(t, c, "http://"+addresses.REST); got != "rest" {
		t.Errorf("REST says %q", got)
	}
	if got := get(t, c, "http://"+addresses.Debug); got != "debug" {
		t.Errorf("the debug port says %q", got)
	}
	if got := get(t, c, "http://"+addresses.Admin); got != "admin" {
		t.Errorf("the admin port says %q", got)
	}
	h := healthpb.NewHealthClient(r.dial(t, insecure.NewCredentials()))
	if _, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("Check = %v", err)
	}
	close(r.finish)
	r.stop(t)
}

// Errors that gRPC itself would return without details have them, as every other error.
func TestUnknownMethods(t *testing.T) {
	r := newRig(t, nil)
	r.start(t)
	conn := r.dial(t, insecure.NewCredentials())
	for _, method := range []string{
		"/test.Test/Nothing", "/nothing.Nothing/Nothing", "/grpc.health.v1.Health/Nothing", "/grpc.nothing.Nothing/Nothing",
	} {
		err := conn.Invoke(t.Context(), method, &emptypb.Empty{}, &emptypb.Empty{})
		st := status.Convert(err)
		if st.Code() != codes.Unimplemented || len(st.Details()) != 1 ||
			rpcerr.HTTP(err).Body.GetError().GetReason() != "Unimplemented" ||
			!strings.Contains(st.Message(), method) {
			t.Errorf("%s: %v, details %v", method, err, st.Details())
		}
	}
	close(r.finish)
	r.stop(t)
}

// TestReflectionOfUnknownFiles checks that a question about a missing or an internal file gets an
// answer: the stream goes on.
func TestReflectionOfUnknownFiles(t *testing.T) {
	r := newRig(t, nil)
	r.start(t)
	stream, err := reflectionpb.NewServerReflectionClient(r.dial(t, insecure.NewCredentials())).
		ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		file string
		want codes.Code
	}{
		{"no/such.proto", codes.NotFound},
		{"mooring/replica/v1/replica.proto", codes.NotFound},
		{"google/protobuf/empty.proto", codes.OK},
	} {
		err := stream.Send(&reflectionpb.ServerReflectionRequest{
			MessageRequest: &reflectionpb.ServerReflectionRequest_FileByFilename{
				FileByFilename: row.file,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatalf("reflection of %s: %v", row.file, err)
		}
		if got := codes.Code(answer.GetErrorResponse().GetErrorCode()); got != row.want {
			t.Errorf("reflection of %s = %v, want %v", row.file, got, row.want)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	close(r.finish)
	r.stop(t)
}

func TestListenersThatAreOff(t *testing.T) {
	r := newRig(t, func(cfg *server.Config) {
		cfg.GRPCAddress, cfg.DebugAddress, cfg.AdminAddress = "", "", ""
	})
	r.start(t)
	if a := r.Addresses(); a.GRPC != "" || a.Debug != "" || a.REST == "" {
		t.Errorf("Addresses = %+v, want REST only", a)
	}
	close(r.finish)
	r.stop(t)
}

func TestStartFailsWhole(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, row := range []struct {
		name   string
		change func(*server.Config)
		want   string
	}{
		{"port taken", func(cfg *server.Config) { cfg.RESTAddress = taken.Addr().String() }, "option rest.address: "},
		{"addresses file", func(cfg *server.Config) { cfg.AddressesFile = "/no/such/directory/file" }, "option addressesFile: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, row.change)
			err := r.Start(t.Context())
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Fatalf("Start = %v, want %q", err, row.want)
			}
			if c, err := net.Dial("tcp", r.Addresses().GRPC); err == nil {
				c.Close()
				t.Error("the gRPC port is still open")
			}
		})
	}
}

// TestStopLetsWorkFinish checks the order of a stop: unready first; then a stream in flight runs
// to its end and REST still answers. A health watch, which would never end, does not delay it.
func TestStopLetsWorkFinish(t *testing.T) {
	r := newRig(t, func(cfg *server.Config) { cfg.DrainTimeout = time.Minute })
	r.start(t)
	s := r.open(t, "/test.Test/Stream")
	watch, err := healthpb.NewHealthClient(r.dial(t, insecure.NewCredentials())).
		Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.stop(t)
	}()
	<-r.unready
	<-r.draining
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the health watch ended with %v, want UNAVAILABLE", err)
	}
	if got := get(t, client(t, nil), "http://"+r.Addresses().REST); got != "rest" {
		t.Errorf("REST says %q while it drains", got)
	}
	close(r.finish)
	if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
		t.Errorf("the stream's message: %v", err)
	}
	if err := s.RecvMsg(&emptypb.Empty{}); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v, want EOF", err)
	}
	<-stopped
}

// TestStopTellsClientsToReconnect checks that REST answers say `Connection: close` while the server
// drains, so that the client's next request goes elsewhere.
func TestStopTellsClientsToReconnect(t *testing.T) {
	r := newRig(t, func(cfg *server.Config) { cfg.DrainTimeout = time.Minute })
	r.start(t)
	closes := func() bool {
		t.Helper()
		resp, err := client(t, nil).Get("http://" + r.Addresses().REST)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "rest" {
			t.Errorf("body = %q, %v", text, err)
		}
		return resp.Close
	}
	if closes() {
		t.Error("Connection: close before Stop")
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.stop(t)
	}()
	<-r.draining
	if !closes() {
		t.Error("no Connection: close while the server drains")
	}
	close(r.finish)
	<-stopped
}

func TestStopCutsWhatIsLeft(t *testing.T) {
	r := newRig(t, func(cfg *server.Config) { cfg.DrainTimeout = 10 * time.Millisecond })
	r.start(t)
	s := r.open(t, "/test.Test/Stream")
	r.stop(t)
	if err := s.RecvMsg(&emptypb.Empty{}); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want UNAVAILABLE", err)
	}
}

// TestStopIsNotHeldUp checks that a client that does not read, and so blocks a handler in the
// middle of a message, does not delay the stop.
func TestStopIsNotHeldUp(t *testing.T) {
	r := newRig(t, func(cfg *server.Config) { cfg.DrainTimeout = 0 })
	r.flooded = make(chan struct{})
	r.start(t)
	r.open(t, "/test.Test/Flood")
	r.stop(t)
}

func TestTLS(t *testing.T) {
	pair := certtest.Authority(t, certtest.ECDSA).Issue(t, "localhost").TLS(nil)
	r := newRig(t, func(c *server.Config) {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	})
	r.start(t)
	trusting := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a certificate of this test's own
	if got := get(t, client(t, trusting), "https://"+r.Addresses().REST); got != "rest" {
		t.Errorf("REST says %q", got)
	}
	h := healthpb.NewHealthClient(r.dial(t, credentials.NewTLS(trusting)))
	if _, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("Check = %v", err)
	}
	close(r.finish)
	r.stop(t)
}

// TestTraceOff checks that a server whose calls are not observed allocates nothing for it.
func TestTraceOff(t *testing.T) {
	const method = "/mooring.v1.DocumentService/FindOne"
	if n := testing.AllocsPerRun(100, func() {
		server.Trace(t.Context(), &server.GRPCConfig{}, method)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
