// Command mutate changes the product's code in one place at a time and runs the tests of the
// changed package: a change that no test notices shows what the tests do not check. It has two
// parts:
//
//   - the table of topology transitions, entry by entry;
//   - a sample of all packages: comparisons, conditions, returned errors, calls and assignments.
//
// Whether a mutant is in the sample of -one-in depends on its name and the seed alone. Code that is
// added or removed elsewhere neither adds nor removes it, so a survivor in CI is in a function that
// changed, or its test did. A sample of -n mutants takes the next one for each that disappears.
//
// It changes no file of the repository: it lays the changed source over the package (go test
// -overlay). A survivor of the sample fails the command, unless the verdict file names it with the
// reason why it is equivalent.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"
)

// options holds what the command tries.
type options struct {
	table    bool
	sample   int // how many mutants at most; below 0: no limit
	oneIn    uint64
	seed     string
	only     *regexp.Regexp
	verdicts string
	timeout  time.Duration // for the tests of one mutant
	packages []string
}

func main() {
	var o options
	flag.BoolVar(&o.table, "table", true, "try the table of topology transitions")
	flag.IntVar(&o.sample, "n", 0, "how many mutants of all packages; -1: every one")
	flag.Uint64Var(&o.oneIn, "one-in", 1, "try only the mutants of this `share`; 300: one in 300")
	flag.StringVar(&o.seed, "seed", "mooring", "what the sample depends on")
	only := flag.String("only", "", "try mutants whose names match this regular `expression`")
	flag.StringVar(&o.verdicts, "verdicts", "tools/mutate/verdicts.txt",
		"known survivors, with their reasons")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "for the tests of one mutant")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		fmt.Fprintln(os.Stderr, "mutate: -only:", err)
		os.Exit(2)
	}
	if o.oneIn == 0 {
		fmt.Fprintln(os.Stderr, "mutate: -one-in: want at least 1")
		os.Exit(2)
	}
	o.packages = flag.Args()
	if len(o.packages) == 0 {
		o.packages = []string{"./core/...", "./service/...", "./cmd/..."}
	}
	if err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(o options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if o.table {
		err = table(dir, out)
	}
	if o.sample != 0 {
		err = errors.Join(err, sample(o, dir, out))
	}
	return err
}
