// Command bench measures what a request costs in the gateway, beside two contenders
// (lab/internal/contender): the floor, which is the least that a gateway can do, and a thin gateway
// over the official driver. It reads processor time, from the kernel's accounting of the gateway's
// process alone, allocations, as its runtime counts them, and the process's peak of memory; the
// load generator tells how long requests take.
//
//	bench --gateway ../bin/mooring
//
// Server (canned replies), gateways and load generator are processes of their own; the roles other
// than the gateway are this program again, under another first argument. The sides take turns,
// round by round, and the table shows the median of the rounds. The documents of a stream are
// divided among the callers, and its cost is that of all; its times are those until the first
// documents. A peak is the largest of a turn, and so holds what earlier turns have left.
//
// The last lines are for machines: "ratio <case>-cpu <value>" is ours divided by the thin
// gateway's, with -vs-floor by the floor's, and with --old by another build's, which is the only
// contender then. The cases with -policy are requests with an API key to the gateway with a policy
// of 20 rules, divided by the same requests to the gateway without. Those with -traces are requests
// to a gateway that records 1 % of its traces and sends them to a collector, divided by the same
// requests to the gateway without traces. Those with -audit are an insertOne to a gateway that
// writes an audit log, divided by the same without. For all three, "difference" says what they add
// to a request: the median of the rounds' differences, the least and the most.
//
// With --full there are also the cases with 1 and 256 callers, and those that show the cost over
// documents in a page, over the size of a document and over clients. --pages makes the tables and
// plots of docs/performance.md, and the table of README.md, from a file that --results has written.
//
// Before that it measures BSON and Extended JSON beside the official driver
// (lab/internal/bsonbench; there a ratio is of rates, so more is better), pools beside those of
// others (lab/internal/poolbench), logins (lab/internal/loginbench), and core/client as a whole
// beside the official driver (lab/internal/driverbench).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/mooringdb/mooring/lab/internal/bsonbench"
	"github.com/mooringdb/mooring/lab/internal/loginbench"
	"github.com/mooringdb/mooring/lab/internal/poolbench"
)

// roles are what the program does under a first argument that is none of its flags.
var roles = map[string]func(context.Context, []string) error{
	"canned":    runCanned,
	"collector": runCollector,
	"floor":     runFloor,
	"load":      runLoad,
	"thin":      runThin,

	loginbench.Role: loginbench.Serve,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if role, ok := roles[args[0]]; ok {
			return role(ctx, args[1:])
		}
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	gateway := flags.String("gateway", "../bin/mooring", "the gateway's `binary`")
	old := flags.String("old", "", "another build's `binary`, which is the contender then")
	rounds := flags.Int("rounds", 5, "how often each side gets its turn")
	turn := flags.Duration("turn", time.Second, "how `long` a turn is")
	full := flags.Bool("full", false,
		"measure with 1 and 256 callers, too, and over growing pages, documents and clients")
	only := flags.String("only", "",
		"measure one `part` alone: bson, pool, login or driver (in this process), or gateway "+
			"(requests)")
	cases := flags.String("case", "",
		"measure only the requests whose case the regular `expression` matches")
	results := flags.String("results", "", "write the table of the requests to a `file`, too")
	pages := flags.String("pages", "",
		"measure nothing, but write the tables and plots of docs/performance.md and README.md, "+
			"below this `root`, from the results")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names, err := regexp.Compile(*cases)
	if err != nil {
		return fmt.Errorf("--case: %w", err)
	}
	if *pages != "" {
		return writePages(*pages, *results)
	}
	for _, part := range []struct {
		name string
		run  func(context.Context, io.Writer) error
	}{
		{"bson", bsonbench.Run},
		{"pool", poolbench.Run},
		{"login", loginbench.Run},
		{"driver", func(ctx context.Context, w io.Writer) error {
			return runDriver(ctx, w, *rounds)
		}},
	} {
		if *only == "" || *only == part.name {
			if err := part.run(ctx, os.Stdout); err != nil || *only == part.name {
				return err
			}
		}
	}
	b, err := newBench(ctx, *gateway, *old)
	if err != nil {
		return err
	}
	defer b.stop()
	b.rounds, b.turn, b.sweeps, b.only = *rounds, *turn, *full, names
	b.callers = []int{mainCallers}
	if *full {
		b.callers = allCallers
	}
	rows, err := b.run(ctx, os.Stdout)
	if len(rows) > 0 && *results != "" {
		err = errors.Join(err, writeResults(*results, rows))
	}
	return err
}
