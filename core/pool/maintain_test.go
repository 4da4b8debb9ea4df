package pool_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/pool"
)

func TestMinSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) { c.MinSize, c.MaintenanceInterval = 3, 0 })
		synctest.Wait()
		if s := r.Stats(); s.Available != 3 {
			t.Errorf("Stats() = %+v, want 3 available", s)
		}
		c := r.checkOut()
		c.Resource().Interrupt(errors.New("broken"))
		r.CheckIn(c)
		synctest.Wait()
		if s := r.Stats(); s.Available != 3 {
			t.Errorf("Stats() after one broke = %+v, want 3 available", s)
		}
		r.Clear(pool.ClearOptions{})
		synctest.Wait()
		if s := r.Stats(); s.Total != 0 {
			t.Errorf("Stats() after Clear = %+v, want nothing", s)
		}
		r.Ready()
		synctest.Wait()
		if s := r.Stats(); s.Available != 3 {
			t.Errorf("Stats() after Ready = %+v, want 3 available", s)
		}
	})
}

func TestMinSizeDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		newRig(t, func(c *pool.Config[*fake]) {
			c.MinSize, c.MaintenanceInterval = 1, 0
			c.Connect = func(context.Context, uint64) (*fake, error) {
				tries.Add(1)
				return nil, errors.New("refused")
			}
		})
		time.Sleep(7*time.Second + 600*time.Millisecond) //nolint:forbidigo // fake time
		if n := tries.Load(); n != 5 {
			t.Errorf("%d attempts in the first 7.6 s, want 5: at 0, 0.5, 1.5, 3.5 and 7.5 s", n)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		if n := tries.Load(); n < 10 || n > 12 {
			t.Errorf("%d attempts after 67.6 s, want one more in 8 s and then one in 10 s", n)
		}
	})
}

// CMAP-043: those in use and those pending count for MinSize.
func TestMinSizeCountsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) { c.MinSize, c.MaintenanceInterval = 3, 0 })
		var conns []*pool.Conn[*fake]
		for range 4 {
			synctest.Wait()
			conns = append(conns, r.checkOut())
		}
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		if s := r.Stats(); s.InUse != 4 || s.Total != 4 {
			t.Errorf("Stats() = %+v, want no more than the four in use", s)
		}
		for _, c := range conns {
			r.CheckIn(c)
		}
	})
}

// CMAP-032: a paused pool is not populated, even when the maintenance interval is over.
func TestPausedPoolIsNotPopulated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(pool.Config[*fake]{MinSize: 3, Connect: func(
			context.Context, uint64,
		) (*fake, error) {
			t.Error("a connection was made")
			return newFake(), nil
		}})
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		p.Close()
	})
}

// CMAP-036, CMAP-045, CMAP-053: MinSize and check-outs share MaxConnecting. A check-out that
// waits for it takes the first connection that is populated or returned. One that was being
// established for it then is for the next check-out.
func TestWaitersForMaxConnectingTakeWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) {
			c.MinSize, c.MaxConnecting, c.MaintenanceInterval = 1, 1, 0
			c.Connect = func(context.Context, uint64) (*fake, error) {
				time.Sleep(time.Second) //nolint:forbidigo // fake time
				return newFake(), nil
			}
		})
		synctest.Wait()
		first, second := r.goCheckOut(t.Context()), r.goCheckOut(t.Context())
		if s := r.Stats(); s.Pending != 1 || s.Waiting != 2 {
			t.Errorf("Stats() = %+v, want one pending, for nobody, and two waiting", s)
		}
		c := (<-first).conn
		if c.ID() != 1 {
			t.Errorf("the first got connection %d, want the populated one", c.ID())
		}
		third := r.goCheckOut(t.Context()) // the second has a connection pending by now
		r.CheckIn(c)
		if c := (<-second).conn; c.ID() != 1 {
			t.Errorf("the second got connection %d, want the returned one", c.ID())
		} else {
			defer r.CheckIn(c)
		}
		if c := (<-third).conn; c.ID() != 2 {
			t.Errorf("the third got connection %d, want what was begun for the second", c.ID())
		} else {
			r.CheckIn(c)
		}
		if s := r.Stats(); s.Total != 2 {
			t.Errorf("Stats() = %+v, want two connections", s)
		}
	})
}

