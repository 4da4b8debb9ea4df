package pool_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/pool"
)

// hanging makes one connection at once. Further establishments last until the test fails or ends
// them by their channels, in the order of their beginning.
type hanging struct {
	*rig
	ends chan chan error
}

func newHanging(t *testing.T, edit func(*pool.Config[*fake])) *hanging {
	h := &hanging{ends: make(chan chan error, 100)} // more than any test begins
	h.rig = newRig(t, func(c *pool.Config[*fake]) {
		c.Connect = func(ctx context.Context, id uint64) (*fake, error) {
			if id == 1 {
				return h.fake(), nil
			}
			end := make(chan error)
			h.ends <- end
			select {
			case err := <-end:
				return h.fake(), err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if edit != nil {
			edit(c)
		}
	})
	return h
}

// A check-out takes a connection that is checked in, if that comes before its own, which is being
// established. Its own is for the next check-out that has none then.
func TestCheckOutTakesWhatComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanging(t, nil)
		c := h.checkOut()
		first, second := h.goCheckOut(t.Context()), h.goCheckOut(t.Context())
		third := h.goCheckOut(t.Context())
		time.Sleep(90 * time.Millisecond) //nolint:forbidigo // fake time
		h.seen()
		h.CheckIn(c)
		if res := <-first; res.conn != c {
			t.Fatalf("the first got %+v, want the connection that was checked in", res)
		}
		h.want("in 1", "out 1 after 90ms")
		if s := h.Stats(); s.Pending != 2 || s.Waiting != 0 {
			t.Errorf("Stats() = %+v, want 2 pending and none that waits without one", s)
		}
		h.CheckIn(c)
		if res := <-second; res.conn != c {
			t.Errorf("the second got %+v, want the connection that was checked in", res)
		}
		(<-h.ends) <- nil // begun for the first
		if res := <-third; res.err != nil || res.conn.ID() != 2 {
			t.Errorf("the third got %+v, want connection 2", res)
		} else {
			h.CheckIn(res.conn)
		}
		(<-h.ends) <- errLost // for none by now: its failure is not a check-out's
		synctest.Wait()
		h.CheckIn(c)
		h.want("in 1", "out 1 after 90ms", "ready 2 after 90ms", "out 2 after 90ms", "in 2",
			"closed 3: error", "in 1")
	})
}

// A check-out that was served, or has left, does not fail with what was begun for it.
func TestFailureIsOfOneCheckOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanging(t, nil)
		c := h.checkOut()
		ctx, leave := context.WithCancel(t.Context())
		first, second := h.goCheckOut(t.Context()), h.goCheckOut(ctx)
		h.CheckIn(c)
		<-first
		leave()
		<-second
		third := h.goCheckOut(t.Context())
		for range 2 {
			(<-h.ends) <- errLost
		}
		synctest.Wait()
		(<-h.ends) <- nil
		if res := <-third; res.err != nil || res.conn.ID() != 4 {
			t.Errorf("the third got %+v, want connection 4", res)
		} else {
			h.CheckIn(res.conn)
		}
		h.CheckIn(c)
	})
}

// After a failure of the owner's own, only one check-out fails. The others take the connections
// that there are, and no other one is begun for half a second.
func TestCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var serving []bool
		var h *hanging
		h = newHanging(t, func(c *pool.Config[*fake]) {
			c.ConnectFailed = func(uint64, error) bool {
				serving = append(serving, h.IsServing(pool.ServiceID{}))
				return true
			}
		})
		c := h.checkOut()
		first := h.goCheckOut(t.Context())
		h.seen()
		(<-h.ends) <- errOwn
		if res := <-first; !errors.Is(res.err, errOwn) {
			t.Errorf("the first CheckOut() = %+v, want %v", res, errOwn)
		}
		h.want("closed 2: error", "failed after 0s: connectionError")
		second, third := h.goCheckOut(t.Context()), h.goCheckOut(t.Context())
		time.Sleep(499 * time.Millisecond) //nolint:forbidigo // fake time
		h.want("started", "started")
		h.CheckIn(c)
		if res := <-second; res.conn != c {
			t.Errorf("the second got %+v, want the connection that there is", res)
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // fake time
		h.want("in 1", "out 1 after 499ms", "created 3")
		h.CheckIn(c)
		<-third
		c.Resource().Interrupt(errLost)
		h.CheckIn(c)
		(<-h.ends) <- errOwn
		synctest.Wait()
		if len(serving) != 2 || !serving[0] || serving[1] {
			t.Errorf("IsServing() = %v, want true as long as there was a connection", serving)
		}
	})
}

// If no connection is left during a cooldown, the check-outs fail with its error.
func TestCooldownWithoutConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanging(t, func(c *pool.Config[*fake]) {
			c.MaxConnecting = 1
			c.ConnectFailed = func(uint64, error) bool { return true }
		})
		c := h.checkOut()
		first, second := h.goCheckOut(t.Context()), h.goCheckOut(t.Context())
		(<-h.ends) <- errOwn
		<-first
		c.Resource().Interrupt(errLost)
		h.CheckIn(c)
		if res := <-second; !errors.Is(res.err, errOwn) {
			t.Errorf("CheckOut() = %+v without a connection, want %v", res, errOwn)
		}
		if _, err := h.CheckOut(t.Context()); !errors.Is(err, errOwn) {
			t.Errorf("CheckOut() = %v at once, want %v", err, errOwn)
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		third := h.goCheckOut(t.Context())
		(<-h.ends) <- nil
		if res := <-third; res.err != nil {
			t.Errorf("CheckOut() = %v after the cooldown", res.err)
		} else {
			h.CheckIn(res.conn)
		}
	})
}

// Ready and a connection that succeeds end a cooldown.
func TestCooldownEnds(t *testing.T) {
	for name, end := range map[string]func(*hanging, chan error){
		"ready": func(h *hanging, _ chan error) {
			h.clear(pool.ClearOptions{Cause: errLost})
			h.Ready()
			h.Deliver()
		},
		"connected": func(_ *hanging, other chan error) { other <- nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHanging(t, func(c *pool.Config[*fake]) {
					c.ConnectFailed = func(uint64, error) bool { return true }
				})
				h.checkOut()
				fails := h.goCheckOut(t.Context())
				h.goCheckOut(t.Context())
				(<-h.ends) <- errOwn
				<-fails
				end(h, <-h.ends)
				synctest.Wait()
				next := h.goCheckOut(t.Context())
				(<-h.ends) <- nil
				if res := <-next; res.err != nil {
					t.Errorf("CheckOut() = %v", res.err)
				}
			})
		})
	}
}

// A connection serves if it is established, whole and not stale.
func TestIsServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHanging(t, nil)
		serving := func(want bool, when string) {
			t.Helper()
			if got := h.IsServing(pool.ServiceID{}); got != want {
				t.Errorf("IsServing() = %v %s", got, when)
			}
		}
		serving(false, "without a connection")
		c := h.checkOut()
		serving(true, "while one is in use")
		if h.IsServing(serviceA) {
			t.Error("IsServing() = true for another service")
		}
		h.clear(pool.ClearOptions{Cause: errLost})
		serving(false, "with a stale one")
		h.CheckIn(c)
		h.Ready()
		h.Deliver()
		connecting := h.goCheckOut(t.Context())
		serving(false, "while one is being established")
		(<-h.ends) <- nil
		c = (<-connecting).conn
		c.Resource().Interrupt(errLost)
		serving(false, "with a broken one")
		h.CheckIn(c)
	})
}
