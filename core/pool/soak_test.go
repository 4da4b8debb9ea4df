package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/pool"
)

// TestSoak has many goroutines use a pool that is cleared at random, with deadlines and with
// connections that break or cannot be made, in both modes. Then it checks the events in order:
// each occurs once, the counts are right, no stale connection was checked out, and waiters were
// served in the order of arrival. MOORING_SOAK is the number of operations.
func TestSoak(t *testing.T) {
	operations := 4000
	if text := os.Getenv("MOORING_SOAK"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("MOORING_SOAK: %v", err)
		}
		operations = n
	}
	for name, balanced := range map[string]bool{"load balancer": true, "server": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const round = 20_000 // the events of a round are kept until its end
			var sum tally
			for left := operations / 2; left > 0 && !t.Failed(); left -= round {
				sum.add(newSoak(t, balanced).run(min(left, round)))
			}
			t.Logf("%+v", sum)
		})
	}
}

// tally counts events.
type tally struct {
	Started, Out, In, Failed, Created, Ready, Closed, Cleared int
}

func (t *tally) add(o tally) {
	t.Started += o.Started
	t.Out += o.Out
	t.In += o.In
	t.Failed += o.Failed
	t.Created += o.Created
	t.Ready += o.Ready
	t.Closed += o.Closed
	t.Cleared += o.Cleared
}

// soak is one round.
type soak struct {
	t        *testing.T
	balanced bool
	pool     *pool.Pool[*soakConn]
	tickets  atomic.Uint64 // check-outs so far
	closes   atomic.Int64

	told []told // the events, in order: the sink gets one at a time
	// order has the tickets as they came to a ready pool; the pool's lock guards it.
	order []uint64

	mu    sync.Mutex
	conns map[uint64]*soakConn // by id
	owner map[uint64]uint64    // the ticket that a connection was made for, by id; 0: none
	errs  map[error][]uint64   // by the check-outs that got them
}

// told is an event.
type told struct {
	kind    string
	id      uint64
	service pool.ServiceID
	err     error
}

// soakConn records which check-outs had it, in order. Its owner or the pool guards that.
type soakConn struct {
	fake
	soak *soak
	had  []uint64
}

func (c *soakConn) Close() error {
	c.soak.closes.Add(1)
	return nil
}

// ticket is the context of one check-out. The pool asks for its end first when it admits it,
// under its lock: so the tickets are in the order of arrival.
type ticket struct {
	context.Context //nolint:containedctx // it is one
	number          uint64
	soak            *soak
	entered         bool
}

type ticketKey struct{}

func (c *ticket) Err() error {
	if !c.entered {
		c.entered = true
		c.soak.order = append(c.soak.order, c.number)
	}
	return c.Context.Err()
}

func (c *ticket) Value(key any) any {
	if key == (ticketKey{}) {
		return c.number
	}
	return c.Context.Value(key)
}

func newSoak(t *testing.T, balanced bool) *soak {
	s := &soak{
		t: t, balanced: balanced,
		conns: map[uint64]*soakConn{}, owner: map[uint64]uint64{}, errs: map[error][]uint64{},
	}
	cfg := pool.Config[*soakConn]{
		Address: "a:1", MaxSize: new(uint64(8)), MinSize: 2, MaxPinned: 4,
		WaitQueueTimeout:    time.Duration(rand.IntN(2)) * 10 * time.Millisecond,
		MaintenanceInterval: time.Millisecond,
		Connect:             s.connect, Sink: s.sink(),
		ConnectFailed: func(_ uint64, err error) bool { return errors.Is(err, errOwn) },
	}
	if balanced {
		cfg.Service = func(c *soakConn) pool.ServiceID { return c.service }
	}
	s.pool = pool.New(cfg)
	return s
}

func (s *soak) connect(ctx context.Context, id uint64) (*soakConn, error) {
	owner, _ := ctx.Value(ticketKey{}).(uint64)
	c := &soakConn{soak: s}
	if s.balanced {
		c.service[0] = 1 + byte(rand.IntN(3))
	}
	s.mu.Lock()
	s.owner[id] = owner
	s.mu.Unlock()
	for range rand.IntN(4) {
		runtime.Gosched()
	}
	switch rand.IntN(256) {
	case 0:
		return nil, fmt.Errorf("%w", errOwn) // told apart from others
	case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16:
		return nil, errors.New("refused")
	}
	s.mu.Lock()
	s.conns[id] = c
	s.mu.Unlock()
	return c, nil
}

