package server_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/server"
)

// TestNumberOfRequests checks the status of calls that have not exactly one request: gRPC has
// UNIMPLEMENTED for another number, and a request that ends too soon is not a valid one.
func TestNumberOfRequests(t *testing.T) {
	one := append(prefix(2), 10, 0)
	for _, method := range []string{"/test.Test/Unary", "/test.Test/Stream"} {
		for _, c := range []struct {
			name, want string // grpc-status
			body       []byte
		}{
			{"one", "0", one},
			{"none", "12", nil},
			{"two", "12", slices.Concat(one, one)},
			{"ends within the length", "3", one[:3]},
			{"ends within the message", "3", one[:6]},
		} {
			inBubble(t, server.GRPCConfig{}, func(t *testing.T, s *rawServer) {
				raw := s.dial(t, 1<<20)
				raw.open(1, method)
				raw.send(1, c.body)
				if got := raw.ended(1); got != c.want {
					t.Errorf("%s, %s: status %q, want %s", method, c.name, got, c.want)
				}
				_ = raw.conn.Close()
			})
		}
	}
}

// TestUnreadRequests checks that Refuse gets each unary call whose request could not be read, with
// the reason, and that the client gets its error. Calls that reach an interceptor are not refused.
func TestUnreadRequests(t *testing.T) {
	const unary = "/test.Test/Unary"
	send := func(body []byte) func(*rawClient, uint32) {
		return func(c *rawClient, id uint32) { c.send(id, body) }
	}
	one := append(prefix(2), 10, 0)
	for _, row := range []struct {
		name, method string
		request      func(c *rawClient, id uint32)
		reason, want string // the reason for Refuse; grpc-status
	}{
		{"one", unary, send(one), "", "0"},
		{"none", unary, send(nil), "Unimplemented", "15"},
		{"two", unary, send(slices.Concat(one, one)), "Unimplemented", "15"},
		{"ends within the message", unary, send(one[:6]), "InvalidArgument", "15"},
		{"no message", unary, send(append(prefix(1), 255)), "InvalidArgument", "15"},
		{"too large", unary, send(prefix(4<<20 + 1)), "MessageTooLarge", "15"},
		{"a stream's", "/test.Test/Stream", send(prefix(4<<20 + 1)), "", refused},
		{"of health", "/grpc.health.v1.Health/Check", send(prefix(4<<20 + 1)), "", refused},
		{"late", unary, func(c *rawClient, id uint32) {
			c.begin(id, 1<<20, 1)
			pass(32 * time.Second)
		}, "BodyTimeout", "4"},
		{"reset", unary, func(c *rawClient, id uint32) {
			synctest.Wait()
			c.write(func(f *http2.Framer) error {
				return f.WriteRSTStream(id, http2.ErrCodeCancel)
			})
		}, "Canceled", ""},
	} {
		reason := ""
		cfg := server.GRPCConfig{Refuse: func(_ context.Context, method string, err error) error {
			reason = rpcerr.Explain(err, call.Call{}).Reason()
			if method != unary {
				t.Errorf("%s: Refuse gets %s", row.name, method)
			}
			return status.Error(codes.DataLoss, "refused")
		}}
		inBubble(t, cfg, func(t *testing.T, s *rawServer) {
			c := s.dial(t, 1<<20)
			c.open(1, row.method)
			row.request(c, 1)
			if got := c.ended(1); got != row.want || reason != row.reason {
				t.Errorf("%s: status %q, want %s; reason %q, want %q", row.name, got, row.want,
					reason, row.reason)
			}
			_ = c.conn.Close()
		})
	}
}
