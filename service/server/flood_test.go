package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/server"
)

// TestWatchesOfStrangers checks that the streams of health that a connection may hold are counted,
// and that they end when they are as old as connections may become.
func TestWatchesOfStrangers(t *testing.T) {
	const (
		goesOn, unimplemented, unavailable = "", "12", "14"
		most                               = 32
	)
	cfg := server.GRPCConfig{MaxAge: 10 * time.Minute}
	inBubble(t, cfg, func(t *testing.T, s *rawServer) {
		for range 2 { // the second time it has places again
			c := s.dial(t, 1<<20)
			watch := func(i int) (id uint32) {
				id = uint32(2*i + 1)
				c.open(id, "/grpc.health.v1.Health/Watch")
				c.send(id, prefix(0))
				return id
			}
			for i := range most + 8 {
				want := goesOn
				if i >= most {
					want = unimplemented
				}
				if got := c.ended(watch(i)); got != want {
					t.Errorf("Watch number %d: status %q, want %q", i+1, got, want)
				}
			}
			other := s.dial(t, 1<<20)
			other.open(1, "/grpc.health.v1.Health/Check")
			other.send(1, prefix(0))
			if got := other.ended(1); got != "0" {
				t.Errorf("Check on another connection: status %q, want 0", got)
			}
			pass(10*time.Minute - time.Second)
			if got := c.ended(1); got != goesOn {
				t.Errorf("Watch ends early: status %q", got)
			}
			pass(time.Second)
			for i := range most {
				if got := c.ended(uint32(2*i + 1)); got != unavailable {
					t.Errorf("Watch number %d at the age of connections: status %q, want %s", i+1,
						got, unavailable)
				}
			}
			_, _ = c.conn.Close(), other.conn.Close()
		}
	})
}

// TestCallsOfNoUse checks that a connection is closed if most of its calls are of no use, whichever
// kind they are of, and that no other calls count.
func TestCallsOfNoUse(t *testing.T) {
	refuse := func(context.Context, string) (context.Context, error) {
		return nil, status.Error(codes.Unauthenticated, "who are you?")
	}
	reset := func(c *rawClient, id uint32) {
		c.write(func(f *http2.Framer) error { return f.WriteRSTStream(id, http2.ErrCodeCancel) })
	}
	for _, row := range []struct {
		name         string
		authenticate func(context.Context, string) (context.Context, error)
		call         func(c *rawClient, id uint32)
		wait         time.Duration // after 100 calls
		late         bool          // they are reset then
		cut          bool
	}{
		{"reset without a request", nil, func(c *rawClient, id uint32) {
			c.open(id, "/test.Test/Unary")
			reset(c, id)
		}, 0, false, true},
		{"no credential", refuse, func(c *rawClient, id uint32) { c.call(id, "/test.Test/Unary", 1) }, 0, false, true},
		{"a stream without a credential", refuse, func(c *rawClient, id uint32) { c.call(id, "/test.Test/Stream", 1) }, 0, false, true},
		{"an unknown method", nil, func(c *rawClient, id uint32) { c.call(id, "/test.Test/None", 1) }, 0, false, true},
		{"health", nil, func(c *rawClient, id uint32) { c.call(id, "/grpc.health.v1.Health/Check", 1) }, 0, false, true},
		{"served", nil, func(c *rawClient, id uint32) { c.call(id, "/test.Test/Unary", 1) }, 0, false, false},
		{"reset at leisure", nil, func(c *rawClient, id uint32) {
			c.call(id, "/test.Test/Stream", 100<<10) // the client takes nothing of it
		}, 100 * time.Millisecond, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, server.GRPCConfig{Authenticate: row.authenticate}, func(
				t *testing.T, s *rawServer,
			) {
				c := s.dial(t, 1)
				c.mayBeCut = row.cut
				n := 0
				for ; n < 3000 && !c.isCut(); n += 100 {
					for i := range 100 {
						row.call(c, uint32(2*(n+i)+1))
					}
					synctest.Wait()
					if row.wait > 0 {
						pass(row.wait)
					}
					for i := range 100 {
						if row.late {
							reset(c, uint32(2*(n+i)+1))
						}
					}
				}
				if row.cut && n != 1100 || !row.cut && n != 3000 {
					t.Errorf("the connection is closed: %t, after %d calls", c.isCut(), n)
				}
				_ = c.conn.Close()
			})
		})
	}
}

// TestCallsOfNoUseOfNeighbours checks that the connection of a client that has made a call with a
// credential that counts stays when others of its address make calls of no use.
func TestCallsOfNoUseOfNeighbours(t *testing.T) {
	known := true
	cfg := server.GRPCConfig{Authenticate: func(
		ctx context.Context, _ string,
	) (context.Context, error) {
		if !known {
			return nil, status.Error(codes.Unauthenticated, "who are you?")
		}
		local := call.Local{Identity: &caller.Identity{Principal: "key:a"}}
		return &call.LocalContext{Context: ctx, Local: local}, nil
	}}
	inBubble(t, cfg, func(t *testing.T, s *rawServer) {
		quiet, stranger := s.dial(t, 1<<20), s.dial(t, 1<<20)
		stranger.mayBeCut = true
		quiet.call(1, "/test.Test/Unary", 1)
		synctest.Wait()
		known = false
		for range 5 {
			c := s.dial(t, 1<<20)
			c.mayBeCut = true
			for i := range 1000 {
				c.call(uint32(2*i+1), "/test.Test/Unary", 1)
				if i%100 == 99 {
					synctest.Wait()
				}
			}
			_ = c.conn.Close()
		}
		quiet.call(3, "/test.Test/Unary", 1)
		stranger.call(1, "/test.Test/Unary", 1)
		synctest.Wait()
		if quiet.isCut() || !stranger.isCut() {
			t.Errorf("closed: the known client %t, the stranger %t, want the stranger only",
				quiet.isCut(), stranger.isCut())
		}
		_, _ = quiet.conn.Close(), stranger.conn.Close()
	})
}
