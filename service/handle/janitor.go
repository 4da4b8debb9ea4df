package handle

import (
	"context"
	"sync"
	"time"
)

// killers is how many cursors the janitor kills at a time: a server that does not answer holds each of them up.
const killers = 8

// sweep removes cursors whose tokens have expired, until ctx ends.
func (r *Registry) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery(r.cfg.Idle))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			r.removeExpired(now)
		}
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
	for _, l := range []*list{&r.live, &r.past} {
		for l.first != nil && !now.Before(l.first.e.expires) {
			r.doomLocked(l.first.e)
		}
	}
}

// doomLocked removes an entry on which nobody works, for the janitor to kill.
func (r *Registry) doomLocked(e *entry) {
	r.removeLocked(e, nil)
	switch {
	case e.cur == nil || e.cur.Done(): // nothing to kill
	case e.pinned:
		r.pinned.add(e)
	default:
		r.plain.add(e)
	}
}

// doomed are removed entries that are still to be killed.
type doomed struct {
	wake chan struct{} // has a token when there are some

	mu      sync.Mutex
	entries []*entry
}

func newDoomed() doomed { return doomed{wake: make(chan struct{}, 1)} }

func (d *doomed) add(e *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, e)
	select {
	case d.wake <- struct{}{}:
	default: // it is awake
	}
}

func (d *doomed) take() []*entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries := d.entries
	d.entries = nil
	return entries
}

// killAll kills what is added, until ctx ends.
func (d *doomed) killAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		killAll(ctx, d.take())
	}
}

// killAll kills removed cursors, some at a time. Those that it has not come to when ctx ends, end on their servers by themselves.
func killAll(ctx context.Context, entries []*entry) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, killers)
	for _, e := range entries {
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
