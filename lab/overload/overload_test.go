package overload_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
)

const (
	callers  = 200
	admitted = 50 // requests a second that the server admits
	// work is how long a request takes, also one that is refused.
	work = 10 * time.Millisecond
	// sampling is the time between looks at the pool.
	sampling = 7 * time.Millisecond
	// mostAttempts is what the specification allows one operation under overload.
	mostAttempts = 3
)

var ns = client.Namespace{Database: "overload", Collection: "things"}

// server admits a number of finds each second, and refuses all others with an error that allows
// another attempt.
type server struct {
	base int32 // baseBackoffMS of the refusals; 0: they have none

	mu     sync.Mutex
	second time.Time
	left   int
	served int
}

func (s *server) answer(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
	if cmd.Name != "find" {
		return next(cmd)
	}
	if s.admits() {
		return next(cmd).After(work)
	}
	return refusal(s.base).After(work)
}

// admits spreads the requests over the second: one each 20 ms.
func (s *server) admits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := time.Now().Truncate(time.Second / admitted); slot.After(s.second) {
		s.second, s.left = slot, 1
	}
	if s.left == 0 {
		return false
	}
	s.left--
	s.served++
	return true
}

// measured is what one run came to.
type measured struct {
	succeeded, failed int
	attempts          int
	most              int     // attempts of one operation
	goodput, pressure float64 // operations that succeeded, and attempts, a second
	waiting           int     // operations between two attempts at once, at most
}

// measure has callers read as fast as they can from a server that admits few of them. While it
// runs, the connections in use are compared with the commands that are under way.
func measure(t *testing.T, base int32, duration time.Duration) (m measured) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := deployment.New(t, deployment.Single, deployment.Versions[0])
		s := &server{base: base}
		d.Disturb(s.answer)
		w := &watcher{attempts: map[int64]int{}}
		c := connect(t, d, w.sink())
		// Not a deadline: with one, the driver would fail reads that have less time than the server
		// is away, at once and again and again.
		over := make(chan struct{})
		time.AfterFunc(duration, func() { close(over) })
		var running sync.WaitGroup
		for range callers {
			running.Go(func() {
				for !isOver(over) {
					_, _, err := c.FindOne(t.Context(), ns, client.FindOptions{})
					w.ended(isOver(over), err)
				}
			})
		}
		w.sample(t, over, c)
		running.Wait()
		m = w.measured
		m.goodput = float64(m.succeeded) / duration.Seconds()
		m.pressure = float64(m.attempts) / duration.Seconds()
		t.Logf("server admitted %.1f/s; %+v", float64(s.served)/duration.Seconds(), m)
	})
	return m
}

func connect(t *testing.T, d *deployment.Deployment, sink *event.Sink) *client.Client {
	t.Helper()
	cfg, err := connstring.Parse(d.URI(true, nil) + "&maxPoolSize=200")
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Dialer: d.Dial, Sink: sink})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// watcher counts attempts and operations.
type watcher struct {
	mu       sync.Mutex
	measured measured
	attempts map[int64]int // by operation
	underWay int           // commands that were sent and not answered
}

func (w *watcher) sink() *event.Sink {
	return &event.Sink{
		CommandStarted: func(e event.CommandStarted) {
			if e.Name != "find" {
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.attempts[e.OperationID]++
			w.underWay++
			w.measured.attempts++
			w.measured.most = max(w.measured.most, w.attempts[e.OperationID])
		},
		CommandSucceeded: func(e event.CommandSucceeded) { w.answered(e.Command) },
		CommandFailed:    func(e event.CommandFailed) { w.answered(e.Command) },
	}
}

func (w *watcher) answered(e event.Command) {
	if e.Name != "find" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.underWay--
}

// ended counts an operation, unless it ended after the run.
func (w *watcher) ended(late bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case late:
	case err == nil:
		w.measured.succeeded++
	default:
		w.measured.failed++
	}
}

// isOver reports whether a channel is closed.
func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// sample compares, until over is closed, the connections in use with the commands under way. It
// looks when everything waits for time to pass: an operation that waits before another attempt
// holds no connection.
func (w *watcher) sample(t *testing.T, over <-chan struct{}, c *client.Client) {
	t.Helper()
	for !isOver(over) {
		<-time.After(sampling)
		synctest.Wait()
		inUse := 0
		for _, p := range c.Pools() {
			inUse += p.InUse
		}
		w.mu.Lock()
		underWay := w.underWay
		w.measured.waiting = max(w.measured.waiting, callers-underWay)
		w.mu.Unlock()
		if inUse > underWay {
			t.Errorf("%d connections are in use by %d commands", inUse, underWay)
			return
		}
	}
}

// TestOverload has 200 callers keep reading from a server that admits 50 requests a second.
func TestOverload(t *testing.T) {
	m := measure(t, 0, 20*time.Second)
	if m.goodput < 0.9*admitted || m.goodput > 1.1*admitted {
		t.Errorf("goodput is %.1f/s, want %d within 10 %%", m.goodput, admitted)
	}
	if m.most > mostAttempts {
		t.Errorf("an operation took %d attempts, want %d at most", m.most, mostAttempts)
	}
	if m.waiting < callers/2 {
		t.Errorf("no more than %d callers waited at once", m.waiting)
	}
	storm := measure(t, 1, 2*time.Second) // a server that asks for waits of 4 ms at most
	t.Logf("attempts: %.0f/s with backoff, %.0f/s without", m.pressure, storm.pressure)
	if storm.pressure < 5*m.pressure {
		t.Errorf("without backoff there are %.0f attempts a second, with it %.0f", storm.pressure,
			m.pressure)
	}
}