// CMAP-083: without maintenance nothing is populated or pruned, but an interrupting clear
// interrupts.
func TestWithoutMaintenance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) { c.MinSize, c.MaxIdleTime = 2, time.Second })
		c := r.checkOut()
		r.CheckIn(r.checkOut())
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		if s := r.Stats(); s.Available != 1 || s.Total != 2 {
			t.Errorf("Stats() = %+v, want the idle one kept", s)
		}
		r.clear(pool.ClearOptions{InterruptInUse: true})
		synctest.Wait()
		if s := r.Stats(); c.Resource().Alive() || s.Available != 1 {
			t.Errorf("alive = %t, Stats() = %+v, want an interrupted one and the stale one kept",
				c.Resource().Alive(), s)
		}
		r.CheckIn(c)
	})
}

// The owner of a pool behind a load balancer does not make it ready again, so the pool recovers
// by itself. A successful check-out establishes MinSize at once.
func TestMinSizeAfterAFailure(t *testing.T) {
	for name, help := range map[string]func(*rig){
		"soon": func(*rig) { time.Sleep(600 * time.Millisecond) }, //nolint:forbidigo // fake time
		"an establishment succeeds": func(r *rig) {
			r.CheckIn(r.checkOut())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var refuse atomic.Bool
				refuse.Store(true)
				r := newRig(t, func(c *pool.Config[*fake]) {
					c.MinSize, c.MaintenanceInterval = 3, 0
					c.Service = func(*fake) pool.ServiceID { return serviceA }
					connect := c.Connect
					c.Connect = func(ctx context.Context, id uint64) (*fake, error) {
						if refuse.Load() {
							return nil, errLost
						}
						return connect(ctx, id)
					}
				})
				synctest.Wait()
				refuse.Store(false)
				// This wakes the maintenance goroutine.
				r.clear(pool.ClearOptions{Service: serviceA})
				synctest.Wait()
				if s := r.Stats(); s.Total != 0 {
					t.Errorf("Stats() = %+v, want nothing right after a failure", s)
				}
				help(r)
				synctest.Wait()
				if s := r.Stats(); s.Available != 3 {
					t.Errorf("Stats() = %+v, want 3 available", s)
				}
			})
		})
	}
}

// A check-out that closes perished connections may leave fewer than MinSize: the pool replaces
// them at once.
func TestMinSizeAfterACheckOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) {
			c.MinSize, c.MaintenanceInterval = 3, time.Hour
		})
		synctest.Wait()
		for _, f := range r.fakes[1:] {
			f.Interrupt(errLost)
		}
		c := r.checkOut()
		synctest.Wait()
		if s := r.Stats(); s.Available != 2 || s.InUse != 1 {
			t.Errorf("Stats() = %+v, want 3 connections", s)
		}
		r.CheckIn(c)
	})
}

// CMAP-065: an interrupting clear interrupts the connections of its time, not those that a later
// clear makes stale.
func TestClearInterruptsNothingLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		interrupting, release := make(chan struct{}), make(chan struct{})
		old := r.checkOut()
		old.Resource().onInterrupt = func() {
			interrupting <- struct{}{}
			<-release
		}
		r.clear(pool.ClearOptions{InterruptInUse: true})
		<-interrupting // and the next waits
		old.Resource().onInterrupt = nil
		r.clear(pool.ClearOptions{Cause: errLost, InterruptInUse: true})
		r.Ready()
		r.Deliver()
		c := r.checkOut()
		r.clear(pool.ClearOptions{})
		close(release)
		synctest.Wait()
		if !c.Resource().Alive() {
			t.Errorf("a connection was interrupted that was made after the clear: %v",
				c.Resource().Err())
		}
		if e, ok := errors.AsType[*pool.PoolClearedError](old.Resource().Err()); !ok ||
			!e.Interrupted {
			t.Errorf("the older one was interrupted with %v", old.Resource().Err())
		}
		r.CheckIn(old)
		r.CheckIn(c)
	})
}

// An interrupting clear interrupts the connections in use although the pool is closed before its
// goroutine has come to that.
func TestClearInterruptsBeforeTheEnd(t *testing.T) {
	for range 20 { // since the goroutine has both to do, and either may be first
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			interrupting, release := make(chan struct{}), make(chan struct{})
			old := r.checkOut()
			old.Resource().onInterrupt = func() {
				close(interrupting)
				<-release
			}
			r.clear(pool.ClearOptions{InterruptInUse: true})
			<-interrupting
			r.Ready()
			r.Deliver()
			c := r.checkOut()
			old.Resource().onInterrupt = nil
			r.clear(pool.ClearOptions{Cause: errLost, InterruptInUse: true})
			go r.Close()
			synctest.Wait()
			close(release)
			synctest.Wait()
			if e, ok := errors.AsType[*pool.PoolClearedError](c.Resource().Err()); !ok ||
				!e.Interrupted {
				t.Errorf("the connection was interrupted with %v", c.Resource().Err())
			}
			r.CheckIn(old)
			r.CheckIn(c)
		})
	}
}
