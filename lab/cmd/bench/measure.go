package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gateway"
	"github.com/mooringdb/mooring/lab/internal/load"
	"github.com/mooringdb/mooring/lab/internal/proc"
)

// samples holds the figures of all rounds.
type samples []float64

func (s samples) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

func (s samples) least() float64 { return slices.Min(s) }
func (s samples) most() float64  { return slices.Max(s) }

// minus returns the difference of each round. The two sides of a round were measured one right
// after the other, so that what else the machine does falls out, unless it changes fast.
func (s samples) minus(other samples) samples {
	differences := make(samples, len(s))
	for i := range s {
		differences[i] = s[i] - other[i]
	}
	return differences
}

// cost holds what one side needed in a scenario.
type cost struct {
	name        string
	cpu         samples // microseconds a request
	allocations samples // a request
	rate        samples // requests a second
	p50, p99    samples // milliseconds
	peak        samples // MiB that the process has had in its turn
}

// measure lets every side of a scenario have its turns, ours first and in every other round last.
func (b *bench) measure(ctx context.Context, s scenario) ([]cost, error) {
	if slices.Contains(s.sides, b.floor) {
		if err := b.prepare(ctx, s); err != nil {
			return nil, err
		}
	}
	costs := make([]cost, len(s.sides))
	for round := range b.rounds {
		for i := range s.sides {
			if round%2 == 1 {
				i = len(s.sides) - 1 - i
			}
			side := s.sides[i]
			if round == 0 {
				if _, err := b.load(ctx, s.to(side), b.turn/4); err != nil {
					return nil, fmt.Errorf("%s: %w", side.name, err)
				}
				costs[i].name = side.name
			}
			if err := b.measureTurn(ctx, s, side, &costs[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", side.name, err)
			}
		}
	}
	return costs, nil
}

// measureTurn measures one side once. Reading the figures allocates, too, so the allocations are
// read outside, and the processor time inside.
func (b *bench) measureTurn(ctx context.Context, s scenario, side subject, c *cost) error {
	before, err := gateway.ReadVars(ctx, side.debug)
	if err != nil {
		return err
	}
	if err := proc.ResetPeakRSS(side.pid); err != nil {
		return err
	}
	start, err := proc.CPU(side.pid)
	if err != nil {
		return err
	}
	result, err := b.load(ctx, s.to(side), b.turn)
	if err != nil {
		return err
	}
	end, err := proc.CPU(side.pid)
	if err != nil {
		return err
	}
	peak, err := proc.PeakRSS(side.pid)
	if err != nil {
		return err
	}
	after, err := gateway.ReadVars(ctx, side.debug)
	if err != nil {
		return err
	}
	n := result.Requests
	if s.job.Operation == load.StreamFind {
		n /= float64(s.job.Callers) // all callers' streams are one of 100,000 documents
	}
	c.cpu = append(c.cpu, float64((end-start).Microseconds())/n)
	c.allocations = append(c.allocations, float64(after.Memory.Mallocs-before.Memory.Mallocs)/n)
	c.rate = append(c.rate, n/result.Elapsed.Seconds())
	c.p50 = append(c.p50, result.P50.Seconds()*1000)
	c.p99 = append(c.p99, result.P99.Seconds()*1000)
	c.peak = append(c.peak, float64(peak)/(1<<20))
	return nil
}

// load runs a job in a process of its own.
func (b *bench) load(ctx context.Context, job load.Job, turn time.Duration) (load.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	job.Time = turn
	text, err := json.Marshal(job)
	if err != nil {
		return load.Result{}, err
	}
	var result load.Result
	out, err := exec.CommandContext(ctx, b.self, "load", string(text)).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return result, fmt.Errorf("load: %w: %s", err, failed.Stderr)
	}
	if err != nil {
		return result, err
	}
	return result, json.Unmarshal(out, &result)
}
