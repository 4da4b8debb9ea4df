package bsonbench

import (
	"runtime"
	"time"
)

// A side has at least so many turns of at least so much time, and more while its share of time
// lasts. A turn is long enough for the collector to work in it.
const (
	turns = 5
	slice = 3 * time.Millisecond
	share = 250 * time.Millisecond
)

// cost holds what one side needed for one task.
type cost struct {
	turns       int
	spent       time.Duration
	best        time.Duration // of all documents once, the least mean of a turn
	allocations float64
}

func (c cost) wants() bool { return c.turns < turns || c.spent < share }

// rate returns MB per second.
func (c cost) rate(t task) float64 { return float64(t.bytes) / 1e6 / c.best.Seconds() }

// measure lets the sides take turns. Each is short, and the best one counts: what else the
// machine does is not what is compared.
func (t task) measure() (ours, theirs cost, err error) {
	for ours.wants() || t.theirs != nil && theirs.wants() {
		if ours.wants() {
			if err := turn(len(t.doc.Docs), t.ours, &ours); err != nil {
				return ours, theirs, err
			}
		}
		if t.theirs != nil && theirs.wants() {
			if err := turn(len(t.doc.Docs), t.theirs, &theirs); err != nil {
				return ours, theirs, err
			}
		}
	}
	return ours, theirs, nil
}

// turn runs f with each document for a slice of time, and at least once.
func turn(docs int, f func(i int) error, c *cost) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	n, elapsed := 0, time.Duration(0)
	for batch := 1; elapsed < slice; batch = min(2*batch, 1024) {
		for range batch {
			for i := range docs {
				if err := f(i); err != nil {
					return err
				}
			}
		}
		n += batch
		elapsed = time.Since(start)
	}
	runtime.ReadMemStats(&after)
	each := elapsed / time.Duration(n)
	if each == 0 {
		each = 1
	}
	if c.turns == 0 || each < c.best {
		c.best = each
	}
	a := float64(after.Mallocs-before.Mallocs) / float64(n*docs)
	if c.turns == 0 || a < c.allocations {
		c.allocations = a
	}
	c.turns++
	c.spent += elapsed
	return nil
}
