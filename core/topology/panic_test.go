package topology_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/mongotest"
)

// TestSinkPanics (event.Sink): the panic goes through the operation whose failure was being told.
// Its connection is not lost, what else was to be told is told, and discovery goes on.
func TestSinkPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cfg := standalone(mongotest.NewServer(t, nil))
		cfg.Sink = j.sink()
		armed, changed := false, cfg.Sink.ServerDescriptionChanged
		cfg.Sink.ServerDescriptionChanged = func(e event.ServerDescriptionChanged) {
			changed(e)
			if armed {
				armed = false
				panic("the sink panics")
			}
		}
		topo := start(t, cfg)
		s := mustSelect(t, topo, selection.Write())
		c, err := s.CheckOut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		settle(&j)
		armed = true
		expectPanic(t, func() { s.CheckIn(c, &mongoerr.NetworkError{Address: "a:27017", Op: "read", Err: errors.New("reset")}) })
		if p := topo.Pools()[0]; p.InUse != 0 || p.Total != 0 {
			t.Errorf("Pools() = %+v, want no connection", p)
		}
		pass(time.Minute)
		synctest.Wait()
		if err := ping(t.Context(), mustSelect(t, topo, selection.Write())); err != nil {
			t.Error(err)
		}
		got := j.take()
		for _, want := range []string{"a Standalone → Unknown", "topology Single/1 → Single/1", "a pool cleared, interrupt false", "a pool ready"} {
			if !slices.Contains(got, want) {
				t.Errorf("%q is not among %q", want, got)
			}
		}
		stop(t, topo)
		j.expect(t, "a pool closed", "a closed", "topology Single/1 → Unknown/0", "topology closed")
	})
}

// TestAnotherTellsWhatAPanicLeft: whoever waits until an event has been told does not wait for a
// goroutine that panicked.
func TestAnotherTellsWhatAPanicLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var j journal
		cluster := mongotest.NewCluster(t, mongotest.ClusterConfig{}, mongotest.Mongos, mongotest.Mongos)
		cfg := watched(cluster)
		cfg.Sink = j.sink()
		armed, changed := false, cfg.Sink.ServerDescriptionChanged
		cfg.Sink.ServerDescriptionChanged = func(e event.ServerDescriptionChanged) {
			changed(e)
			if armed {
				armed = false
				pass(time.Second) // the other server's monitor queues up behind
				panic("the sink panics")
			}
		}
		topo := start(t, cfg)
		pass(time.Second)
		s := mustSelect(t, topo, selection.Write())
		c, err := s.CheckOut(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		j.take()
		armed = true
		down := cluster.Host(0)
		if down.Address() == s.Address() {
			down = cluster.Host(1)
		}
		time.AfterFunc(time.Millisecond, func() { down.SetDown(true) })
		expectPanic(t, func() {
			s.CheckIn(c, &mongoerr.NetworkError{Address: s.Address(), Op: "read", Err: errors.New("reset")})
		})
		pass(time.Minute)
		stop(t, topo)
		cleared := 0
		for _, line := range j.take() {
			if line == "a pool cleared, interrupt false" || line == "b pool cleared, interrupt false" {
				cleared++
			}
		}
		if cleared != 2 {
			t.Errorf("%d pools were told to be cleared, want both", cleared)
		}
	})
}

func expectPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("it did not panic")
		}
	}()
	f()
}
