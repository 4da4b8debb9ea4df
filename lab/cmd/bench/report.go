package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
)

// run measures every scenario and prints the table, then the ratios. It returns the table: beside
// an error, as far as it goes.
func (b *bench) run(ctx context.Context, w io.Writer) ([]row, error) {
	if err := b.verify(ctx); err != nil {
		return nil, err
	}
	fmt.Fprintf(w,
		"%d rounds of %v, medians; %d callers unless the case says another number; %s, %d "+
			"processors; documents of %d bytes (mixed: %d) from a canned-reply server\n\n",
		b.rounds, b.turn, mainCallers, runtime.Version(), runtime.NumCPU(),
		documentSize(small), documentSize(mixed))
	fmt.Fprintf(w, "%-28s %-15s %13s %19s %13s %9s %9s %9s %11s\n", "case", "side",
		"CPU µs/request", "(least … most)", "allocs/request",
		"p50 ms", "p99 ms", "peak MiB", "requests/s")
	var rows []row
	var ratios []string
	for _, s := range b.scenarios() {
		costs, err := b.measure(ctx, s)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", s.name, err)
		}
		for i, c := range costs {
			var plain *cost
			if s.added && i == 0 {
				plain = &costs[1]
			}
			r := c.row(s.name, plain)
			fmt.Fprintf(w, "%-28s %-15s %13.1f %19s %13.1f %9.2f %9.2f %9.0f %11.0f\n", r.Case,
				r.Side, r.CPU, fmt.Sprintf("(%.1f … %.1f)", c.cpu.least(), c.cpu.most()),
				r.Allocations, r.P50, r.P99, r.Peak, c.rate.median())
			rows = append(rows, r)
		}
		ratios = append(ratios, s.ratios(costs)...)
	}
	if b.uses(b.traced) {
		if err := b.checkCollector(ctx); err != nil {
			return nil, err
		}
	}
	if b.uses(b.audited) {
		if err := b.checkAudit(); err != nil {
			return nil, err
		}
	}
	fmt.Fprintln(w)
	for _, line := range ratios {
		fmt.Fprintln(w, line)
	}
	return rows, nil
}

// uses reports whether a scenario measures a gateway.
func (b *bench) uses(side subject) bool {
	for _, s := range b.scenarios() {
		if s.sides[0] == side {
			return true
		}
	}
	return false
}

// ratios returns the lines for machines: the first side divided by each of the others.
func (s scenario) ratios(costs []cost) (lines []string) {
	ours := costs[0]
	for i, other := range costs[1:] {
		suffix := s.sides[i+1].suffix
		lines = append(lines,
			fmt.Sprintf("ratio %s-cpu%s %.3f", s.name, suffix,
				ours.cpu.median()/other.cpu.median()),
			fmt.Sprintf("ratio %s-allocs%s %.3f", s.name, suffix,
				ours.allocations.median()/other.allocations.median()))
		if s.added {
			cpu := ours.cpu.minus(other.cpu)
			lines = append(lines, fmt.Sprintf(
				"difference %s %+.1f µs (%+.1f … %+.1f) %+.1f allocations", s.name,
				cpu.median(), cpu.least(), cpu.most(),
				ours.allocations.minus(other.allocations).median()))
		}
	}
	return lines
}
