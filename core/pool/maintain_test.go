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
		r := newRig(t, func(c *pool.Config[*fake]) { c.MinSize = 3 })
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
			c.MinSize = 1
			c.Connect = func(context.Context, uint64) (*fake, error) {
				tries.Add(1)
				return nil, errors.New("refused")
			}
		})
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		if n := tries.Load(); n < 5 || n > 8 {
			t.Errorf("%d attempts in a minute at an interval of 10 s", n)
		}
	})
}

// CMAP-043: those in use and those pending count for MinSize.
func TestMinSizeCountsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) { c.MinSize = 3 })
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

// CMAP-032: a paused pool is not populated, also not when its time comes.
func TestPausedPoolIsNotPopulated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(pool.Config[*fake]{MinSize: 3, Connect: func(context.Context, uint64) (*fake, error) {
			t.Error("a connection was made")
			return newFake(), nil
		}})
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		p.Close()
	})
}

// CMAP-036, CMAP-045, CMAP-053: MinSize and check-outs share MaxConnecting; who waits for it takes what comes first, be it
// populated or returned, and makes nothing of his own then.
func TestWaitersForMaxConnectingTakeWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) {
			c.MinSize, c.MaxConnecting = 1, 1
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
		if c := (<-third).conn; c.ID() != 1 {
			t.Errorf("the third got connection %d, want the returned one", c.ID())
		} else {
			r.CheckIn(c)
		}
		r.CheckIn((<-second).conn)
		if s := r.Stats(); s.Total != 2 {
			t.Errorf("Stats() = %+v, want two connections", s)
		}
	})
}

// CMAP-083: without maintenance nothing is populated or pruned, but an interrupting clear interrupts.
func TestWithoutMaintenance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) { c.MinSize, c.MaxIdleTime, c.MaintenanceInterval = 2, time.Second, -1 })
		c := r.checkOut()
		r.CheckIn(r.checkOut())
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		if s := r.Stats(); s.Available != 1 || s.Total != 2 {
			t.Errorf("Stats() = %+v, want the idle one kept", s)
		}
		r.clear(pool.ClearOptions{InterruptInUse: true})
		synctest.Wait()
		if s := r.Stats(); c.Resource().Alive() || s.Available != 1 {
			t.Errorf("alive = %t, Stats() = %+v, want an interrupted one and the stale one kept", c.Resource().Alive(), s)
		}
		r.CheckIn(c)
	})
}
