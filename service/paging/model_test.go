package paging_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/paging"
)

// Clients that ask random replicas, and repeat what they have asked at random, while answers are
// lost, late and doubled on every way, and replicas are drained, killed and restarted, read each
// document once and in order, or are told by one of the named errors that they cannot. Every cursor
// ends at its end, is killed, or is known by one replica alone; only what was lost with a replica
// may stay open.
//
// MOORING_MODEL_SEEDS is the number of runs.
func TestModel(t *testing.T) {
	seeds := 40
	if n, err := strconv.Atoi(os.Getenv("MOORING_MODEL_SEEDS")); err == nil {
		seeds = n
	}
	total := map[string]int{}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t, uint64(seed))
			m.run()
			for end, n := range m.ends {
				total[end] += n
			}
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("how the readings ended: %v", total)
	if total["complete"] == 0 || total["reused"] == 0 || total["unknown"] == 0 {
		t.Errorf("the model shows little: %v", total)
	}
}

var modelNodes = []string{"a", "b", "c", "d"}

type model struct {
	*network
	chaos float64 // how bad it is

	mu   sync.Mutex // guards what follows
	rng  *rand.Rand
	ends map[string]int
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{network: newNetwork(t), rng: rand.New(rand.NewPCG(seed, 1)), ends: map[string]int{}}
	m.chaos = float64(seed%4) / 3
	for _, address := range modelNodes {
		m.startOne(address)
	}
	m.s.next = func(ctx context.Context) error {
		switch {
		case ctx.Err() != nil, m.chance(0.05):
			return &mongoerr.SelectionError{}
		}
		m.pause(500 * time.Millisecond)
		return nil
	}
	m.s.after = func() error {
		if m.chance(0.03 * m.chaos) {
			return &mongoerr.NetworkError{Sent: true, Err: io.ErrUnexpectedEOF}
		}
		return nil
	}
	m.faults = faults{
		before: m.fault(0.05), after: m.fault(0.1),
		twice: func() bool { return m.chance(0.1) },
		late: func(string, string) time.Duration {
			if !m.chance(0.05 * m.chaos) {
				return 0
			}
			return m.random(time.Minute)
		},
	}
	return m
}

func (m *model) startOne(address string) {
	m.start(address, func(c *paging.Config) {
		c.PageBytes, c.PageMemory, c.MaxPerPrincipal = 3000, 60_000, -1
	})
}

// fault delays a message, and loses it now and then; some never left.
func (m *model) fault(p float64) func(context.Context, string, string) error {
	return func(ctx context.Context, _, address string) error {
		m.pause(100 * time.Millisecond)
		switch {
		case m.chance(p * m.chaos / 2):
			return &paging.UnreachableError{Address: address, Err: errLine}
		case m.chance(p * m.chaos):
			return errLine
		case m.chance(p * m.chaos / 4): // nothing is heard for long
			timer := time.NewTimer(20 * time.Second)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			return errLine
		}
		return nil
	}
}

func (m *model) chance(p float64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.Float64() < p
}

func (m *model) pause(most time.Duration) {
	time.Sleep(m.random(most)) //nolint:forbidigo // fake time
}

func (m *model) random(most time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return 1 + time.Duration(m.rng.Int64N(int64(most)))
}

func (m *model) any() *node {
	m.mu.Lock()
	address := modelNodes[m.rng.IntN(len(modelNodes))]
	m.mu.Unlock()
	return m.node(address)
}

func (m *model) run() {
	var clients, chaos sync.WaitGroup
	stop := make(chan struct{})
	chaos.Go(func() {
		for m.chaos > 0 {
			m.pause(20 * time.Second)
			select {
			case <-stop:
				return
			default:
				m.replace()
			}
		}
	})
	for range 6 {
		clients.Go(func() {
			for range 5 {
				end := m.read()
				m.mu.Lock()
				m.ends[end]++
				m.mu.Unlock()
			}
		})
	}
	clients.Wait()
	close(stop)
	chaos.Wait()
	m.network.mu.Lock()
	m.faults = faults{}
	m.network.mu.Unlock()
	synctest.Wait()
	m.count()
}

// replace ends a replica's life, in order or not, and starts another one. Some answer still for
// long after they have drained.
func (m *model) replace() {
	life := m.any()
	if m.chance(0.7) {
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Second+m.random(10*time.Second))
		if err := life.Drain(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			m.t.Errorf("Drain() = %v", err)
		}
		cancel()
		if m.chance(0.5) {
			m.pause(time.Minute)
		}
	}
	m.crash(life.address)
	m.pause(2 * time.Second)
	m.startOne(life.address)
}

