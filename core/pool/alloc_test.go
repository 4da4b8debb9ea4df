//go:build !race

package pool_test

import (
	"testing"

	"github.com/mooringdb/mooring/core/event"
)

// An uncontended check-out and check-in allocate nothing, with and without a listener.
func TestCheckOutAllocatesNothing(t *testing.T) {
	for name, sink := range map[string]*event.Sink{
		"no sink": nil,
		"sink": {
			ConnectionCheckOutStarted: func(event.ConnectionCheckOutStarted) {},
			ConnectionCheckedOut:      func(event.ConnectionCheckedOut) {},
			ConnectionCheckedIn:       func(event.ConnectionCheckedIn) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, ctx := benchmarkPool(t, sink), t.Context()
			if n := testing.AllocsPerRun(1000, func() { use(t, ctx, p) }); n != 0 {
				t.Errorf("a check-out and a check-in allocate %v times, want 0", n)
			}
		})
	}
}
