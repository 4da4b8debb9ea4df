package server_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/mooringdb/mooring/service/flood"
	"github.com/mooringdb/mooring/service/server"
)

// TestRefusedEarly checks which calls are refused before they have a goroutine: streams of health
// and reflection beyond the bound, until others have ended, and all calls on a closed connection.
func TestRefusedEarly(t *testing.T) {
	const watch = "/grpc.health.v1.Health/Watch"
	synctest.Test(t, func(t *testing.T) {
		nc, other := net.Pipe()
		defer func() { _ = other.Close() }()
		guard := flood.New(0, 0, slog.New(slog.DiscardHandler), nil)
		ctx, end := server.Tapped(t.Context(), nc, guard, netip.MustParseAddr("192.0.2.1"))
		call := func(ctx context.Context, method string) codes.Code {
			_, err := server.RefuseEarly(ctx, &tap.Info{FullMethodName: method})
			return status.Code(err)
		}
		first, leave := context.WithCancel(ctx)
		for i := range 32 {
			if code := call(first, watch); code != codes.OK {
				t.Fatalf("Watch number %d: %v", i+1, code)
			}
		}
		for method, want := range map[string]codes.Code{
			watch: codes.Unimplemented,
			"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": codes.ResourceExhausted,
			"/grpc.health.v1.Health/Check":                              codes.OK,
			"/mooring.v1.DocumentService/Find":                          codes.OK,
		} {
			if code := call(ctx, method); code != want {
				t.Errorf("%s beside 32 streams: %v, want %v", method, code, want)
			}
		}
		leave()
		synctest.Wait()
		if code := call(ctx, watch); code != codes.OK {
			t.Errorf("Watch after others have ended: %v", code)
		}
		_ = end()
		if code := call(ctx, "/mooring.v1.DocumentService/Find"); code != codes.Canceled {
			t.Errorf("a call on a closed connection: %v", code)
		}
		timed, stop := context.WithTimeout(ctx, time.Hour)
		defer stop()
		left, err := server.RefuseEarly(timed, &tap.Info{FullMethodName: watch})
		if err == nil {
			err = server.Open(left, &server.GRPCConfig{}, nil, watch)
		}
		if left == nil || status.Code(err) != codes.Canceled {
			t.Errorf("a call with a timeout on a closed connection: %v, left to its handler: %t",
				err, left != nil)
		}
		if code := call(t.Context(), watch); code != codes.OK {
			t.Errorf("Watch on a connection of no listener: %v", code)
		}
	})
}

// TestWastedEarly checks that a stream that is refused early counts as a call of no use.
func TestWastedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, other := net.Pipe()
		defer func() { _ = other.Close() }()
		guard := flood.New(0, 0, slog.New(slog.DiscardHandler), nil)
		ctx, _ := server.Tapped(t.Context(), nc, guard, netip.MustParseAddr("192.0.2.1"))
		n := 0
		for code := codes.OK; code != codes.Canceled && n < 5000; n++ {
			_, err := server.RefuseEarly(ctx,
				&tap.Info{FullMethodName: "/grpc.health.v1.Health/Watch"})
			code = status.Code(err)
		}
		if n != 32+1001+1 {
			t.Errorf("the connection is closed before Watch number %d, want 1,034", n)
		}
	})
}

// TestRefusedEarlyInTime checks that nothing remains of a stream that is refused early and has a
// timeout: its context ends, though not by the timeout, and it counts as one call of no use.
func TestRefusedEarlyInTime(t *testing.T) {
	const watch, most = "/grpc.health.v1.Health/Watch", 32
	synctest.Test(t, func(t *testing.T) {
		_, streams := server.LateReader(nil, server.GRPCConfig{MaxRequestSize: 1 << 20})
		var calls []context.Context
		g := grpc.NewServer(grpc.ForceServerCodecV2(server.NewCodec()),
			grpc.StreamInterceptor(streams),
			grpc.InTapHandle(func(ctx context.Context, call *tap.Info) (context.Context, error) {
				calls = append(calls, ctx)
				return server.RefuseEarly(ctx, call)
			}))
		healthpb.RegisterHealthServer(g, health.NewServer())
		s := serveRaw(g)
		defer s.stop(t)
		c := s.dial(t, 1<<20)
		c.timeout, c.mayBeCut = "99999999H", true
		for i := range most + 1 {
			c.open(uint32(2*i+1), watch)
			c.send(uint32(2*i+1), prefix(0))
		}
		if got := c.ended(2*most + 1); got != "12" {
			t.Errorf("Watch number %d: status %q, want 12", most+1, got)
		}
		for i, ctx := range calls {
			if ended := ctx.Err() != nil; ended != (i == most) {
				t.Errorf("the context of Watch number %d has ended: %t", i+1, ended)
			}
		}
		n := most + 1
		for ; n < 3000 && !c.isCut(); n++ {
			c.open(uint32(2*n+1), watch)
		}
		if n != most+1001 {
			t.Errorf("the connection is closed after %d Watches, want %d", n, most+1001)
		}
		_ = c.conn.Close()
		synctest.Wait()
		for i, ctx := range calls {
			if ctx.Err() == nil {
				t.Fatalf("the context of Watch number %d goes on without its connection", i+1)
			}
		}
	})
}
