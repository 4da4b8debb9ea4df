package pool_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/mooringdb/mooring/core/pool"
)

// A connection is closed once, also if the pool cancels its establishment at the moment when it
// succeeds.
func TestGivenUpAsItIsEstablished(t *testing.T) {
	for name, giveUp := range map[string]func(*pool.Pool[*counted]){
		"closed":      (*pool.Pool[*counted]).Close,
		"interrupted": func(p *pool.Pool[*counted]) { p.Clear(pool.ClearOptions{InterruptInUse: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			var made, closes atomic.Int64
			for range 300 {
				const conns = 32
				begin := make(chan struct{})
				p := pool.New(pool.Config[*counted]{
					Address: "a:1", MaxConnecting: conns, MaintenanceInterval: -1,
					Connect: func(context.Context, uint64) (*counted, error) {
						<-begin
						made.Add(1)
						return &counted{closes: &closes}, nil
					},
				})
				p.Ready()
				out := make(chan struct{}, conns)
				for range conns {
					go func() {
						if c, err := p.CheckOut(context.Background()); err == nil {
							p.CheckIn(c)
						}
						out <- struct{}{}
					}()
				}
				for p.Stats().Pending < conns {
					runtime.Gosched()
				}
				close(begin)
				giveUp(p)
				p.Close()
				for range conns {
					<-out
				}
			}
			if made.Load() != closes.Load() {
				t.Errorf("%d connections were made, %d closed", made.Load(), closes.Load())
			}
		})
	}
}

// A connection that was pending when the pool was cleared is stale. Its waiter is refused like
// all others, or gets another connection if the pool is ready again by then.
func TestStaleAsItIsEstablished(t *testing.T) {
	for name, test := range map[string]struct {
		ready  bool
		events []string
	}{
		"paused": {false, []string{
			"ready", "started", "created 1", "cleared: lost", "ready 1 after 1s", "closed 1: stale", "failed after 1s: connectionError",
		}},
		"ready again": {true, []string{
			"ready", "started", "created 1", "cleared: lost", "ready", "ready 1 after 1s", "closed 1: stale", "created 2",
			"ready 2 after 1s", "out 2 after 2s",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r *rig
				r = newRig(t, func(c *pool.Config[*fake]) {
					// The time in the queue does not bound an establishment, not even the second
					// one.
					c.Connect, c.MaxSize, c.WaitQueueTimeout = slow(&r), new(uint64(1)),
						500*time.Millisecond
				})
				pending := r.goCheckOut(t.Context())
				r.clear(pool.ClearOptions{Cause: errLost})
				if test.ready {
					r.Ready()
					r.Deliver()
				}
				res := <-pending
				r.want(test.events...)
				if test.ready {
					r.CheckIn(res.conn)
				} else if e, ok := errors.AsType[*pool.PoolClearedError](res.err); !ok ||
					!errors.Is(e.Cause, errLost) || e.Interrupted {
					t.Errorf("CheckOut() = %v, want a *PoolClearedError", res.err)
				}
				if r.timesClosed() != 1 {
					t.Errorf("%d connections were closed, want 1", r.timesClosed())
				}
			})
		})
	}
}

// A connection does not keep the context of the check-out alive that it was made for.
func TestConnectionForgetsItsFirstContext(t *testing.T) {
	type key struct{}
	p := pool.New(pool.Config[*fake]{
		Address: "a:1", MaintenanceInterval: -1,
		Connect: func(ctx context.Context, _ uint64) (*fake, error) {
			if ctx.Value(key{}) == nil {
				t.Error("the context's value is missing")
			}
			return newFake(), nil
		},
	})
	defer p.Close()
	p.Ready()
	request := func() weak.Pointer[[1024]byte] {
		value := new([1024]byte)
		c, err := p.CheckOut(context.WithValue(t.Context(), key{}, value))
		if err != nil {
			t.Fatal(err)
		}
		p.CheckIn(c)
		return weak.Make(value)
	}()
	for range 100 {
		runtime.GC()
		if request.Value() == nil {
			return
		}
		runtime.Gosched()
	}
	t.Error("what came with the first request is still there")
}
