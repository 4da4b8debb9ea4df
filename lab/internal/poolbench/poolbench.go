// Package poolbench measures what it costs to take a connection out of a pool and to give it
// back, beside the official driver's pool and puddle, a general one. All pools hold real
// connections to one server with canned replies on the loopback interface, on which no messages
// are sent. The pools run in one process and take turns.
package poolbench

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/mooringdb/mooring/lab/internal/canned"
)

// connections is how many a pool may have, and goroutines how many want them.
const (
	connections = 16
	goroutines  = 64
)

// lease takes a connection out, calls use while it has it, and gives it back. use may be nil.
type lease func(ctx context.Context, use func()) error

// scenario describes a way to use a pool. A rate counts pairs of check-out and check-in.
type scenario struct {
	name       string
	goroutines int
	use        func()
}

var scenarios = []scenario{
	{"alone", 1, nil},
	// Hardly any goroutine loses the processor while it has a connection, so that few have to
	// wait for one.
	{"64-over-16", goroutines, nil},
	// Each goroutine lets others run while it has a connection, as if it waited for a server. The
	// queue is never empty.
	{"64-over-16-held", goroutines, runtime.Gosched},
}

// Run measures every scenario and prints the table, then the ratios: ours divided by theirs, of
// the time where there is one goroutine (lower is better), else of the rate (higher is better).
func Run(ctx context.Context, w io.Writer) error {
	server, err := canned.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	contenders, stop, err := open(ctx, server)
	defer stop()
	if err != nil {
		return err
	}
	fmt.Fprintf(w,
		"Check-out and check-in, pools of %d connections; medians of %d turns; %s, %d "+
			"processors\n\n",
		connections, turns, runtime.Version(), runtime.NumCPU())
	fmt.Fprintf(w, "%-17s %-17s %10s %15s %14s %14s\n", "case", "pool", "ns/pair",
		"(least … most)", "pairs/s", "allocations")
	var ratios []string
	for _, s := range scenarios {
		costs, err := s.measure(ctx, contenders)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for i, c := range costs {
			each := median(c.nanoseconds)
			fmt.Fprintf(w, "%-17s %-17s %10.0f %15s %14.0f %14.2f\n", s.name, contenders[i].name,
				each,
				fmt.Sprintf("(%.0f … %.0f)", slices.Min(c.nanoseconds),
					slices.Max(c.nanoseconds)), 1e9/each, median(c.allocations))
			if contenders[i].ours {
				continue
			}
			for j, ours := range contenders[:i] {
				if ours.ours {
					ratios = append(ratios,
						s.ratio(ours, contenders[i], median(costs[j].nanoseconds)/each))
				}
			}
		}
	}
	fmt.Fprintln(w)
	for _, line := range ratios {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	return nil
}

// ratio returns a line for programs; time is ours divided by theirs.
func (s scenario) ratio(ours, theirs contender, time float64) string {
	if s.goroutines == 1 {
		return fmt.Sprintf("ratio %s-%s-time-vs-%s %.2f", ours.short, s.name, theirs.short, time)
	}
	return fmt.Sprintf("ratio %s-%s-rate-vs-%s %.2f", ours.short, s.name, theirs.short, 1/time)
}
