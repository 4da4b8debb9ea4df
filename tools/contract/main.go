// Command contract is the control of internal/contract: it switches safeguards off, one at a time,
// which it draws by a seed, and runs the experiment, which must find each. It changes no file of
// the repository: it lays the changed source over the package (go test -overlay).
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

func main() {
	seed := flag.Uint64("seed", 1, "which safeguards are drawn, and the first seed of each run")
	n := flag.Int("n", 3, "how many safeguards are switched off")
	seeds := flag.Int("seeds", 8, "how many seeds each run has")
	flag.Parse()
	if err := run(os.Stdout, *seed, *n, *seeds); err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, seed uint64, n, seeds int) error {
	dir, err := os.MkdirTemp("", "contract")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	missed := 0
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(safeguards))
	for _, i := range order[:min(n, len(order))] {
		s := safeguards[i]
		found, err := experiment(dir, s, seed, seeds)
		if err != nil {
			return err
		}
		if found == "" {
			missed++
			found = "NOT FOUND"
		}
		fmt.Fprintf(out, "without: %s\n    %s\n", s.name, found)
	}
	if missed > 0 {
		return fmt.Errorf("%d safeguards were switched off, and the contract did not notice",
			missed)
	}
	return nil
}

// violation is a line of the test about an operation that breaks the contract.
var violation = regexp.MustCompile(
	`(applied twice|told wrongly|could have gone on): .{0,160}`)

// experiment runs the contract without a safeguard, and returns what it finds first, "" if it finds
// nothing. Any other failure is an error.
func experiment(dir string, s safeguard, seed uint64, seeds int) (string, error) {
	text, err := s.without(".")
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(s.file))
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	file, err := filepath.Abs(s.file)
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return "", err
	}
	test := exec.Command("go", "test", "-count=1", "-vet=off", "-overlay", overlay,
		"-run", "TestContract", "./internal/contract")
	test.Env = append(os.Environ(), fmt.Sprintf("CONTRACT_FIRST=%d", seed),
		fmt.Sprintf("CONTRACT_SEEDS=%d", seeds))
	output, err := test.CombinedOutput()
	if err == nil {
		return "", nil
	}
	found := violation.Find(output)
	if found == nil {
		return "", fmt.Errorf("%s: %w\n%s", s.name, err, output)
	}
	return string(found), nil
}
