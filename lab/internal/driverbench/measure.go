package driverbench

import (
	"context"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// slice is about how long a turn takes.
const slice = 200 * time.Millisecond

// samples holds one figure of all turns, in their order.
type samples []float64

func (s samples) median() float64 { return slices.Sorted(slices.Values(s))[len(s)/2] }
func (s samples) least() float64  { return slices.Min(s) }
func (s samples) most() float64   { return slices.Max(s) }

// over divides the samples of each turn.
func (s samples) over(other samples) samples {
	out := make(samples, len(s))
	for i := range s {
		out[i] = s[i] / other[i]
	}
	return out
}

// cost holds what one driver needed in a scenario.
type cost struct {
	rate        samples // units a second
	cpu         samples // microseconds of a unit, of this process
	allocations samples // of a unit
}

// measure lets the drivers take turns. The first pair of turns warms up, and finds out how often a
// turn repeats the work: as often for one driver as for the other.
func (s scenario) measure(
	ctx context.Context, contenders []contender, rounds int,
) ([]cost, error) {
	live := make([]byte, s.heap)
	defer runtime.KeepAlive(live)
	costs := make([]cost, len(contenders))
	repeats := 1
	for _, c := range contenders {
		for {
			elapsed, err := s.run(ctx, c.driver, repeats)
			if err != nil {
				return nil, err
			}
			if elapsed > slice {
				break
			}
			repeats *= 2
		}
	}
	for range rounds {
		for i, c := range contenders {
			if err := s.turn(ctx, c.driver, repeats, &costs[i]); err != nil {
				return nil, err
			}
		}
	}
	return costs, nil
}

// turn measures one driver once.
func (s scenario) turn(ctx context.Context, d driver, repeats int, c *cost) error {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := processorTime()
	elapsed, err := s.run(ctx, d, repeats)
	if err != nil {
		return err
	}
	used := processorTime() - start
	runtime.ReadMemStats(&after)
	n := float64(repeats * s.callers * s.units)
	c.rate = append(c.rate, n/elapsed.Seconds())
	c.cpu = append(c.cpu, used.Seconds()*1e6/n)
	c.allocations = append(c.allocations, float64(after.Mallocs-before.Mallocs)/n)
	return nil
}

// run has each caller repeat the work. The context of a caller is its own, can be canceled, and
// has a deadline.
func (s scenario) run(ctx context.Context, d driver, repeats int) (time.Duration, error) {
	var g errgroup.Group
	start := time.Now()
	for range s.callers {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			for range repeats {
				if err := s.work(ctx, d); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return time.Since(start), err
}

// processorTime returns what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
