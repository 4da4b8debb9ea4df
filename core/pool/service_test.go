package pool_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/pool"
)

var (
	serviceA = pool.ServiceID{'A'}
	serviceB = pool.ServiceID{'B'}
)

// balanced is a pool in load-balancer mode.
type balanced struct {
	*rig
	next []pool.ServiceID // where the next connections lead to; A, once it is empty
	// If gate is not nil, each establishment waits for a value, and succeeds if that is nil.
	gate chan error
}

func newBalanced(t *testing.T, edit func(*pool.Config[*fake])) *balanced {
	b := new(balanced)
	b.rig = newRig(t, func(c *pool.Config[*fake]) {
		c.Service = func(f *fake) pool.ServiceID { return f.service }
		c.Connect = b.connect
		if edit != nil {
			edit(c)
		}
	})
	return b
}

func (b *balanced) connect(context.Context, uint64) (*fake, error) {
	b.mu.Lock()
	service, gate := serviceA, b.gate
	if len(b.next) > 0 {
		service, b.next = b.next[0], b.next[1:]
	}
	b.mu.Unlock()
	if gate != nil {
		if err := <-gate; err != nil {
			return nil, err
		}
	}
	f := b.fake()
	f.service = service
	return f, nil
}

func (b *balanced) lead(to ...pool.ServiceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = to
}

// block makes establishments wait for the returned channel.
func (b *balanced) block() chan<- error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate = make(chan error)
	return b.gate
}

func (b *balanced) wantGeneration(what string, c *pool.Conn[*fake], fresh bool) {
	b.t.Helper()
	if now := b.GenerationOf(c.Service()); (c.Generation() == now) != fresh ||
		c.Generation() > now {
		b.t.Errorf("%s has generation %d, its service %d: fresh must be %t", what, c.Generation(),
			now, fresh)
	}
}

var errLost = errors.New("lost")

// CMAP-070, CMAP-071, LB-052: only the service's connections become stale. The pool is not paused
// and the waiters stay.
func TestClearOfAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBalanced(t, func(c *pool.Config[*fake]) {
			c.MaxSize, c.MaintenanceInterval = new(uint64(3)), 0
		})
		b.lead(serviceA, serviceB, serviceA)
		first, second, third := b.checkOut(), b.checkOut(), b.checkOut()
		if first.Service() != serviceA || second.Service() != serviceB {
			t.Errorf("Service() = %v and %v", first.Service(), second.Service())
		}
		waiting := b.goCheckOut(t.Context())
		b.CheckIn(third)
		third = (<-waiting).conn
		waiting = b.goCheckOut(t.Context())
		b.seen()
		b.clear(pool.ClearOptions{Cause: errLost, Service: serviceA})
		b.want("cleared 41: lost")
		b.wantGeneration("a connection to A", first, false)
		b.wantGeneration("a connection to B", second, true)
		if s := b.Stats(); s.State != pool.StateReady || s.Waiting != 1 {
			t.Errorf("Stats() = %+v, want a ready pool and one waiting", s)
		}
		b.CheckIn(second)
		if res := <-waiting; res.conn != second {
			t.Errorf("the waiter got %v, want the connection to B", res)
		}
		b.seen()
		b.CheckIn(first)
		b.CheckIn(third)
		b.CheckIn(second)
		b.want("in 1", "closed 1: stale", "in 3", "closed 3: stale", "in 2")
		fresh := b.checkOut()
		b.CheckIn(fresh)
		b.clear(pool.ClearOptions{Cause: errLost, Service: serviceB})
		// CMAP-082: without delay
		b.want("started", "out 2 after 0s", "in 2", "cleared 42: lost", "closed 2: stale")
	})
}

