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
}

// measure lets every side of a scenario have its turns, ours first and in every other round last.
func (b *bench) measure(ctx context.Context, s scenario) ([]cost, error) {
	sides := append([]subject{s.side}, s.contenders...)
	costs := make([]cost, len(sides))
	for round := range b.rounds {
		for i := range sides {
			if round%2 == 1 {
				i = len(sides) - 1 - i
			}
			side := sides[i]
			if round == 0 {
				if _, err := b.load(ctx, s.job(side), warmUp); err != nil {
					return nil, fmt.Errorf("%s: %w", side.name, err)
				}
				costs[i].name = side.name
			}
			if err := b.turn(ctx, s, side, &costs[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", side.name, err)
			}
		}
	}
	return costs, nil
}

// turn measures one side once. Reading the figures allocates, too, so the allocations are read
// outside, and the processor time inside.
func (b *bench) turn(ctx context.Context, s scenario, side subject, c *cost) error {
	before, err := gateway.ReadVars(ctx, side.debug)
	if err != nil {
		return err
	}
	start, err := proc.CPU(side.pid)
	if err != nil {
		return err
	}
	result, err := b.load(ctx, s.job(side), s.requests)
	if err != nil {
		return err
	}
	end, err := proc.CPU(side.pid)
	if err != nil {
		return err
	}
	after, err := gateway.ReadVars(ctx, side.debug)
	if err != nil {
		return err
	}
	n := float64(b.scaled(s.requests))
	c.cpu = append(c.cpu, float64((end-start).Microseconds())/n)
	c.allocations = append(c.allocations, float64(after.Memory.Mallocs-before.Memory.Mallocs)/n)
	c.rate = append(c.rate, n/result.Elapsed.Seconds())
	return nil
}

func (b *bench) scaled(requests int) int { return max(1, int(float64(requests)*b.scale)) }

// load runs a job in a process of its own.
func (b *bench) load(ctx context.Context, job load.Job, requests int) (load.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	job.Requests, job.Callers = b.scaled(requests), b.callers
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
