// Command bench measures what a request costs in the gateway, beside a thin gateway over the
// official driver: processor time, from the kernel's accounting of the gateway's process alone,
// and allocations, as its runtime counts them.
//
//	bench --gateway ../bin/mooring
//
// Server (canned replies), gateways and load generator are processes of their own; the roles other
// than the gateway are this program again, under another first argument. The contenders take
// turns, round by round, and the table shows the median of the rounds. The last lines are for
// machines: "ratio <case> <value>", ours divided by the contender's. The cases with -policy are
// requests with an API key to the gateway with a policy of 20 rules, divided by the same requests
// to the gateway without. Those with -traces are requests to a gateway that records 1 % of its
// traces and sends them to a collector, divided by the same requests to the gateway without traces.
// That with -audit is an insertOne to a gateway that writes an audit log, divided by the same
// without. For all three, "difference" says what they add to a request: the median of the rounds'
// differences, the least and the most. With --old, the contender is another build of the gateway.
//
// Before that it measures BSON and Extended JSON beside the official driver
// (lab/internal/bsonbench; there a ratio is of rates, so more is better), pools beside those of
// others (lab/internal/poolbench), logins (lab/internal/loginbench), and core/client as a whole
// beside the official driver (lab/internal/driverbench).
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/mooringdb/mooring/lab/internal/bsonbench"
	"github.com/mooringdb/mooring/lab/internal/loginbench"
	"github.com/mooringdb/mooring/lab/internal/poolbench"
)

// roles are what the program does under a first argument that is none of its flags.
var roles = map[string]func(context.Context, []string) error{
	"canned":    runCanned,
	"collector": runCollector,
	"contender": runContender,
	"load":      runLoad,

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
	rounds := flags.Int("rounds", 5, "how often each contender gets its turn")
	scale := flags.Float64("scale", 1, "`factor` on the number of requests in a round")
	callers := flags.Int("callers", 16, "how many callers send requests at the same time")
	only := flags.String("only", "",
		"measure one `part` alone: bson, pool, login or driver (in this process), or gateway "+
			"(requests)")
	cases := flags.String("case", "",
		"measure only the requests whose case the regular `expression` matches")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names, err := regexp.Compile(*cases)
	if err != nil {
		return fmt.Errorf("--case: %w", err)
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
	b.rounds, b.scale, b.callers, b.only = *rounds, *scale, *callers, names
	return b.run(ctx, os.Stdout)
}
