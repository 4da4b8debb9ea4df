package bsonbench

import (
	"runtime"
	"time"
)

const (
	rounds = 15
	slice  = 10 * time.Millisecond
)

// cost is what one side needed for one task.
type cost struct {
	best        time.Duration // of one run, the least mean of a round
	allocations float64
}

// rate is in MB of BSON a second.
func (c cost) rate(t task) float64 { return float64(len(t.doc.BSON)) / 1e6 / c.best.Seconds() }

// measure lets the sides take turns. Each round is short, and the best one counts: what else the machine does is not
// what is compared.
func (t task) measure() (ours, theirs cost, err error) {
	for round := range rounds {
		if err := turn(t.ours, round, &ours); err != nil {
			return ours, theirs, err
		}
		if t.theirs == nil {
			continue
		}
		if err := turn(t.theirs, round, &theirs); err != nil {
			return ours, theirs, err
		}
	}
	return ours, theirs, nil
}

// turn runs f for a slice of time, and at least once.
func turn(f func() error, round int, c *cost) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	n, elapsed := 0, time.Duration(0)
	for batch := 1; elapsed < slice; batch = min(2*batch, 1024) {
		for range batch {
			if err := f(); err != nil {
				return err
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
	if round == 0 || each < c.best {
		c.best = each
	}
	if a := float64(after.Mallocs-before.Mallocs) / float64(n); round == 0 || a < c.allocations {
		c.allocations = a
	}
	return nil
}