func (s *soak) run(operations int) tally {
	if s.pool.Ready() {
		s.pool.Deliver()
	}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for n := s.tickets.Add(1); n <= uint64(operations); n = s.tickets.Add(1) {
				s.operate(n)
				if n%151 == 0 {
					s.clear()
				}
			}
		})
	}
	wg.Wait()
	s.pool.Close()
	if stats := s.pool.Stats(); stats.Total != 0 || stats.InUse != 0 || stats.Pending != 0 ||
		stats.Waiting != 0 || stats.Cursors != 0 {
		s.t.Errorf("Stats() at the end = %+v", stats)
	}
	sum := newReplay(s).run()
	if sum.Created != sum.Closed || sum.Out != sum.In || sum.Started != sum.Out+sum.Failed ||
		sum.Started != operations ||
		int(s.closes.Load()) != len(s.conns) {
		s.t.Errorf("%d connections were made, %d closed; of %d operations was told: %+v",
			len(s.conns), s.closes.Load(), operations, sum)
	}
	return sum
}

func (s *soak) operate(n uint64) {
	ctx, cancel := context.WithCancel(context.Background())
	switch rand.IntN(8) {
	case 0:
		cancel()
	case 1, 2:
		ctx, cancel = context.WithTimeout(ctx, time.Duration(1+rand.IntN(300))*time.Microsecond) //nolint:govet // its parent needs no end
	}
	defer cancel()
	c, err := s.pool.CheckOut(&ticket{Context: ctx, number: n, soak: s})
	if err != nil {
		s.mu.Lock()
		s.errs[err] = append(s.errs[err], n)
		s.mu.Unlock()
		runtime.Gosched() // gives the goroutine that cleared the pool time to make it ready
		return
	}
	r := c.Resource()
	r.had = append(r.had, n)
	if rand.IntN(4) == 0 {
		_ = s.pool.Pin(c, pool.PurposeCursor)
	}
	for range rand.IntN(3) {
		runtime.Gosched()
	}
	if rand.IntN(64) == 0 {
		r.Interrupt(errLost)
	}
	s.pool.CheckIn(c)
}

func (s *soak) clear() {
	opt := pool.ClearOptions{Cause: errLost, InterruptInUse: rand.IntN(3) == 0}
	if s.balanced {
		opt.Service[0] = 1 + byte(rand.IntN(3))
	}
	if s.pool.Clear(opt) {
		runtime.Gosched()
		s.pool.Deliver()
	}
	if s.pool.Ready() {
		s.pool.Deliver()
	}
}

func (s *soak) sink() *event.Sink {
	tell := func(e told) { s.told = append(s.told, e) }
	return &event.Sink{
		PoolReady: func(event.PoolReady) { tell(told{kind: "pool ready"}) },
		PoolCleared: func(e event.PoolCleared) {
			tell(told{kind: "cleared", service: e.ServiceID})
		},
		ConnectionCreated: func(e event.ConnectionCreated) {
			tell(told{kind: "created", id: e.ConnectionID})
		},
		ConnectionReady: func(e event.ConnectionReady) {
			tell(told{kind: "ready", id: e.ConnectionID})
		},
		ConnectionClosed: func(e event.ConnectionClosed) {
			tell(told{kind: "closed", id: e.ConnectionID})
		},
		ConnectionCheckOutStarted: func(event.ConnectionCheckOutStarted) {
			tell(told{kind: "started"})
		},
		ConnectionCheckOutFailed: func(e event.ConnectionCheckOutFailed) {
			tell(told{kind: "failed", err: e.Err})
		},
		ConnectionCheckedOut: func(e event.ConnectionCheckedOut) {
			tell(told{kind: "out", id: e.ConnectionID})
		},
		ConnectionCheckedIn: func(e event.ConnectionCheckedIn) {
			tell(told{kind: "in", id: e.ConnectionID})
		},
	}
}
