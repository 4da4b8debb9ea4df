package pool_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/pool"
)

// panicky is a rig whose sink panics at every event, once it has taken note of it, while it is armed.
type panicky struct {
	*rig
	armed bool
}

func newPanicky(t *testing.T) *panicky {
	p := new(panicky)
	p.rig = newRig(t, func(c *pool.Config[*fake]) {
		c.MaxSize = ptr(uint64(1))
		s := *c.Sink
		c.Sink.ConnectionCheckOutStarted = armed(p, s.ConnectionCheckOutStarted)
		c.Sink.ConnectionCheckOutFailed = armed(p, s.ConnectionCheckOutFailed)
		c.Sink.ConnectionCheckedOut = armed(p, s.ConnectionCheckedOut)
		c.Sink.ConnectionCheckedIn = armed(p, s.ConnectionCheckedIn)
		c.Sink.ConnectionClosed = armed(p, s.ConnectionClosed)
		c.Sink.PoolCleared = armed(p, s.PoolCleared)
		c.Sink.PoolClosed = armed(p, s.PoolClosed)
	})
	p.CheckIn(p.checkOut())
	p.seen()
	return p
}

func armed[E any](p *panicky, f func(E)) func(E) {
	return func(e E) {
		f(e)
		if p.armed {
			panic("the sink panics")
		}
	}
}

// panics expects f to.
func (p *panicky) panics(f func()) {
	p.t.Helper()
	p.armed = true
	panics(p.t, "it", f)
	p.armed = false
}

// event.Sink: a panic of a sink goes through the call that it befalls, which takes nothing along: no connection is lost, no
// waiter stays, nothing is counted wrong, and what was queued behind the event is told as usual.
func TestSinkPanics(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, test := range map[string]struct {
		do     func(*panicky)
		events []string
	}{
		"check-out": {
			func(p *panicky) { p.panics(func() { _, _ = p.CheckOut(p.t.Context()) }) },
			[]string{"started", "out 1 after 0s", "in 1"},
		},
		"check-out that is refused": {
			func(p *panicky) { p.panics(func() { _, _ = p.CheckOut(ended) }) },
			[]string{"started", "failed after 0s: timeout"},
		},
		"check-out that would have to wait": {
			func(p *panicky) {
				c := p.checkOut()
				p.panics(func() { _, _ = p.CheckOut(p.t.Context()) })
				p.CheckIn(c)
			},
			[]string{"started", "out 1 after 0s", "started", "failed after 0s: timeout", "in 1"},
		},
		"check-out that has waited": {
			func(p *panicky) {
				c := p.checkOut()
				done := make(chan struct{})
				go func() {
					defer close(done)
					panics(p.t, "the waiter", func() { _, _ = p.CheckOut(p.t.Context()) })
				}()
				synctest.Wait()
				p.panics(func() {
					defer func() { <-done }() // it is told what the check-in leaves
					p.CheckIn(c)
				})
			},
			[]string{"started", "out 1 after 0s", "started", "in 1", "out 1 after 0s", "in 1"},
		},
		"check-in": {
			func(p *panicky) {
				c := p.checkOut()
				p.panics(func() { p.CheckIn(c) })
			},
			[]string{"started", "out 1 after 0s", "in 1"},
		},
		"check-in of one that is broken": {
			func(p *panicky) {
				c := p.checkOut()
				c.Resource().Interrupt(errLost)
				p.panics(func() { p.CheckIn(c) })
			},
			[]string{"started", "out 1 after 0s", "in 1", "closed 1: error"},
		},
		"clear": {
			func(p *panicky) {
				p.Clear(pool.ClearOptions{Cause: errLost})
				p.panics(p.Deliver)
				p.Ready()
				p.Deliver()
			},
			[]string{"cleared: lost", "ready"},
		},
		"close": {
			func(p *panicky) { p.panics(p.Close) },
			[]string{"closed 1: poolClosed", "closed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPanicky(t) //nolint:contextcheck // a pool outlives every context
				test.do(p)
				if s := p.Stats(); s.Total != s.Available || s.InUse != 0 || s.Waiting != 0 || s.Pending != 0 {
					t.Errorf("Stats() = %+v, want nothing in use, pending or waiting", s)
				}
				var want []string
				for range 3 { // what is told later is neither lost nor mixed up with what was left
					_, _ = p.CheckOut(ended)
					want = append(want, "started", "failed after 0s: timeout")
				}
				if p.Stats().State == pool.StateClosed {
					want = slices.Repeat([]string{"started", "failed after 0s: poolClosed"}, 3)
				}
				p.want(append(test.events, want...)...)
				p.Close()
				if made, closed := len(p.fakes), p.timesClosed(); made != closed {
					t.Errorf("%d connections were made, %d closed", made, closed)
				}
			})
		})
	}
}
