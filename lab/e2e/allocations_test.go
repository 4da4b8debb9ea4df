package e2e

import (
	"testing"

	"github.com/mooringdb/mooring/lab/internal/load"
)

// TestAllocations bounds what a findOne and an insertOne allocate in the gateway: its own, those of
// net/http or grpc-go included.
func TestAllocations(t *testing.T) {
	s := startCanned(t)
	g := suite.Start(t, s.URI())
	for _, c := range []struct {
		name string
		job  load.Job
		most float64
	}{
		{"REST findOne", load.Job{REST: g.REST, Operation: load.FindOne}, 48},
		{"gRPC findOne", load.Job{GRPC: g.GRPC, Operation: load.FindOne}, 76},
		{"REST insertOne", load.Job{REST: g.REST, Operation: load.InsertOne}, 57},
		{"gRPC insertOne", load.Job{GRPC: g.GRPC, Operation: load.InsertOne}, 88},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.job.Collection, c.job.Callers = "orders_1000", 1
			run := func(requests int) uint64 {
				c.job.Requests = requests
				before := g.Vars(t).Memory.Mallocs
				if _, err := load.Run(t.Context(), c.job); err != nil {
					t.Fatal(err)
				}
				return g.Vars(t).Memory.Mallocs - before
			}
			run(100) // opens connections
			// What the connection of the callers and reading the figures allocate is in both.
			few, many := run(100), run(2100)
			got := float64(many-few) / 2000
			t.Logf("%.1f allocations", got)
			if got > c.most {
				t.Errorf("%.1f allocations, want at most %v", got, c.most)
			}
		})
	}
}
