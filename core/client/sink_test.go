package client_test

import (
	"context"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// panicking is a sink all of whose functions panic, and counts their calls.
func panicking(calls *atomic.Int64) *event.Sink {
	s := &event.Sink{}
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
			calls.Add(1)
			panic("the listener panics")
		}))
	}
	return s
}

// TestListenerPanicsOnEveryEvent checks that operations succeed, that the hook is called once, and
// that no connection, cursor or goroutine is left (the bubble sees to the last).
func TestListenerPanicsOnEveryEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, reports atomic.Int64
		cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Primary,
			fakemongo.Secondary)
		host := cluster.Host(0)
		host.SetDocuments("db.items", fakemongo.Numbered(0, 9, 0)...)
		c := connect(t, cluster, "replicaSet=rs&minPoolSize=2", client.Options{
			Sink: panicking(&calls),
			SinkPanicked: func(value any, stack []byte) {
				if reports.Add(1); value != "the listener panics" || len(stack) == 0 {
					t.Errorf("reported: %v, %s", value, stack)
				}
			},
		})
		for range 500 {
			if err := c.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			cur, err := c.Find(t.Context(), items, client.FindOptions{BatchSize: new(int32(2))})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cur.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := cur.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		// What clears pools, ends checks and evicts waiters is told as well.
		host.Restart()
		_ = c.Ping(t.Context())
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
		if err := c.Ping(t.Context()); err != nil {
			t.Errorf("Ping() after a restart = %v", err)
		}
		synctest.Wait()
		for _, p := range c.Pools() {
			if p.InUse != 0 || p.Waiting != 0 || p.Pending != 0 || p.Available != p.Total {
				t.Errorf("pool %+v, want nothing in use, waiting or pending", p)
			}
		}
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if reports.Load() != 1 || calls.Load() < 3000 {
			t.Errorf("%d calls of listeners, %d reports, want 3000 or more and one", calls.Load(),
				reports.Load())
		}
	})
}
