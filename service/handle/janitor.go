package handle

import (
	"context"
	"sync"
	"time"
)

// killers is how many cursors the janitor kills at a time: a server that does not answer holds each of them up.
const killers = 8

// sweep kills cursors whose tokens have expired, and those for which there was no room, until ctx ends.
func (r *Registry) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery(r.cfg.Idle))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case now := <-ticker.C:
			r.removeExpired(now)
		}
		killAll(ctx, r.takeDoomed())
	}
}

// sweepEvery is often enough that a cursor outlives its token by little, and seldom enough to cost nothing.
func sweepEvery(idle time.Duration) time.Duration {
	return min(max(idle/8, 10*time.Millisecond), 15*time.Second)
}

// removeExpired dooms the expired cursors on which nobody works. They wait in the order in which they expire.
func (r *Registry) removeExpired(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.idle.first != nil && !now.Before(r.idle.first.e.expires) {
		r.doomLocked(r.idle.first.e)
	}
}

func (r *Registry) takeDoomed() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	doomed := r.doomed
	r.doomed = nil
	return doomed
}

// killAll kills removed cursors, some at a time. Those that it has not come to when ctx ends, end on their servers by themselves.
func killAll(ctx context.Context, entries []*entry) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, killers)
	for _, e := range entries {
		if e.cur == nil || e.cur.Done() { // nothing to kill
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			e.kill(ctx)
		})
	}
}
