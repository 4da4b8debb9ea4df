package pool_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/pool"
)

// EVT-008: the events of Ready and Clear, and all that follow, are delivered only after Deliver.
func TestEventsAreHeldUntilDeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) { c.MinSize, c.MaintenanceInterval = 1, 0 })
		// Without it, the check-out may make the connection that populating is about to make.
		synctest.Wait()
		c := r.checkOut()
		r.seen()
		if !r.Clear(pool.ClearOptions{Cause: errors.New("first")}) {
			t.Error("Clear of a ready pool = false")
		}
		r.CheckIn(c)
		if r.Clear(pool.ClearOptions{}) {
			t.Error("Clear of a paused pool = true")
		}
		r.want()
		if !r.Ready() {
			t.Error("Ready of a paused pool = false")
		}
		if r.Ready() {
			t.Error("Ready of a ready pool = true")
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time: MinSize is established
		r.want()
		r.Deliver() // the clear
		r.want("cleared: first", "in 1", "closed 1: stale")
		r.CheckIn(r.checkOut())
		r.want()
		r.Deliver() // Ready
		r.want("ready", "created 2", "ready 2 after 0s", "started", "out 2 after 0s", "in 2")
		r.Deliver() // one too many does nothing
		r.CheckIn(r.checkOut())
		r.want("started", "out 2 after 0s", "in 2")
	})
}

// TestDurationsForOneListener checks that check-outs are timed for a listener of any one of their
// events.
func TestDurationsForOneListener(t *testing.T) {
	for _, succeeds := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var took []time.Duration
			r := newRig(t, func(c *pool.Config[*fake]) {
				connect := c.Connect
				c.Connect = func(ctx context.Context, id uint64) (*fake, error) {
					time.Sleep(time.Second) //nolint:forbidigo // fake time
					if !succeeds {
						return nil, errors.New("no")
					}
					return connect(ctx, id)
				}
				c.Sink = &event.Sink{ConnectionCheckedOut: func(e event.ConnectionCheckedOut) {
					took = append(took, e.Duration)
				}}
				if !succeeds {
					c.Sink = &event.Sink{ConnectionCheckOutFailed: func(
						e event.ConnectionCheckOutFailed,
					) {
						took = append(took, e.Duration)
					}}
				}
			})
			if c, err := r.CheckOut(t.Context()); err == nil {
				r.CheckIn(c)
			}
			if len(took) != 1 || took[0] != time.Second {
				t.Errorf("check-out that succeeds %v: durations %v, want one of a second", succeeds,
					took)
			}
		})
	}
}

// Events from before the hold are not held.
func TestEventsBeforeAHoldAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		telling, told := make(chan struct{}), make(chan struct{})
		var r *rig
		r = newRig(t, func(c *pool.Config[*fake]) {
			c.Connect = func(context.Context, uint64) (*fake, error) {
				<-told
				return r.fake(), nil
			}
			started := c.Sink.ConnectionCheckOutStarted
			c.Sink.ConnectionCheckOutStarted = func(e event.ConnectionCheckOutStarted) {
				telling <- struct{}{}
				<-told
				started(e)
			}
		})
		ch := make(chan error)
		go func() {
			_, err := r.CheckOut(t.Context())
			ch <- err
		}()
		<-telling
		r.Clear(pool.ClearOptions{Cause: errors.New("while events are delivered")})
		close(told)
		if err, ok := errors.AsType[*pool.PoolClearedError](<-ch); !ok {
			t.Errorf("CheckOut() = %v, want a *PoolClearedError", err)
		}
		r.want("ready", "started", "created 1")
		r.Deliver()
		r.want("cleared: while events are delivered", "ready 1 after 0s", "closed 1: stale",
			"failed after 0s: connectionError")
	})
}

// A pool that is closed during a hold still delivers all events in order.
func TestCloseDuringAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) { c.MaintenanceInterval = 0 })
		r.CheckIn(r.checkOut())
		r.seen()
		r.Clear(pool.ClearOptions{Cause: errors.New("lost")})
		r.want()
		r.Close()
		r.want()
		r.Deliver()
		r.want("cleared: lost", "closed 1: stale", "closed")
		if r.Ready() || r.Clear(pool.ClearOptions{}) {
			t.Error("Ready or Clear of a closed pool = true")
		}
	})
}
