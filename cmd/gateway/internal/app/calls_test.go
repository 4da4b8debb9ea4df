package app_test

import (
	"net/http"
	"testing"
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestNotableCalls has slow commands, behind a real connection, and looks at where the time of
// their calls went, over either port.
func TestNotableCalls(t *testing.T) {
	const slow = 30 * time.Millisecond
	mongo := fakemongo.NewTCPServer(t, fakemongo.Handlers{
		"ping": fakemongo.Always(fakemongo.OK(nil).After(slow)),
	})
	g := start(t, mongo.URI(), "--log-slow-request=20ms")
	defer g.stop()
	g.ready()
	for range 3 {
		code, body := g.post("/v1/databases/db:runCommand", `{"command":{"ping":1}}`)
		if code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
	}
	got, err := mooringv1.NewDeploymentServiceClient(g.cc).ListNotableCalls(
		t.Context(), &mooringv1.ListNotableCallsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.GetSlow()) != 1 || len(got.GetRefused()) != 0 {
		t.Fatalf("%v", got)
	}
	c := got.GetSlow()[0]
	parts := c.GetQueueMicros() + c.GetSelectionMicros() + c.GetCheckOutMicros() +
		c.GetServerMicros()
	if c.GetCall() != "CommandService/RunCommand" || c.GetNamespace() != "db" ||
		c.GetShape() != "{ping: ?}" || c.GetCount() != 3 ||
		c.GetServerMicros() < slow.Microseconds() || parts > c.GetDurationMicros() {
		t.Errorf("%v", c)
	}
	if code := g.status("/v1/deployment/calls"); code != http.StatusOK {
		t.Errorf("over REST: %d", code)
	}
}
