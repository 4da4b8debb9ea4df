package handle

import (
	"context"
	"time"
)

// sweep kills cursors whose tokens have expired, until ctx ends.
func (r *Registry) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery(r.cfg.Idle))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, e := range r.removeExpired(now) {
				if ctx.Err() != nil {
					return // they end on their servers by themselves
				}
				e.kill(ctx)
			}
		}
	}
}

// sweepEvery is often enough that a cursor outlives its token by little, and seldom enough to cost nothing.
func sweepEvery(idle time.Duration) time.Duration {
	return min(max(idle/8, 10*time.Millisecond), 15*time.Second)
}

// removeExpired takes the expired cursors out that nobody works on.
func (r *Registry) removeExpired(now time.Time) []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	var expired []*entry
	for _, e := range r.entries {
		if e.done == nil && !now.Before(e.expires) {
			r.removeLocked(e, nil)
			expired = append(expired, e)
		}
	}
	return expired
}
