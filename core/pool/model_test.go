package pool_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/pool"
)

// model is the pool's behavior as plainly as possible, one step at a time. Check-outs are
// numbers; connections have the pool's ids.
type model struct {
	maxSize, maxConnecting int
	paused                 bool
	generation             uint64
	lastID                 uint64
	queue                  []int // check-outs that wait without a connection of their own
	connecting             []int // those that wait with one that is being established
	cooling                bool  // an establishment has failed for a reason of the owner's own
	pending, available     []*modelConn
	got                    map[int]*modelConn // by the check-outs that have them
	failed                 map[int]string
}

type modelConn struct {
	id, generation uint64
	broken         bool
	owner          int // the check-out that a pending one is for; 0: none
}

func (m *model) total() int { return len(m.pending) + len(m.available) + len(m.got) }

func (m *model) usable(c *modelConn) bool { return c.generation == m.generation && !c.broken }

// serve serves the waiters as far as possible.
func (m *model) serve() {
	for len(m.queue)+len(m.connecting) > 0 {
		switch last := len(m.available) - 1; {
		case last >= 0:
			c := m.available[last]
			m.available = m.available[:last]
			if m.usable(c) {
				m.got[m.next()] = c
			}
		case len(m.queue) == 0:
			return
		case !m.paused && !m.cooling && m.total() < m.maxSize && len(m.pending) < m.maxConnecting:
			m.create(m.first())
		case m.cooling && m.total() == 0:
			m.failed[m.first()] = "own"
		default:
			return
		}
	}
}

// first removes and returns the first check-out without a connection of its own.
func (m *model) first() int {
	n := m.queue[0]
	m.queue = m.queue[1:]
	return n
}

// next removes and returns the check-out that is served next. Its own connection, if it has one,
// is for another then.
func (m *model) next() int {
	if len(m.connecting) == 0 {
		return m.first()
	}
	n := m.connecting[0]
	for _, c := range m.pending {
		if c.owner != n {
			continue
		}
		m.disown(c)
		if len(m.queue) > 0 {
			c.owner = m.first()
			m.connecting = append(m.connecting, c.owner)
		}
	}
	return n
}

func (m *model) disown(c *modelConn) {
	m.connecting = slices.DeleteFunc(m.connecting, func(n int) bool { return n == c.owner })
	c.owner = 0
}

func (m *model) create(owner int) {
	m.lastID++
	c := &modelConn{id: m.lastID, generation: m.generation}
	m.pending = append(m.pending, c)
	if c.owner = owner; !slices.Contains(m.connecting, owner) {
		m.connecting = append(m.connecting, owner)
	}
}

// pass lets the time of a cooldown pass.
func (m *model) pass() {
	m.cooling = false
	m.serve()
}

func (m *model) checkOut(n int) {
	if m.paused {
		m.failed[n] = "cleared"
		return
	}
	m.queue = append(m.queue, n)
	m.serve()
}

func (m *model) checkIn(n int) {
	c := m.got[n]
	delete(m.got, n)
	if m.usable(c) {
		m.available = append(m.available, c)
	}
	m.serve()
}

func (m *model) cancel(n int) {
	m.failed[n] = "timeout"
	m.queue = slices.DeleteFunc(m.queue, func(w int) bool { return w == n })
	for _, c := range m.pending {
		if c.owner == n {
			m.disown(c)
		}
	}
}

// establish ends the establishment of m.pending[i].
func (m *model) establish(i int, failure string) {
	c := m.pending[i]
	m.pending = slices.Delete(m.pending, i, i+1)
	if failure == "" || failure == "own" {
		m.cooling = failure == "own"
	}
	owner := c.owner
	if failure == "" && !m.paused && c.generation != m.generation && owner != 0 {
		m.create(owner)
		m.serve()
		return
	}
	m.disown(c)
	switch {
	case failure != "" && owner != 0:
		m.failed[owner] = failure
	case failure != "":
	case m.paused && owner != 0:
		m.failed[owner] = "cleared"
	case c.generation != m.generation:
	case owner != 0:
		m.got[owner] = c
	default:
		m.available = append(m.available, c)
	}
	m.serve()
}

func (m *model) clear(interrupt bool) {
	m.generation++
	m.paused = true
	for _, n := range m.queue {
		m.failed[n] = "cleared"
	}
	m.queue = nil
	if !interrupt {
		return
	}
	for len(m.pending) > 0 {
		m.establish(0, "cleared")
	}
	for _, c := range m.got {
		c.broken = true
	}
}

// trial runs a pool and its model side by side.
type trial struct {
	*rig
	model   *model
	gates   map[uint64]chan error // of the establishments under way, by id; rig.mu guards it
	cancels map[int]context.CancelFunc
	results map[int]result // rig.mu guards it
	last    int
}

func newTrial(t *testing.T, maxSize, maxConnecting uint64) *trial {
	tr := &trial{
		model: &model{
			maxSize: int(maxSize), maxConnecting: int(maxConnecting), got: map[int]*modelConn{},
			failed: map[int]string{},
		},
		gates: map[uint64]chan error{}, cancels: map[int]context.CancelFunc{},
		results: map[int]result{},
	}
	tr.rig = newRig(t, func(c *pool.Config[*fake]) {
		c.MaxSize, c.MaxConnecting, c.Connect = &maxSize, maxConnecting, tr.connect
		c.ConnectFailed = func(_ uint64, err error) bool { return errors.Is(err, errOwn) }
	})
	return tr
}

