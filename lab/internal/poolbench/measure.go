package poolbench

import (
	"context"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Each pool has so many turns in a scenario, each of about so much time, after one that only
// warms up and counts. The median counts: whether a queue forms, and then stays, is a matter of
// chance, so that the best turn would be luck.
const (
	turns = 15
	slice = 50 * time.Millisecond
)

// cost holds what one pool needed in a scenario.
type cost struct {
	pairs       int       // in a turn
	nanoseconds []float64 // of a pair, by turn
	allocations []float64
}

func median(samples []float64) float64 {
	return slices.Sorted(slices.Values(samples))[len(samples)/2]
}

// measure lets the pools take turns.
func (s scenario) measure(ctx context.Context, contenders []contender) ([]cost, error) {
	costs := make([]cost, len(contenders))
	for turn := range turns + 1 {
		for i, c := range contenders {
			if err := s.turn(ctx, c.lease, turn == 0, &costs[i]); err != nil {
				return nil, err
			}
		}
	}
	return costs, nil
}

// turn runs the scenario once, and in the first turn finds out how many pairs make a slice.
func (s scenario) turn(ctx context.Context, l lease, first bool, c *cost) error {
	if first {
		for c.pairs = 1000; ; c.pairs *= 2 {
			elapsed, _, err := s.run(ctx, l, c.pairs)
			if err != nil {
				return err
			}
			if elapsed > slice {
				return nil
			}
		}
	}
	elapsed, mallocs, err := s.run(ctx, l, c.pairs)
	if err != nil {
		return err
	}
	n := float64(c.pairs)
	c.nanoseconds = append(c.nanoseconds, float64(elapsed.Nanoseconds())/n)
	c.allocations = append(c.allocations, float64(mallocs)/n)
	return nil
}

// run does so many pairs, spread over the goroutines.
func (s scenario) run(ctx context.Context, l lease, pairs int) (time.Duration, uint64, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	if err := s.work(ctx, l, pairs); err != nil {
		return 0, 0, err
	}
	elapsed := time.Since(start)
	runtime.ReadMemStats(&after)
	return elapsed, after.Mallocs - before.Mallocs, nil
}

func (s scenario) work(ctx context.Context, l lease, pairs int) error {
	repeat := func() error {
		// The context of a request is its own, can be cancelled, and has a deadline.
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		for range pairs / s.goroutines {
			if err := l(ctx, s.use); err != nil {
				return err
			}
		}
		return nil
	}
	if s.goroutines == 1 {
		return repeat()
	}
	var g errgroup.Group
	for range s.goroutines {
		g.Go(repeat)
	}
	return g.Wait()
}
