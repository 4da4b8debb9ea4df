package server_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
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
