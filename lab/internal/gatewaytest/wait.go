package gatewaytest

import (
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gateway"
)

// Vars reads the gateway's own figures.
func (g *Gateway) Vars(t testing.TB) gateway.Vars {
	t.Helper()
	v, err := gateway.ReadVars(t.Context(), g.Debug)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Eventually waits until the condition holds, and fails the test with its last complaint when it
// does not in time.
func Eventually(t testing.TB, within time.Duration, condition func() error) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after %v: %v", within, err)
		}
	}
}