// count looks for cursors that two replicas hold, or that no replica has killed in the end.
func (m *model) count() {
	time.Sleep(4 * time.Minute) //nolint:forbidigo // fake time; what runs ends
	holders := map[int64][]string{}
	for address, life := range m.nodes {
		for id := range life.Holds() {
			holders[id] = append(holders[id], address)
		}
	}
	for id, by := range holders {
		if len(by) > 1 {
			m.t.Errorf("cursor %d is held by %v", id, by)
		}
	}
	m.s.mu.Lock()
	for id := range m.s.open {
		if len(holders[id]) == 0 && !m.mayBeLost(id) {
			m.t.Errorf("cursor %d is open, and nobody holds it", id)
		}
	}
	m.s.mu.Unlock()
	time.Sleep(2 * handle.DefaultIdle) //nolint:forbidigo // fake time
	m.s.mu.Lock()
	for id := range m.s.open {
		if !m.mayBeLost(id) {
			m.t.Errorf("cursor %d was not killed", id)
		}
	}
	m.s.mu.Unlock()
	for address, life := range m.nodes {
		if life.Len() != 0 || life.Held() != 0 || len(life.Handles(handle.Query{Limit: 1})) != 0 {
			m.t.Errorf("%s knows %d cursors, holds %d bytes", address, life.Len(), life.Held())
		}
	}
}

// client is one reading of one cursor.
type client struct {
	*model
	want, total int
	id          int64 // the server's
}

func (m *model) read() string {
	c := &client{model: m, total: 30}
	page, end := c.find()
	for end == "" {
		if end = c.take(page); end == "" {
			page, end = c.next(page.Token)
		}
	}
	return end
}

func (c *client) find() (paging.Page, string) {
	for range 100 {
		if life := c.any(); life != nil {
			page, err := life.Open(c.t.Context(), paging.Opening{Principal: "anna", Run: func(
				context.Context, int32,
			) (paging.Cursor, error) {
				cur := c.s.find(c.total, 1+rand.IntN(12), 500)
				c.id = cur.state.ID
				return c.holds(life, cur), nil
			}})
			if err == nil {
				return page, ""
			}
		}
		c.pause(time.Second)
	}
	return paging.Page{}, "never opened"
}

// take notes a page's documents.
func (c *client) take(page paging.Page) string {
	for _, doc := range page.Documents {
		v, _ := doc.Lookup("i")
		n, _ := v.Int32()
		if int(n) != c.want {
			c.t.Errorf("cursor %d: document %d, want %d", c.id, n, c.want)
			return "wrong"
		}
		c.want++
	}
	switch {
	case page.Token != "":
		return ""
	case c.want != c.total:
		c.t.Errorf("%d documents, want %d", c.want, c.total)
		return "wrong"
	default:
		return "complete"
	}
}

// next gets the page of a token: asked for at random replicas, several times at once perhaps, and
// again when the answer was lost.
func (c *client) next(token string) (paging.Page, string) {
	unknown := 0
	for {
		switch { // what comes of these is lost on the way to the client
		case c.chance(0.1):
			_, _ = c.call(token, time.Minute)
		case c.chance(0.1):
			go func() { _, _ = c.call(token, time.Minute) }()
		case c.chance(0.1):
			_, _ = c.call(token, 300*time.Millisecond)
		case c.chance(0.02): // it gives up reading
			if c.chance(0.5) {
				_ = c.any().closeFor(token)
			}
			return paging.Page{}, "given up"
		}
		page, err := c.call(token, time.Minute)
		_, none := errors.AsType[*mongoerr.SelectionError](err)
		_, broken := errors.AsType[*mongoerr.NetworkError](err)
		switch {
		case err == nil:
			return page, ""
		case errors.Is(err, paging.ErrCursorTokenReused):
			return page, "reused"
		case errors.Is(err, paging.ErrCursorPositionUnknown): // perhaps for now only
			if unknown++; unknown > 3 {
				return page, "unknown"
			}
		case none, broken, errors.Is(err, handle.ErrClosing), errors.Is(err, errGone),
			errors.Is(err, context.DeadlineExceeded):
		default:
			c.t.Errorf("cursor %d: Next = %v", c.id, err)
			return page, "wrong"
		}
		c.pause(time.Second)
	}
}

var errGone = errors.New("the replica is gone")

func (c *client) call(token string, timeout time.Duration) (paging.Page, error) {
	life := c.any()
	if life == nil {
		return paging.Page{}, errGone
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), timeout)
	defer cancel()
	if timeout < time.Second { // the client goes away
		ctx, cancel = context.WithCancel(c.t.Context())
		defer cancel()
		stop := time.AfterFunc(timeout, cancel)
		defer stop.Stop()
	}
	page, err := life.Next(ctx, paging.Asking{Principal: "anna", Token: token})
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if life.dead {
		return paging.Page{}, fmt.Errorf("%w: %w", errGone, err)
	}
	return page, err
}

func (life *node) closeFor(token string) error {
	if life == nil {
		return errGone
	}
	return life.CloseCursor(context.Background(), paging.Asking{Principal: "anna", Token: token})
}
