package topology_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
)

const many = 1000

// startMany is a topology of a thousand mongoses, whose hellos the caller makes up; changed counts the events of changes.
func startMany(tb testing.TB) (topo *topology.Topology, hello func(i int), changed *atomic.Int64) {
	tb.Helper()
	changed = new(atomic.Int64)
	var seeds []address.Address
	for i := range many {
		seeds = append(seeds, address.Address(fmt.Sprintf("mongos%04d:27017", i)))
	}
	topo, err := topology.New(topology.Config{
		Seeds: seeds, Conn: conn.Config{Dialer: unreachable}, ServerSelectionTimeout: -1,
		Sink: &event.Sink{
			ServerDescriptionChanged:   func(event.ServerDescriptionChanged) { changed.Add(1) },
			TopologyDescriptionChanged: func(event.TopologyDescriptionChanged) { changed.Add(1) },
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	if err := topo.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := topo.Close(context.Background()); err != nil { //nolint:usetesting // the test's own context is over
			tb.Error(err)
		}
	})
	reply := bson.NewBuilder(nil).Bool("isWritablePrimary", true).String("msg", "isdbgrid").
		Int32("maxWireVersion", 21).Int32("logicalSessionTimeoutMinutes", 30).Double("ok", 1).Finish()
	hello = func(i int) {
		s := description.NewServer(seeds[i], reply, time.Duration(i%30)*time.Millisecond) // half are in the window
		s.LastUpdateTime = time.Now()
		topo.Apply(&s)
	}
	for i := range many {
		hello(i)
	}
	return topo, hello, changed
}

// TestThousandMongoses: selecting among them is quick, and a hello without news is no event.
func TestThousandMongoses(t *testing.T) {
	topo, hello, changed := startMany(t)
	if kind, n := topo.Description().Kind, len(topo.Description().Servers); kind != description.KindSharded || n != many {
		t.Fatalf("%v with %d servers", kind, n)
	}
	before := changed.Load()
	for i := range 100 {
		hello(i)
	}
	if n := changed.Load() - before; n != 0 {
		t.Errorf("%d events for hellos that changed nothing", n)
	}
	var costs []time.Duration
	for range 100 {
		begin := time.Now()
		for range 10 {
			mustSelect(t, topo, selection.Write())
		}
		costs = append(costs, time.Since(begin)/10)
	}
	slices.Sort(costs)
	t.Logf("a selection among %d servers takes %v (median)", many, costs[len(costs)/2])
	if costs[0] > 20*raceFactor*time.Microsecond {
		t.Errorf("the quickest selections took %v each, want under 20µs", costs[0])
	}
}

func BenchmarkSelectAmongThousand(b *testing.B) {
	topo, _, _ := startMany(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := topo.Select(b.Context(), selection.Write()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHelloWithoutNewsAmongThousand(b *testing.B) {
	_, hello, _ := startMany(b)
	b.ReportAllocs()
	for b.Loop() {
		hello(500)
	}
}