func (tr *trial) connect(ctx context.Context, id uint64) (*fake, error) {
	gate := make(chan error)
	tr.mu.Lock()
	tr.gates[id] = gate
	tr.mu.Unlock()
	select {
	case err := <-gate:
		if err != nil {
			return nil, err
		}
		return tr.fake(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// step applies the action that a byte stands for to both, if it is possible.
func (tr *trial) step(b byte) {
	m, which := tr.model, int(b/9)
	switch b % 9 {
	case 0, 1:
		tr.checkOut()
	case 2, 3:
		if n, ok := pick(which, tr.held()); ok {
			m.checkIn(n)
			tr.CheckIn(tr.take(n))
		}
	case 4:
		if n, ok := pick(which, tr.held()); ok {
			m.got[n].broken = true
			c := tr.take(n)
			c.Resource().Interrupt(errLost)
			tr.results[n] = result{conn: c}
		}
	case 5:
		if n, ok := pick(which, slices.Concat(m.queue, m.connecting)); ok {
			m.cancel(n)
			tr.cancels[n]()
		}
	case 6, 7:
		if b%9 == 7 && which%4 == 3 {
			m.pass()
			time.Sleep(time.Second) //nolint:forbidigo // fake time
			break
		}
		if c, ok := pick(which, m.pending); ok {
			failure, err := "", error(nil)
			if b%9 == 7 && which%2 == 0 {
				err = []error{errLost, errOwn}[which/2%2]
				failure = kind(err)
			}
			m.establish(slices.Index(m.pending, c), failure)
			tr.gates[c.id] <- err
		}
	case 8:
		if m.paused {
			m.paused, m.cooling = false, false
			tr.Ready()
			tr.Deliver()
			break
		}
		m.clear(which%2 == 0)
		tr.clear(pool.ClearOptions{Cause: errLost, InterruptInUse: which%2 == 0})
	}
}

func (tr *trial) checkOut() {
	tr.last++
	n := tr.last
	ctx, cancel := context.WithCancel(tr.t.Context())
	tr.cancels[n] = cancel
	tr.model.checkOut(n)
	go func() {
		c, err := tr.CheckOut(ctx)
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.results[n] = result{c, err}
	}()
}

// take removes and returns the result of a check-out.
func (tr *trial) take(n int) *pool.Conn[*fake] {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	c := tr.results[n].conn
	delete(tr.results, n)
	return c
}

// held returns the check-outs that have a connection, in order.
func (tr *trial) held() []int { return slices.Sorted(maps.Keys(tr.model.got)) }

func pick[T any](which int, from []T) (one T, ok bool) {
	if len(from) == 0 {
		return one, false
	}
	return from[which%len(from)], true
}

// difference describes how the pool differs from its model.
func (tr *trial) difference() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	m, s := tr.model, tr.Stats()
	want := pool.Stats{
		State: pool.StateReady, Generation: m.generation,
		Total: m.total(), Available: len(m.available), InUse: len(m.got), Pending: len(m.pending),
		Waiting: len(m.queue),
		MaxSize: s.MaxSize,
	}
	if m.paused {
		want.State = pool.StatePaused
	}
	if s != want {
		return fmt.Sprintf("Stats() = %+v, want %+v", s, want)
	}
	for n := 1; n <= tr.last; n++ {
		res, ended := tr.results[n]
		switch c, failure := m.got[n], m.failed[n]; {
		case c != nil && (res.conn == nil || res.conn.ID() != c.id):
			return fmt.Sprintf("check-out %d ended with %+v, want connection %d", n, res, c.id)
		case c == nil && failure != kind(res.err):
			return fmt.Sprintf("check-out %d ended with %v, want %q", n, res.err, failure)
		case c == nil && failure == "" && ended:
			return fmt.Sprintf("check-out %d ended with connection %d, want it to wait", n,
				res.conn.ID())
		}
	}
	return ""
}

// errOwn is a failure for which ConnectFailed returns true.
var errOwn = errors.New("no credential")

func kind(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errLost):
		return "lost"
	case errors.Is(err, errOwn):
		return "own"
	case errors.Is(err, context.Canceled):
		return "timeout"
	}
	if _, ok := errors.AsType[*pool.PoolClearedError](err); ok {
		return "cleared"
	}
	return err.Error()
}

func runTrial(t *testing.T, data []byte) {
	synctest.Test(t, func(t *testing.T) {
		if len(data) == 0 {
			return
		}
		tr := newTrial(t, 1+uint64(data[0]%4), 1+uint64(data[0]/4%3))
		for i, b := range data[1:] {
			tr.step(b)
			synctest.Wait()
			if diff := tr.difference(); diff != "" {
				t.Fatalf("after step %d, %d of %v: %s", i, b%9, data, diff)
			}
		}
		tr.Close()
		for _, n := range tr.held() {
			tr.CheckIn(tr.take(n))
		}
		if s := tr.Stats(); s.Total != 0 || s.InUse != 0 || s.Waiting != 0 {
			t.Errorf("Stats() at the end = %+v, want nothing", s)
		}
		for i, f := range tr.fakes {
			if n := f.timesClosed(); n != 1 {
				t.Errorf("connection %d of %d was closed %d times", i, len(tr.fakes), n)
			}
		}
		for _, cancel := range tr.cancels {
			cancel()
		}
	})
}

// TestModel compares pools with their models over random actions.
func TestModel(t *testing.T) {
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 6))
		data := make([]byte, 60)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		runTrial(t, data)
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte{5, 0, 0, 6, 0, 2, 6, 8, 8, 0, 5})
	f.Fuzz(runTrial)
}
