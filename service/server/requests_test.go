package server_test

import (
	"slices"
	"testing"

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
