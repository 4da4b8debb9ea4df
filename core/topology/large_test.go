package topology_test

import (
	"context"
	"fmt"
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

// startMany is a topology of a thousand mongoses, whose hellos the caller makes up; changed counts
// the events of changes.
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
		Int32("maxWireVersion", 21).Int32("logicalSessionTimeoutMinutes", 30).Double("ok", 1).
		Finish()
	hello = func(i int) {
		// half are in the window
		s := description.NewServer(seeds[i], reply, time.Duration(i%30)*time.Millisecond)
		s.LastUpdateTime = time.Now()
		topo.Apply(&s)
	}
	for i := range many {
		hello(i)
	}
	return topo, hello, changed
}

// TestThousandMongoses checks that a selection among them takes one of the nearest and allocates a
// list and little more, and that a hello without news is not an event. The benchmarks below measure
// the time.
func TestThousandMongoses(t *testing.T) {
	topo, hello, changed := startMany(t)
	if kind, n := topo.Description().Kind,
		len(topo.Description().Servers); kind != description.KindSharded || n != many {
		t.Fatalf("%v with %d servers", kind, n)
	}
	before := changed.Load()
	for i := range 100 {
		hello(i)
	}
	if n := changed.Load() - before; n != 0 {
		t.Errorf("%d events for hellos that changed nothing", n)
	}
	allocated := testing.AllocsPerRun(100, func() {
		s := mustSelect(t, topo, selection.Write())
		if rtt := s.Description().AverageRTT; rtt > topology.DefaultLocalThreshold {
			t.Errorf("selected a server at %v, which is outside the window", rtt)
		}
		s.Release()
	})
	if allocated > 5 {
		t.Errorf("a selection among %d servers allocates %v times", many, allocated)
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
