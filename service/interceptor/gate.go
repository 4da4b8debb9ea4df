package interceptor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mooringdb/mooring/service/rpcerr"
)

var (
	// errRefused is for calls that come while the gateway shuts down. Nothing was done: another
	// replica may do it.
	errRefused = &rpcerr.Error{Reason: rpcerr.ShuttingDown, Message: "the gateway is shutting down", Retry: rpcerr.SameRequest}
	// errCut ends calls that were running when the time to finish was over.
	errCut = &rpcerr.Error{Reason: rpcerr.ShuttingDown, Message: "the gateway is shutting down, and the call did not end in time"}
)

// cutWait is how long calls that were cut may take to return: a stream kills its cursor on the
// server first.
const cutWait = 5 * time.Second

// Gate knows the calls that are in flight, so that they can be waited for, and ended, when the
// gateway shuts down. The calls are spread over shards, each with a mutex over its fields;
// nothing blocks under it.
type Gate struct {
	shards [16]shard
}

type shard struct {
	mu       sync.Mutex
	calls    map[*admission]struct{}
	draining bool
	empty    chan struct{} // closed when the last call leaves; nil unless somebody waits
}

// admission is one call in flight. It must not be copied.
type admission struct {
	shard  *shard
	cancel context.CancelCauseFunc
}

// NewGate returns an open gate.
func NewGate() *Gate {
	g := &Gate{}
	for i := range g.shards {
		g.shards[i].calls = map[*admission]struct{}{}
	}
	return g
}

// InFlight is the number of calls that are running.
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

// enter lets a call in, or refuses it. Its context can be ended by Drain; a.leave must be called
// at its end.
func (g *Gate) enter(ctx context.Context, a *admission) (context.Context, error) {
	s := &g.shards[rand.IntN(len(g.shards))]
	inner, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		cancel(nil)
		return nil, errRefused
	}
	a.shard, a.cancel = s, cancel
	s.calls[a] = struct{}{}
	return inner, nil
}

func (a *admission) leave() {
	a.cancel(nil)
	s := a.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, a)
	if len(s.calls) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}

// Drain refuses new calls, waits for those in flight until ctx ends, then ends what is left and
// waits for that, but not long. It returns an error if some call has not returned even then. It
// is called once.
func (g *Gate) Drain(ctx context.Context) error {
	empties := make([]chan struct{}, len(g.shards))
	for i := range g.shards {
		empties[i] = g.shards[i].close()
	}
	if waitAll(ctx, empties) {
		return nil
	}
	for i := range g.shards {
		g.shards[i].cut()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutWait)
	defer cancel()
	if waitAll(ctx, empties) {
		return nil
	}
	return fmt.Errorf("%d calls did not return", g.InFlight())
}

// close lets no more calls in, and returns what is closed when the last has left.
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

func (s *shard) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.calls {
		a.cancel(errCut)
	}
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
