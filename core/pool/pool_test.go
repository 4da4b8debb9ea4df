package pool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/internal/timeoutms"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
)

// rig is a pool with a record of its events.
type rig struct {
	*pool.Pool[*fake]
	t *testing.T

	mu     sync.Mutex
	events []string
	fakes  []*fake
}

// newRig makes a ready pool; edit may change its configuration first.
func newRig(t *testing.T, edit func(*pool.Config[*fake])) *rig {
	r := &rig{t: t}
	cfg := pool.Config[*fake]{
		Address: "a:1",
		Connect: func(context.Context, uint64) (*fake, error) { return r.fake(), nil },
		Sink:    r.sink(),

		// With maintenance, a lost wake-up would be a loop in fake time instead of a deadlock.
		MaintenanceInterval: -1,
	}
	if edit != nil {
		edit(&cfg)
	}
	r.Pool = pool.New(cfg)
	t.Cleanup(r.Close)
	r.Ready()
	r.Deliver()
	return r
}

func (r *rig) fake() *fake {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := newFake()
	r.fakes = append(r.fakes, f)
	return f
}

func (r *rig) log(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf(format, args...))
}

// timesClosed counts all closes, so a connection that was closed twice counts twice.
func (r *rig) timesClosed() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.fakes {
		n += f.timesClosed()
	}
	return n
}

// seen removes and returns the events so far.
func (r *rig) seen() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

func (r *rig) want(events ...string) {
	r.t.Helper()
	if got := r.seen(); !slices.Equal(got, events) {
		r.t.Errorf("events = %q\nwant     %q", got, events)
	}
}

func (r *rig) sink() *event.Sink {
	return &event.Sink{
		PoolReady: func(event.PoolReady) { r.log("ready") },
		PoolCleared: func(e event.PoolCleared) {
			if service := bytes.TrimRight(e.ServiceID[:], "\x00"); len(service) > 0 {
				r.log("cleared %x: %v", service, e.Err)
				return
			}
			r.log("cleared: %v", e.Err)
		},
		PoolClosed:        func(event.PoolClosed) { r.log("closed") },
		ConnectionCreated: func(e event.ConnectionCreated) { r.log("created %d", e.ConnectionID) },
		ConnectionReady: func(e event.ConnectionReady) {
			r.log("ready %d after %v", e.ConnectionID, e.Duration)
		},
		ConnectionClosed: func(e event.ConnectionClosed) {
			r.log("closed %d: %s", e.ConnectionID, e.Reason)
		},
		ConnectionCheckOutStarted: func(event.ConnectionCheckOutStarted) { r.log("started") },
		ConnectionCheckOutFailed: func(e event.ConnectionCheckOutFailed) {
			r.log("failed after %v: %s", e.Duration, e.Reason)
		},
		ConnectionCheckedOut: func(e event.ConnectionCheckedOut) {
			r.log("out %d after %v", e.ConnectionID, e.Duration)
		},
		ConnectionCheckedIn: func(e event.ConnectionCheckedIn) { r.log("in %d", e.ConnectionID) },
	}
}

// clear clears the pool and delivers the events.
func (r *rig) clear(opt pool.ClearOptions) {
	if r.Clear(opt) {
		r.Deliver()
	}
}

func (r *rig) checkOut() *pool.Conn[*fake] {
	r.t.Helper()
	c, err := r.CheckOut(r.t.Context())
	if err != nil {
		r.t.Fatalf("CheckOut() = %v", err)
	}
	return c
}

// result is the result of a CheckOut on another goroutine.
type result struct {
	conn *pool.Conn[*fake]
	err  error
}

func (r *rig) goCheckOut(ctx context.Context) <-chan result {
	ch := make(chan result, 1)
	go func() {
		c, err := r.CheckOut(ctx)
		ch <- result{c, err}
	}()
	synctest.Wait()
	return ch
}

func TestEventsOfOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, func(c *pool.Config[*fake]) {
			c.MaxIdleTime, c.MaintenanceInterval = time.Minute, 0
			c.Connect = func(context.Context, uint64) (*fake, error) {
				time.Sleep(time.Second) //nolint:forbidigo // fake time
				return r.fake(), nil
			}
		})
		c := r.checkOut()
		if c.ID() != 1 || c.Generation() != 0 || c.Resource() != r.fakes[0] {
			t.Errorf("ID, Generation, Resource = %d, %d, %p", c.ID(), c.Generation(), c.Resource())
		}
		r.CheckIn(c)
		r.CheckIn(r.checkOut())
		r.want("ready", "started", "created 1", "ready 1 after 1s", "out 1 after 1s", "in 1",
			"started", "out 1 after 0s", "in 1")
		time.Sleep(61 * time.Second) //nolint:forbidigo // fake time
		time.Sleep(10 * time.Second) //nolint:forbidigo // fake time
		r.want("closed 1: idle")
		if n := r.fakes[0].timesClosed(); n != 1 {
			t.Errorf("the idle connection was closed %d times", n)
		}
		r.Close()
		r.want("closed")
	})
}

func TestIdleConnectionIsNotGivenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) { c.MaxIdleTime = time.Second })
		c := r.checkOut()
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		r.CheckIn(c)
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		r.CheckIn(r.checkOut())
		time.Sleep(2 * time.Second) //nolint:forbidigo // fake time
		r.seen()
		r.CheckIn(r.checkOut())
		r.want("started", "closed 1: idle", "created 2", "ready 2 after 0s", "out 2 after 0s",
			"in 2")
	})
}

func TestBrokenConnectionIsNotGivenOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		c := r.checkOut()
		c.Resource().Interrupt(errors.New("broken"))
		r.CheckIn(c)
		d := r.checkOut()
		r.CheckIn(d)
		d.Resource().Interrupt(errors.New("broken while it was available"))
		r.seen()
		r.CheckIn(r.checkOut())
		r.want("started", "closed 2: error", "created 3", "ready 3 after 0s", "out 3 after 0s",
			"in 3")
		for i, f := range r.fakes {
			if want := 1 - i/2; f.timesClosed() != want {
				t.Errorf("connection %d was closed %d times, want %d", i+1, f.timesClosed(), want)
			}
		}
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) { c.MaxSize = new(uint64(1)) })
		c := r.checkOut()
		var waiting []<-chan result
		for range 5 {
			waiting = append(waiting, r.goCheckOut(t.Context()))
		}
		if s := r.Stats(); s.Waiting != 5 || s.InUse != 1 || s.Total != 1 {
			t.Errorf("Stats() = %+v", s)
		}
		for i, ch := range waiting {
			r.CheckIn(c)
			synctest.Wait()
			select {
			case res := <-ch:
				c = res.conn
			default:
				t.Fatalf("waiter %d was not served in its turn", i)
			}
		}
		r.CheckIn(c)
	})
}

// caller keys the caller of a check-out in its context.
type caller struct{}

// TestCallersTakeTurns has check-outs of three callers wait. A caller whose check-outs have all
// been served goes to the end when it comes back, and one that leaves gives up its turn.
func TestCallersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) {
			c.MaxSize = new(uint64(1))
			c.Caller = func(ctx context.Context) any { return ctx.Value(caller{}) }
		})
		c := r.checkOut()
		served := make(chan string)
		wait := func(ctx context.Context, name string) {
			ch := r.goCheckOut(context.WithValue(ctx, caller{}, name[:1]))
			go func() {
				res := <-ch
				if res.err != nil {
					served <- name + " failed"
					return
				}
				c = res.conn
				served <- name
			}()
		}
		leaves, cancel := context.WithCancel(t.Context())
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			wait(t.Context(), name)
		}
		wait(leaves, "b1")
		wait(t.Context(), "c1")
		wait(t.Context(), "c2")
		cancel()
		if got := <-served; got != "b1 failed" {
			t.Fatalf("%s, want that b1 leaves", got)
		}
		for i, want := range []string{"a1", "c1", "a2", "c2", "d1", "a3", "c3", "a4"} {
			switch i {
			case 2:
				wait(t.Context(), "d1") // behind c2
			case 4:
				wait(t.Context(), "c3")
			}
			r.CheckIn(c)
			if got := <-served; got != want {
				t.Errorf("%s is served, want %s", got, want)
			}
		}
		if s := r.Stats(); s.Waiting != 0 {
			t.Errorf("%d wait at the end", s.Waiting)
		}
		r.CheckIn(c)
	})
}

func TestWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *pool.Config[*fake]) {
			c.MaxSize, c.WaitQueueTimeout = new(uint64(1)), 10*time.Second
		})
		c := r.checkOut()
		cause := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		first, second := r.goCheckOut(ctx), r.goCheckOut(t.Context())
		r.seen()
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		cancel(cause)
		res := <-first
		if e, ok := errors.AsType[*pool.WaitQueueTimeoutError](res.err); !ok || !e.Timeout() ||
			!errors.Is(e, cause) || !errors.Is(e, context.Canceled) {
			t.Errorf("CheckOut() = %v, want a *WaitQueueTimeoutError for %v", res.err, cause)
		}
		r.want("failed after 1s: timeout")
		res = <-second
		if e, ok := errors.AsType[*pool.WaitQueueTimeoutError](res.err); !ok || e.Err != nil {
			t.Errorf("CheckOut() = %v, want a *WaitQueueTimeoutError", res.err)
		}
		r.want("failed after 10s: timeout")
		r.CheckIn(c)
		if s := r.Stats(); s.Waiting != 0 || s.Available != 1 {
			t.Errorf("Stats() = %+v, want one available and nobody waiting", s)
		}
		if _, err := r.CheckOut(ctx); !errors.Is(err, cause) {
			t.Errorf("CheckOut with an ended context = %v, want %v", err, cause)
		}
	})
}

// slow makes connections that take a second, or as long as their context.
func slow(r **rig) func(context.Context, uint64) (*fake, error) {
	return func(ctx context.Context, _ uint64) (*fake, error) {
		select {
		case <-time.After(time.Second):
			return (*r).fake(), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func TestEstablishmentOutlivesItsCheckOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, func(c *pool.Config[*fake]) {
			// WaitQueueTimeout does not bound an establishment.
			c.Connect, c.WaitQueueTimeout = slow(&r), 100*time.Millisecond
			c.ConnectFailed = func(uint64, error) bool {
				t.Error("ConnectFailed was called")
				return false
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := r.CheckOut(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("CheckOut() = %v, want context.DeadlineExceeded", err)
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		r.CheckIn(r.checkOut())
		r.want("ready", "started", "created 1", "failed after 200ms: timeout", "ready 1 after 1s",
			"started", "out 1 after 0s", "in 1")
	})
}

// Under timeoutMS the limit of a check-out includes the establishment; without, there is none.
func TestCheckOutWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, func(c *pool.Config[*fake]) {
			c.Connect, c.WaitQueueTimeout = slow(&r), 100*time.Millisecond
		})
		_, err := r.CheckOutWithin(timeoutms.Mark(t.Context()), 300*time.Millisecond)
		if e, ok := errors.AsType[*pool.WaitQueueTimeoutError](err); !ok || e.Err != nil {
			t.Errorf("CheckOutWithin() = %v, want a *WaitQueueTimeoutError", err)
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		r.want("ready", "started", "created 1", "failed after 300ms: timeout", "ready 1 after 1s")
		for _, ctx := range []context.Context{timeoutms.Mark(t.Context()), t.Context()} {
			c, err := r.CheckOutWithin(ctx, 0)
			if err != nil {
				t.Fatalf("CheckOutWithin() = %v", err)
			}
			defer r.CheckIn(c)
		}
	})
}

func TestMaxConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, func(c *pool.Config[*fake]) { c.Connect = slow(&r) })
		var waiting []<-chan result
		for range 5 {
			waiting = append(waiting, r.goCheckOut(t.Context()))
		}
		if s := r.Stats(); s.Pending != 2 || s.Waiting != 3 {
			t.Errorf("Stats() = %+v, want 2 pending and 3 waiting", s)
		}
		start := time.Now()
		first := <-waiting[0]
		// It goes to the third, which has not begun to connect or waits for room to do so.
		r.CheckIn(first.conn)
		var conns []*pool.Conn[*fake]
		for _, ch := range waiting[1:] {
			conns = append(conns, (<-ch).conn)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("five check-outs by two at a time took %v", took)
		}
		for _, c := range conns {
			r.CheckIn(c)
		}
	})
}

func TestEstablishmentFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		var r *rig
		r = newRig(t, func(c *pool.Config[*fake]) {
			c.MaxConnecting = 1
			c.Connect = func(context.Context, uint64) (*fake, error) {
				time.Sleep(time.Second) //nolint:forbidigo // fake time
				return nil, refused
			}
			c.ConnectFailed = func(generation uint64, err error) bool {
				if generation != 0 || !errors.Is(err, refused) {
					t.Errorf("ConnectFailed(%d, %v)", generation, err)
				}
				r.clear(pool.ClearOptions{Cause: err})
				return false
			}
		})
		first, second := r.goCheckOut(t.Context()), r.goCheckOut(t.Context())
		if res := <-first; !errors.Is(res.err, refused) {
			t.Errorf("the first CheckOut() = %v, want %v", res.err, refused)
		}
		res := <-second
		cleared, ok := errors.AsType[*pool.PoolClearedError](res.err)
		if !ok || !errors.Is(cleared.Cause, refused) || !cleared.Retryable() ||
			errors.Is(res.err, refused) {
			t.Errorf("the second CheckOut() = %v, want a *PoolClearedError", res.err)
		}
		const text = "Connection pool for a:1 was cleared because another operation failed " +
			"with: refused"
		if res.err.Error() != text {
			t.Errorf("error = %q, want %q", res.err, text)
		}
		// The specification's order: the pool is cleared before the connection is closed, and
		// then its check-out fails.
		r.want("ready", "started", "created 1", "started", "cleared: refused",
			"failed after 1s: connectionError",
			"closed 1: error", "failed after 1s: connectionError")
		if s := r.Stats(); s.Total != 0 || s.Pending != 0 || s.State != pool.StatePaused ||
			s.Generation != 1 {
			t.Errorf("Stats() = %+v, want an empty paused pool of generation 1", s)
		}
	})
}

// TestClearedTextOfServer checks that what a server said about an operation does not get into the
// error of another.
func TestClearedTextOfServer(t *testing.T) {
	cause := &mongoerr.CommandError{
		Code: 91, Name: "ShutdownInProgress", Message: "hunter2", Address: "a:1",
	}
	err := &pool.PoolClearedError{Address: "a:1", Cause: cause}
	const text = "Connection pool for a:1 was cleared because another operation failed with: " +
		"command failed on a:1: error (ShutdownInProgress, code 91)"
	if err.Error() != text {
		t.Errorf("error = %q, want %q", err, text)
	}
}

func TestClearInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		var block atomic.Bool
		r = newRig(t, func(c *pool.Config[*fake]) {
			c.Connect = func(ctx context.Context, _ uint64) (*fake, error) {
				if block.Load() {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return r.fake(), nil
			}
			c.ConnectFailed = func(uint64, error) bool {
				t.Error("ConnectFailed was called for an establishment that the pool gave up")
				return false
			}
		})
		c := r.checkOut()
		block.Store(true)
		pending := r.goCheckOut(t.Context())
		r.seen()
		r.clear(pool.ClearOptions{Cause: errors.New("monitor timeout"), InterruptInUse: true})
		res := <-pending
		if e, ok := errors.AsType[*pool.PoolClearedError](res.err); !ok || !e.Interrupted ||
			e.Error() != "Connection to a:1 interrupted due to server monitor timeout" {
			t.Errorf("CheckOut() = %v, want an interrupted *PoolClearedError", res.err)
		}
		synctest.Wait()
		if _, ok := errors.AsType[*pool.PoolClearedError](c.Resource().Err()); !ok {
			t.Errorf("the connection in use has %v, want a *PoolClearedError", c.Resource().Err())
		}
		r.CheckIn(c)
		r.want("cleared: monitor timeout", "closed 2: error", "failed after 0s: connectionError",
			"in 1", "closed 1: error")
	})
}

func TestClearOfAPausedPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		first := errors.New("first")
		r.clear(pool.ClearOptions{Cause: first})
		r.clear(pool.ClearOptions{Cause: errors.New("second")})
		if g := r.Generation(); g != 2 {
			t.Errorf("Generation() = %d, want 2", g)
		}
		_, err := r.CheckOut(t.Context())
		if e, ok := errors.AsType[*pool.PoolClearedError](err); !ok || !errors.Is(e.Cause, first) {
			t.Errorf("CheckOut() = %v, want a *PoolClearedError for %v", err, first)
		}
		if !r.Ready() || r.Ready() {
			t.Error("Ready() is not true the first time and false the second")
		}
		r.Deliver()
		r.want("ready", "cleared: first", "started", "failed after 0s: connectionError", "ready")
		r.Close()
		r.Ready()
		r.Clear(pool.ClearOptions{})
		if s := r.Stats(); s.State != pool.StateClosed || s.Generation != 2 {
			t.Errorf("Stats() of a closed pool = %+v", s)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, func(c *pool.Config[*fake]) {
			c.MaxSize, c.Connect = new(uint64(3)), slow(&r)
		})
		inUse, idle := r.goCheckOut(t.Context()), r.goCheckOut(t.Context())
		c := (<-inUse).conn
		r.CheckIn((<-idle).conn)
		d := r.checkOut()
		pending := r.goCheckOut(t.Context())
		r.CheckIn(d)
		r.CheckIn((<-pending).conn) // the returned one; the third is being established, for none
		r.seen()
		r.Close()
		r.Close()
		if _, err := r.CheckOut(t.Context()); !errors.Is(err, pool.ErrClosed) {
			t.Errorf("CheckOut after Close = %v, want ErrClosed", err)
		}
		r.CheckIn(c)
		r.want("closed 2: poolClosed", "closed", "closed 3: poolClosed",
			"started", "failed after 0s: poolClosed", "in 1", "closed 1: poolClosed")
		for i, f := range r.fakes {
			if f.timesClosed() != 1 {
				t.Errorf("connection %d was closed %d times", i+1, f.timesClosed())
			}
		}
		if s := r.Stats(); s.Total != 0 || s.InUse != 0 {
			t.Errorf("Stats() = %+v, want nothing", s)
		}
	})
}

func TestCloseFailsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		r = newRig(t, func(c *pool.Config[*fake]) { c.MaxConnecting, c.Connect = 1, slow(&r) })
		connecting, waiting := r.goCheckOut(t.Context()), r.goCheckOut(t.Context())
		r.Close()
		for name, ch := range map[string]<-chan result{
			"connecting": connecting, "waiting": waiting,
		} {
			if err := (<-ch).err; !errors.Is(err, pool.ErrClosed) {
				t.Errorf("the check-out that is %s = %v, want ErrClosed", name, err)
			}
		}
		r.want("ready", "started", "created 1", "started", "failed after 0s: poolClosed", "closed",
			"closed 1: poolClosed", "failed after 0s: poolClosed")
	})
}

func TestCheckInBugs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, other := newRig(t, nil), newRig(t, nil)
		c := r.checkOut()
		panics(t, "a check-in to another pool", func() { other.CheckIn(c) })
		r.CheckIn(c)
		panics(t, "a second check-in", func() { r.CheckIn(c) })
	})
}

func panics(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s did not panic", what)
		}
	}()
	f()
}
