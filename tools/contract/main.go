// Command contract is the control of internal/contract: it switches safeguards off, which it draws
// by a seed, one at a time or all at once, and runs the experiment, which must find each. It
// changes no file of the repository: it lays the changed source over the packages (go test
// -overlay).
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"

	"github.com/mooringdb/mooring/internal/contract/safeguard"
)

func main() {
	seed := flag.Uint64("seed", 1, "which safeguards are drawn, and the first seed of each run")
	n := flag.Int("n", 3, "how many safeguards are switched off")
	seeds := flag.Int("seeds", 8, "how many seeds each run has")
	together := flag.Bool("together", false, "switch them off at once, not one at a time")
	flag.Parse()
	c := control{out: os.Stdout, seed: *seed, seeds: *seeds}
	if err := c.run(*n, *together); err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		os.Exit(1)
	}
}

// control runs the contract without safeguards.
type control struct {
	out   io.Writer
	seed  uint64
	seeds int
	dir   string // for what is laid over the product
}

// run switches n safeguards off, which it draws, and returns an error if the contract does not find
// each.
func (c *control) run(n int, together bool) (err error) {
	if c.dir, err = os.MkdirTemp("", "contract"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(c.dir) }()
	var drawn []safeguard.Safeguard
	order := rand.New(rand.NewPCG(c.seed, 0)).Perm(len(safeguard.All))
	for _, i := range order[:min(n, len(order))] {
		drawn = append(drawn, safeguard.All[i])
	}
	if together {
		return c.without(drawn)
	}
	var missed []error
	for _, s := range drawn {
		missed = append(missed, c.without([]safeguard.Safeguard{s}))
	}
	return errors.Join(missed...)
}

// without switches safeguards off at once, and returns an error if the contract does not find each.
func (c *control) without(drawn []safeguard.Safeguard) error {
	violations, err := c.experiment(drawn)
	if err != nil {
		return err
	}
	missed := 0
	for _, s := range drawn {
		found := slices.IndexFunc(violations, s.Shows.MatchString)
		line := "NOT FOUND"
		if found >= 0 {
			line = violations[found]
		} else {
			missed++
		}
		fmt.Fprintf(c.out, "without: %s\n    %.240s\n", s.Name, line)
	}
	if missed > 0 {
		return fmt.Errorf("%d safeguards were switched off, and the contract did not notice",
			missed)
	}
	return nil
}

// violation is a line of the test about an operation that breaks the contract.
var violation = regexp.MustCompile(`(applied twice|told wrongly|could have gone on): .*`)

// experiment runs the contract without safeguards, and returns the violations that it finds. Any
// other failure is an error.
func (c *control) experiment(off []safeguard.Safeguard) ([]string, error) {
	overlay, err := safeguard.Overlay(".", c.dir, off)
	if err != nil {
		return nil, err
	}
	test := exec.Command("go", "test", "-count=1", "-vet=off", "-overlay", overlay,
		"-run", "TestContract", "./internal/contract")
	test.Env = append(os.Environ(), fmt.Sprintf("CONTRACT_FIRST=%d", c.seed),
		fmt.Sprintf("CONTRACT_SEEDS=%d", c.seeds))
	output, err := test.CombinedOutput()
	found := violation.FindAllString(string(output), -1)
	if err != nil && found == nil {
		return nil, fmt.Errorf("%w\n%s", err, output)
	}
	return found, nil
}
