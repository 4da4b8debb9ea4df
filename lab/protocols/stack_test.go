package protocols

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/server"
	"github.com/mooringdb/mooring/service/web"
)

// stack describes the listeners with other services than the gateway's.
type stack struct {
	services []string // their full names
	register func(grpc.ServiceRegistrar)
	around   func(http.Handler) http.Handler // of the port of REST; nil: none
	// rest says that REST answers what is not a call of a service, in JSON.
	rest bool
	tls  *tls.Config
	// largest limits a message, in bytes.
	largest int
}

// The defaults of the gateway.
const (
	maxStreams     = 250
	maxRequestSize = 64 << 20
)

// start serves on two ports of loopback until stop.
//
//nolint:contextcheck // what it starts outlives ctx
func (s stack) start(ctx context.Context) (_ server.Addresses, stop func() error, _ error) {
	if s.largest == 0 {
		s.largest = maxRequestSize
	}
	sizeOf := func(string) int { return s.largest }
	stopping, unready := context.WithCancel(context.Background())
	conn := inproc.NewConn(nil, nil)
	s.register(conn)
	apis, err := web.New(web.Config{Services: s.services, MaxSizeOf: sizeOf})
	if err != nil {
		unready()
		return server.Addresses{}, nil, err
	}
	all := []front.API{apis}
	if s.rest {
		all = append(all, rest.New(rest.Config{}))
	}
	handler, err := front.New(front.Config{Conn: conn, APIs: all})
	if err != nil {
		unready()
		return server.Addresses{}, nil, err
	}
	var port http.Handler = handler
	if s.around != nil {
		port = s.around(port)
	}
	l := server.New(server.Config{
		GRPCAddress: "127.0.0.1:0", RESTAddress: "127.0.0.1:0", MaxStreams: maxStreams,
		TLS: s.tls, Log: slog.New(slog.DiscardHandler),
	}, server.Parts{
		GRPC: func() *grpc.Server {
			g, r := server.NewGRPC(server.GRPCConfig{
				TLS: s.tls, MaxRequestSize: s.largest, MaxStreams: maxStreams,
				Unary: plainUnary, Stream: plainStream, Stopping: stopping.Done(),
			})
			s.register(r)
			return g
		},
		REST: port, Gate: open{}, Unready: unready,
		Failed: func(err error) { panic(err) },
	})
	if err := l.Start(ctx); err != nil {
		unready()
		return server.Addresses{}, nil, err
	}
	return l.Addresses(), func() error {
		return l.Stop(context.Background())
	}, nil
}

// plainUnary and plainStream stand where the gateway has its interceptors, which know only the
// gateway's own services.
func plainUnary(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler,
) (any, error) {
	return h(ctx, request)
}

func plainStream(
	srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler,
) error {
	return h(srv, ss)
}

// open stands for the gate of the interceptors.
type open struct{}

func (open) Drain(context.Context) error { return nil }

// serve starts a stack for a test.
func (s stack) serve(t *testing.T) server.Addresses {
	t.Helper()
	addresses, stop, err := s.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return addresses
}

// suite builds a program of tools/protocols and returns its path.
func suite(t *testing.T, pkg string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(pkg))
	//nolint:gosec // a package of tools/protocols
	build := exec.CommandContext(t.Context(), "go", "build", "-o", to, pkg)
	build.Dir = filepath.Join("..", "..", "tools", "protocols")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return to
}
