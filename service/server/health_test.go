package server_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/service/server"
)

// TestHealthOfStrangers checks that a client without a credential cannot make the gateway hold a
// long name in a Watch.
func TestHealthOfStrangers(t *testing.T) {
	c := healthpb.NewHealthClient(newGuardedRig(t).cc)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // so that nothing hangs
	defer cancel()
	for _, row := range []struct {
		length int
		check  codes.Code
	}{
		{1000, codes.NotFound}, {1 << 10, codes.ResourceExhausted}, {1 << 19, codes.ResourceExhausted},
	} {
		in := &healthpb.HealthCheckRequest{Service: strings.Repeat("x", row.length)}
		if _, err := c.Check(ctx, in); status.Code(err) != row.check {
			t.Errorf("Check of %d bytes = %v, want %s", row.length, err, row.check)
		}
		watch, err := c.Watch(ctx, in)
		if err != nil {
			t.Fatal(err)
		}
		_, err = watch.Recv()
		if refused := status.Code(
			err) == codes.ResourceExhausted; refused != (row.check == codes.ResourceExhausted) {
			t.Errorf("Watch of %d bytes = %v", row.length, err)
		}
	}
	if _, err := c.List(t.Context(), &healthpb.HealthListRequest{}); err != nil {
		t.Errorf("List = %v", err)
	}
}

// TestHealthWithoutRequest checks that calls of health end if their request does not arrive.
func TestHealthWithoutRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopping := make(chan struct{})
		g, registrar := server.NewGRPC(server.GRPCConfig{
			MaxRequestSize: 1 << 20, Stopping: stopping,
		})
		healthpb.RegisterHealthServer(registrar, health.NewServer())
		l := pipeListener{make(chan net.Conn), make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- g.Serve(l) }()
		cc, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(l.dial))
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{"Check", "List", "Watch"} {
			s, err := cc.NewStream(t.Context(), &grpc.StreamDesc{
				ClientStreams: true, ServerStreams: true,
			}, "/grpc.health.v1.Health/"+method)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.RecvMsg(
				&healthpb.HealthCheckResponse{}); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s without a request = %v", method, err)
			}
		}
		_ = cc.Close()
		g.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
}

// pipeListener accepts connections in memory.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l pipeListener) dial(context.Context, string) (net.Conn, error) {
	client, served := net.Pipe()
	l.conns <- served
	return client, nil
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error   { close(l.closed); return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }
