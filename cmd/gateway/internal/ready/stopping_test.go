package ready_test

import (
	"net/http"
	"testing"

	"google.golang.org/grpc/health"

	"github.com/mooringdb/mooring/cmd/gateway/internal/ready"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// TestStoppingIsTold checks that /readyz says that the gateway stops, not that MongoDB is away,
// also to clients from whom the errors of servers are hidden.
func TestStoppingIsTold(t *testing.T) {
	s := ready.New(health.NewServer(), service)
	if s.Stopping() {
		t.Error("it stops before it is told to")
	}
	s.Stop()
	if !s.Stopping() {
		t.Error("it does not stop")
	}
	failure := rpcerr.Explain(s.Ready(t.Context()), call.Call{Terse: true})
	if failure.HTTPStatus() != http.StatusServiceUnavailable ||
		failure.Reason() != string(rpcerr.ShuttingDown) ||
		failure.Message() != "the gateway is shutting down" {
		t.Errorf("got %d %s: %s", failure.HTTPStatus(), failure.Reason(), failure.Message())
	}
}
