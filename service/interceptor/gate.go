package interceptor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/ctxwatch"
	"github.com/mooringdb/mooring/service/rpcerr"
)

var (
	// errRefused refuses calls that arrive while the gateway shuts down. The call has not run, so
	// the client may send it to another replica.
	errRefused = &rpcerr.Error{
		Reason: rpcerr.ShuttingDown, Retry: rpcerr.SameRequest,
		Message: "the gateway is shutting down",
	}
	// errCut ends calls that are still running when the time to finish is over.
	errCut = &rpcerr.Error{
		Reason:  rpcerr.ShuttingDown,
		Message: "the gateway is shutting down, and the call did not end in time",
	}
)

// cutWait is how long Drain waits for canceled calls to return. A stream first kills its cursor on
// the server.
const cutWait = 5 * time.Second

// Gate tracks the calls in flight. When the gateway shuts down, Drain waits for them and then
// cancels them. The calls are spread over shards. Each shard has a mutex over its fields, and
// nothing blocks while it is held.
type Gate struct {
	shards [16]shard
	cut    int // calls that Drain has canceled; written before Drain returns
}

type shard struct {
	mu       sync.Mutex
	calls    map[*place]struct{}
	draining bool
	empty    chan struct{} // closed when the last call leaves; nil unless Drain waits
}

// place represents one call in flight. It must not be copied.
type place struct {
	shard *shard // nil: Drain does not wait for the call
	life  ctxwatch.Child
}

// End ends the call with a cause.
func (p *place) End(cause error) { p.life.Cancel(cause) }

// NewGate returns an open gate.
func NewGate() *Gate {
	g := &Gate{}
	for i := range g.shards {
		g.shards[i].calls = map[*place]struct{}{}
	}
	return g
}

// InFlight returns the number of calls in flight.
func (g *Gate) InFlight() int {
	n := 0
	for i := range g.shards {
		s := &g.shards[i]
		s.mu.Lock()
		n += len(s.calls)
		s.mu.Unlock()
	}
	return n
}

// enter admits a call, or returns errRefused. It returns the context of the call, which Drain can
// cancel. The caller must call p.leave when the call ends. After Drain has begun, it admits only
// late calls, for which Drain does not wait.
func (g *Gate) enter(ctx context.Context, p *place, late bool) (context.Context, error) {
	s := &g.shards[rand.IntN(len(g.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining && !late {
		return nil, errRefused
	}
	p.life.Init(ctx)
	if s.draining {
		return &p.life, nil
	}
	p.shard = s
	s.calls[p] = struct{}{}
	return &p.life, nil
}

func (p *place) leave() {
	p.life.End()
	s := p.shard
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, p)
	if len(s.calls) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}

// Drain refuses new calls and blocks until those in flight have returned. If ctx ends first, it
// cancels the remaining calls and waits cutWait for them. It returns an error if a call has not
// returned by then. It may be called once.
func (g *Gate) Drain(ctx context.Context) error {
	empties := make([]chan struct{}, len(g.shards))
	for i := range g.shards {
		empties[i] = g.shards[i].close()
	}
	if waitAll(ctx, empties) {
		return nil
	}
	for i := range g.shards {
		g.cut += g.shards[i].cut()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutWait)
	defer cancel()
	if waitAll(ctx, empties) {
		return nil
	}
	return fmt.Errorf("%d calls did not return", g.InFlight())
}

// Cut returns the number of calls that Drain has canceled, after Drain has returned.
func (g *Gate) Cut() int { return g.cut }

// close refuses new calls, and returns a channel that is closed when the last call has left.
func (s *shard) close() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	empty := make(chan struct{})
	if len(s.calls) == 0 {
		close(empty)
	} else {
		s.empty = empty
	}
	return empty
}

// cut cancels the calls in flight, and returns their number.
func (s *shard) cut() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.calls {
		p.End(errCut)
	}
	return len(s.calls)
}

func waitAll(ctx context.Context, chans []chan struct{}) bool {
	for _, c := range chans {
		select {
		case <-c:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