// A connection is stale if its service is cleared while it is being established, although it gets
// its generation only at the end: it may have reached the service before the event that the clear
// was for. Its waiter keeps its place (CMAP-070) and gets another connection.
func TestServiceIsClearedDuringAnEstablishment(t *testing.T) {
	for name, others := range map[string]int{"unknown service": 0, "known service": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBalanced(t, nil)
				for range others {
					b.checkOut()
				}
				gate := b.block()
				before := b.goCheckOut(t.Context())
				generation := b.GenerationOf(serviceA)
				b.clear(pool.ClearOptions{Service: serviceB})
				if g := b.GenerationOf(serviceA); g != generation && others > 0 {
					t.Errorf("the generation of A went from %d to %d as B was cleared", generation,
						g)
				}
				b.clear(pool.ClearOptions{Service: serviceA})
				if g := b.GenerationOf(serviceA); g <= generation {
					t.Errorf("the generation of A went from %d to %d as it was cleared", generation,
						g)
				}
				after := b.goCheckOut(t.Context())
				queued := b.goCheckOut(t.Context())
				close(gate)
				first, second, third := (<-before).conn, (<-after).conn, (<-queued).conn
				synctest.Wait()
				if id := uint64(others); second.ID() != id+2 || first.ID() <= id+2 {
					t.Errorf("got connections %d and %d, want a new one and %d", first.ID(),
						second.ID(), id+2)
				}
				for _, c := range []*pool.Conn[*fake]{first, second, third} {
					b.wantGeneration("a connection that was checked out", c, true)
					b.CheckIn(c)
				}
				if s := b.Stats(); s.Available != 3 || s.InUse != others || b.timesClosed() != 1 {
					t.Errorf("Stats() = %+v and %d were closed, want three available and "+
						"one closed", s, b.timesClosed())
				}
			})
		})
	}
}

// The clear of another service does not affect an establishment.
func TestAnotherServiceIsClearedDuringAnEstablishment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBalanced(t, nil)
		known := b.checkOut()
		gate := b.block()
		first := b.goCheckOut(t.Context())
		b.clear(pool.ClearOptions{Service: serviceB})
		second := b.goCheckOut(t.Context())
		gate <- nil
		gate <- nil
		for _, c := range []*pool.Conn[*fake]{known, (<-second).conn, (<-first).conn} {
			b.wantGeneration("a connection to A", c, true)
			b.CheckIn(c)
		}
	})
}

// A service that was forgotten and comes back does not get an old generation.
func TestGenerationsAreNeverUsedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBalanced(t, nil)
		seen := map[uint64]bool{}
		for range 5 {
			c := b.checkOut()
			b.wantGeneration("a new connection", c, true)
			if seen[c.Generation()] {
				t.Errorf("generation %d came again", c.Generation())
			}
			seen[c.Generation()] = true
			b.clear(pool.ClearOptions{Service: serviceA})
			b.wantGeneration("the connection after the clear", c, false)
			b.CheckIn(c)
			if s := b.Stats(); s.Total != 0 || len(b.Services()) != 0 {
				t.Fatalf("Stats() = %+v, %d services known, want none of either", s,
					len(b.Services()))
			}
			before := b.GenerationOf(serviceA)
			b.clear(pool.ClearOptions{Service: serviceA}) // of a service without connections
			if after := b.GenerationOf(serviceA); after <= before {
				t.Errorf("the generation went from %d to %d by a clear", before, after)
			}
		}
	})
}

// LB-050: an error before or during hello clears nothing, and only the check-out of that
// connection fails.
func TestEstablishmentFailsBehindALoadBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun uint64
		b := newBalanced(t, func(c *pool.Config[*fake]) {
			c.MaxConnecting = 1
			c.ConnectFailed = func(generation uint64, _ error) bool {
				begun = generation
				return false
			}
		})
		gate := b.block()
		first, second := b.goCheckOut(t.Context()), b.goCheckOut(t.Context())
		b.clear(pool.ClearOptions{Service: serviceA})
		b.seen()
		gate <- errLost
		if res := <-first; !errors.Is(res.err, errLost) {
			t.Errorf("CheckOut() = %v, want %v", res.err, errLost)
		}
		b.want("closed 1: error", "failed after 0s: connectionError", "created 2")
		// LB-051: the service, if known, decides whether an error of the authentication is stale.
		if now := b.GenerationOf(serviceA); begun >= now {
			t.Errorf("ConnectFailed got generation %d, the service was cleared since and has %d",
				begun, now)
		}
		gate <- nil
		res := <-second
		b.wantGeneration("the second", res.conn, true)
		b.CheckIn(res.conn)
	})
}

