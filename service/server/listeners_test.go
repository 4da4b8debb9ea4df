package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/service/server"
)

// socketPath returns a path that is short enough for a socket.
func socketPath(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, name)
}

func TestUnixSockets(t *testing.T) {
	rest, grpcPath := socketPath(t, "r"), socketPath(t, "g")
	// A process that was killed leaves its socket behind.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: rest})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()

	r := newRig(t, func(c *server.Config) {
		c.RESTAddress, c.GRPCAddress = "unix:"+rest, "unix:"+grpcPath
	})
	r.start(t)
	if got := r.Addresses(); got.REST != "unix:"+rest || got.GRPC != "unix:"+grpcPath {
		t.Errorf("Addresses = %+v", got)
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", rest)
	}}
	defer tr.CloseIdleConnections()
	if got := get(t, &http.Client{Transport: tr}, "http://localhost/"); got != "rest" {
		t.Errorf("REST says %q", got)
	}
	cc, err := grpc.NewClient("unix:"+grpcPath,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	if _, err := healthpb.NewHealthClient(cc).
		Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("Check = %v", err)
	}

	// A socket that is in use is not taken over, nor is a file that is none.
	file := certtest.File(t, "file")
	for _, path := range []string{rest, file} {
		second := newRig(t, func(c *server.Config) { c.RESTAddress = "unix:" + path })
		if err := second.Start(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "option rest.address") {
			t.Errorf("Start at %s = %v, want an error", path, err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s is gone: %v", path, err)
		}
	}
	close(r.finish)
	r.stop(t)
	if _, err := os.Stat(rest); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// TestOldConnections checks that clients of connections beyond the age use others, and that no
// request fails by that.
func TestOldConnections(t *testing.T) {
	pair := certtest.Authority(t, certtest.ECDSA).Issue(t, "localhost").TLS(nil)
	r := newRig(t, func(c *server.Config) {
		c.MaxAge = time.Nanosecond
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	})
	r.start(t)
	var dials atomic.Int64
	for _, protocols := range []func(*http.Protocols){
		func(p *http.Protocols) { p.SetHTTP1(true) },
		func(p *http.Protocols) { p.SetHTTP2(true) },
	} {
		tr := &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			Protocols:       &http.Protocols{}, DialContext: func(
				ctx context.Context, network, address string,
			) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, address)
			},
		}
		protocols(tr.Protocols)
		dials.Store(0)
		for range 3 {
			if got := get(t, &http.Client{Transport: tr}, "https://"+r.Addresses().REST); got != "rest" {
				t.Errorf("REST says %q", got)
			}
		}
		if n := dials.Load(); n != 3 {
			t.Errorf("%s: %d connections for 3 requests", tr.Protocols, n)
		}
		tr.CloseIdleConnections()
	}
	close(r.finish)
	r.stop(t)
}

// guardedRig is a gRPC server with a unary and a streaming method that asks for metadata "who".
type guardedRig struct {
	cc      *grpc.ClientConn
	decoded atomic.Int64
}

type whoKey struct{}

func incomingWho(ctx context.Context) string {
	return strings.Join(metadata.ValueFromIncomingContext(ctx, "who"), ",")
}

func outgoingWho(ctx context.Context, who string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "who", who)
}

