package handle

import (
	"context"
	"sync"
	"time"
)

// enders is how many things are ended at a time: a server that does not answer holds each of them
// up.
const enders = 8

// sweep removes what has expired, as soon as it has, until ctx ends.
func (t *Table) sweep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-t.sooner:
		}
		t.Do(func(l *Locked) {
			l.removeExpired(time.Now())
			l.wakeAt = l.firstExpiry()
			if l.wakeAt.IsZero() {
				timer.Stop()
			} else {
				timer.Reset(time.Until(l.wakeAt))
			}
		})
	}
}

// firstExpiry returns when the next thing expires on which no call works; zero: there is
// none.
func (l *Locked) firstExpiry() time.Time {
	var first time.Time
	for _, q := range []*queue{&l.waiting, &l.over} {
		if h := q.first(); h != nil && (first.IsZero() || h.expires.Before(first)) {
			first = h.expires
		}
	}
	return first
}

// expect wakes the sweep if it would wake after that time.
func (l *Locked) expect(expires time.Time) {
	if !l.wakeAt.IsZero() && !expires.Before(l.wakeAt) {
		return
	}
	l.wakeAt = expires
	select {
	case l.sooner <- struct{}{}:
	default: // it is about to wake
	}
}

// removeExpired removes expired things on which no call works.
func (l *Locked) removeExpired(now time.Time) {
	for _, q := range []*queue{&l.waiting, &l.over} {
		for h := q.first(); h != nil && !now.Before(h.expires); h = q.first() {
			l.doom(h)
		}
	}
}

// doom removes a thing on which no call works. The table's goroutines end it.
func (l *Locked) doom(h *Handle) {
	open := h.counted
	l.Remove(h.thing, nil)
	if open { // else there is nothing to end
		l.end(h.thing, h.settled.Pinned)
	}
}

// end has the table's goroutines end a thing.
func (l *Locked) end(thing Thing, pinned bool) {
	if pinned {
		l.pinned.add(thing)
		return
	}
	l.plain.add(thing)
}

// doomed holds removed things that are still to be ended.
type doomed struct {
	wake chan struct{} // has a token when there are some

	// mu guards the field below. Nothing blocks while it is held.
	mu     sync.Mutex
	things []Thing
}

func newDoomed() doomed { return doomed{wake: make(chan struct{}, 1)} }

func (d *doomed) add(thing Thing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.things = append(d.things, thing)
	select {
	case d.wake <- struct{}{}:
	default: // it is awake
	}
}

func (d *doomed) take() []Thing {
	d.mu.Lock()
	defer d.mu.Unlock()
	things := d.things
	d.things = nil
	return things
}

// endAll ends what is added, until ctx ends. What it has not begun to end by then stays in d.
func (d *doomed) endAll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		for _, thing := range EndAll(ctx, d.take()) {
			d.add(thing)
		}
	}
}

// EndAll ends removed things, some at a time, and blocks until it has. If ctx ends, it returns the
// things that it has not begun to end. Their servers end them after a timeout.
func EndAll[T Thing](ctx context.Context, things []T) (rest []T) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, enders)
	for i, thing := range things {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return things[i:]
		}
		wg.Go(func() {
			defer func() { <-slots }()
			thing.End(ctx)
		})
	}
	return nil
}

// EndRemoved ends a removed thing, or waits until the call that works on it has: w is what
// Remove returned.
func EndRemoved(ctx context.Context, thing Thing, w *Work) error {
	if w != nil {
		return w.Wait(ctx)
	}
	thing.End(ctx)
	return nil
}