// CMAP-065 for a service: its connections in use are interrupted; others and pending ones are
// not.
func TestClearOfAServiceInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBalanced(t, nil)
		b.lead(serviceA, serviceB)
		a, other := b.checkOut(), b.checkOut()
		gate := b.block()
		pending := b.goCheckOut(t.Context())
		b.clear(pool.ClearOptions{Cause: errLost, Service: a.Service(), InterruptInUse: true})
		synctest.Wait()
		if a.Resource().Alive() || !other.Resource().Alive() {
			t.Errorf("alive: %t to A, %t to B, want false and true", a.Resource().Alive(),
				other.Resource().Alive())
		}
		b.CheckIn(a)
		b.CheckIn(other)
		close(gate)
		if res := <-pending; res.err != nil {
			t.Errorf("the pending CheckOut() = %v", res.err)
		} else {
			b.CheckIn(res.conn)
		}
	})
}

func TestClearInTheWrongMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, f := range map[string]func(){
			"of everything in load-balancer mode": func() { newBalanced(t, nil).Clear(pool.ClearOptions{}) },
			"of a service in the other mode":      func() { newRig(t, nil).Clear(pool.ClearOptions{Service: serviceA}) },
		} {
			panics(t, "a clear "+what, f)
		}
	})
}

// CMAP-071 outside of load-balancer mode: there is one generation for all services.
func TestGenerationOfWithoutLoadBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		c := r.checkOut()
		r.clear(pool.ClearOptions{})
		if g := r.GenerationOf(serviceA); g != 1 || r.Generation() != 1 ||
			c.Service() != (pool.ServiceID{}) {
			t.Errorf("GenerationOf, Generation, Service = %d, %d, %v, want 1, 1 and none", g,
				r.Generation(), c.Service())
		}
		r.CheckIn(c)
	})
}

// LB-040 and CMAP-122: in load-balancer mode the text of a timeout says what a full pool is used
// for.
func TestTimeoutSaysWhatThePoolIsUsedFor(t *testing.T) {
	const plain = "Timed out while checking out a connection from connection pool"
	for name, test := range map[string]struct {
		balanced bool
		max      uint64
		want     string
	}{
		"load balancer": {
			true, 4,
			"Timeout waiting for connection from the connection pool. maxPoolSize: 4, " +
				"connections in use by cursors: 1, " +
				"connections in use by transactions: 2, connections in use by other operations: 1",
		},
		"load balancer, not full": {true, 6, plain},
		"none":                    {false, 4, plain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBalanced(t, func(c *pool.Config[*fake]) {
					c.MaxSize, c.WaitQueueTimeout, c.MaxConnecting = &test.max, time.Second, 1
					if !test.balanced {
						c.Service = nil
					}
				})
				var held []*pool.Conn[*fake]
				for _, why := range []pool.Purpose{
					pool.PurposeCursor, pool.PurposeTransaction, pool.PurposeTransaction, pool.PurposeOther,
				} {
					c := b.checkOut()
					if err := b.Pin(c, why); err != nil {
						t.Fatal(err)
					}
					held = append(held, c)
				}
				gate := b.block()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				// If the pool is not full, its connection is being established, bounded only by
				// the context.
				blocker := b.goCheckOut(ctx)
				_, err := b.CheckOut(t.Context())
				if e, ok := errors.AsType[*pool.WaitQueueTimeoutError](err); !ok || !e.Timeout() ||
					err.Error() != test.want {
					t.Errorf("CheckOut() = %v, want %s", err, test.want)
				}
				<-blocker
				close(gate)
				for _, c := range held {
					b.CheckIn(c)
				}
			})
		})
	}
}

// Services returns the services that connections lead to.
func TestServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBalanced(t, nil)
		b.lead(serviceB, serviceA, serviceB)
		conns := []*pool.Conn[*fake]{b.checkOut(), b.checkOut(), b.checkOut()}
		b.clear(pool.ClearOptions{Service: serviceA})
		want := []pool.ServiceStats{
			{Service: serviceA, Generation: 1, Connections: 1}, {Service: serviceB, Connections: 2},
		}
		if got := b.Services(); !slices.Equal(got, want) {
			t.Errorf("Services() = %v, want %v", got, want)
		}
		for _, c := range conns {
			b.CheckIn(c)
		}
		if got := b.Services(); !slices.Equal(got, want[1:]) {
			t.Errorf("Services() = %v, want %v", got, want[1:])
		}
		if got := newRig(t, nil).Services(); got != nil {
			t.Errorf("Services() without load balancer = %v, want nil", got)
		}
	})
}