func newGuardedRig(t *testing.T) *guardedRig {
	t.Helper()
	r := &guardedRig{}
	cfg := server.GRPCConfig{
		MaxRequestSize: 1 << 20, MaxStreams: 2, MaxAge: time.Hour, Stopping: make(chan struct{}),
		Unary: func(
			ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler,
		) (any, error) {
			if info.FullMethod != "/test.Test/Unary" {
				t.Errorf("intercepted %s", info.FullMethod)
			}
			return h(ctx, req)
		},
		Stream: func(
			srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler,
		) error {
			return h(srv, ss)
		},
		Authenticate: func(ctx context.Context, method string) (context.Context, error) {
			md := incomingWho(ctx)
			if md == "" {
				return nil, status.Error(codes.Unauthenticated, method)
			}
			return context.WithValue(ctx, whoKey{}, md), nil
		},
	}
	g, registrar := server.NewGRPC(cfg)
	answer := func(ctx context.Context) *wrapperspb.StringValue {
		who, _ := ctx.Value(whoKey{}).(string)
		return wrapperspb.String(who)
	}
	registrar.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Test", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Unary",
			Handler: func(srv any, ctx context.Context, decode func(
				any,
			) error, interceptor grpc.UnaryServerInterceptor,
			) (any, error) {
				in := new(wrapperspb.BytesValue)
				r.decoded.Add(1)
				if err := decode(in); err != nil {
					return nil, err
				}
				return interceptor(ctx, in,
					&grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Test/Unary"}, func(
						ctx context.Context, _ any,
					) (any, error) {
						if len(in.Value) == 1 {
							return nil, status.Error(codes.NotFound, "one byte")
						}
						return answer(ctx), nil
					})
			},
		}},
		Streams: []grpc.StreamDesc{{
			StreamName: "Stream", ServerStreams: true,
			Handler: func(_ any, ss grpc.ServerStream) error { return ss.SendMsg(answer(ss.Context())) },
		}},
	}, r)
	healthpb.RegisterHealthServer(registrar, health.NewServer())
	server.RegisterReflection(g)
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's own
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	r.cc, err = grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.cc.Close()
		g.Stop()
		if err := <-done; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	return r
}

// TestCallsAreReadLate checks that the request of a call is read after its client is known, and
// that unary calls behave as ever otherwise.
func TestCallsAreReadLate(t *testing.T) {
	r := newGuardedRig(t)
	known := outgoingWho(t.Context(), "ann")
	call := func(ctx context.Context, size int) (string, error) {
		out := new(wrapperspb.StringValue)
		err := r.cc.Invoke(ctx, "/test.Test/Unary", wrapperspb.Bytes(make([]byte, size)), out)
		return out.GetValue(), err
	}
	for _, size := range []int{0, 1 << 10, 1 << 19} {
		if _, err := call(t.Context(), size); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a stranger's call of %d bytes: %v", size, err)
		}
	}
	if n := r.decoded.Load(); n != 0 {
		t.Errorf("%d requests of strangers were read", n)
	}
	if who, err := call(known, 1<<19); who != "ann" || err != nil {
		t.Errorf("a known client's call: %q, %v", who, err)
	}
	if _, err := call(known, 1); status.Code(err) != codes.NotFound {
		t.Errorf("a call that fails: %v", err)
	}
	if _, err := call(known, 2<<20); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a call that is too large: %v", err)
	}
	for method, want := range map[string]codes.Code{
		"/test.Test/Stream": codes.Unauthenticated, "/test.Test/Nothing": codes.Unauthenticated, "/nothing.Nothing/Nothing": codes.Unauthenticated,
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": codes.Unauthenticated, "/grpc.health.v1.Health/Nothing": codes.Unimplemented,
	} {
		if err := r.cc.Invoke(t.Context(), method, &emptypb.Empty{},
			&emptypb.Empty{}); status.Code(err) != want {
			t.Errorf("a stranger's %s: %v, want %s", method, err, want)
		}
	}
	if _, err := healthpb.NewHealthClient(r.cc).
		Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("a stranger's Check: %v", err)
	}
	s, err := r.cc.NewStream(known, &grpc.StreamDesc{ServerStreams: true}, "/test.Test/Stream")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SendMsg(&emptypb.Empty{}), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	out := new(wrapperspb.StringValue)
	if err := s.RecvMsg(out); err != nil || out.GetValue() != "ann" {
		t.Errorf("a known client's stream: %q, %v", out.GetValue(), err)
	}
	if err := s.RecvMsg(out); !errors.Is(err, io.EOF) {
		t.Errorf("the stream's end: %v", err)
	}
	reflection, err := reflectionpb.NewServerReflectionClient(r.cc).ServerReflectionInfo(known)
	if err != nil {
		t.Fatal(err)
	}
	if err := reflection.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	}); err != nil {
		t.Fatal(err)
	}
	if list, err := reflection.Recv(); err != nil || !strings.Contains(list.String(), "test.Test") {
		t.Errorf("a known client's reflection: %v, %v", list, err)
	}
	_ = reflection.CloseSend()
}
