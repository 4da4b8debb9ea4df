// Command mutate breaks each entry of the table of topology transitions once and runs the tests of its package: for every
// entry at least one must fail, else nothing would notice if the entry were wrong. The table itself is not touched: a file
// that changes it is laid over the package (go test -overlay).
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mooringdb/mooring/core/description"
)

const (
	pkg      = "core/description"
	variable = "MOORING_MUTATE_TRANSITION"
)

// overlaid takes away an entry that exists, and removes the server where there is none. MOORING_MUTATE_TRANSITION is the
// indexes of the entry.
const overlaid = `package description

import (
	"fmt"
	"os"
)

func init() {
	var k, s int
	if n, _ := fmt.Sscan(os.Getenv("` + variable + `"), &k, &s); n < 2 {
		return
	}
	if transitions[k][s] != nil {
		transitions[k][s] = nil
	} else {
		transitions[k][s] = removeServer
	}
}
`

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tests, err := compile(dir)
	if err != nil {
		return err
	}
	if output, failed := try(tests, ""); failed {
		return fmt.Errorf("the tests fail without a mutation:\n%s", output)
	}
	var survivors []string
	count := 0
	for k := description.KindUnknown; k < description.KindLoadBalanced; k++ {
		for s := description.ServerUnknown; s < description.ServerLoadBalancer; s++ {
			count++
			verdict := "noticed"
			output, failed := try(tests, fmt.Sprint(uint8(k), " ", uint8(s)))
			if !failed {
				verdict = "NOT NOTICED"
				survivors = append(survivors, fmt.Sprintf("%v × %v", k, s))
			}
			fmt.Fprintf(out, "%-22v × %-12v %s%s\n", k, s, verdict, first(output))
		}
	}
	fmt.Fprintf(out, "%d mutations, %d noticed\n", count, count-len(survivors))
	if len(survivors) > 0 {
		return errors.New("no test fails without: " + strings.Join(survivors, ", "))
	}
	return nil
}

// compile makes the package's tests with the file laid over it.
func compile(dir string) (tests string, err error) {
	source, overlay, tests := filepath.Join(dir, "mutation.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "tests")
	target, err := filepath.Abs(filepath.Join(pkg, "mutation.go"))
	if err != nil {
		return "", err
	}
	config, err := json.Marshal(map[string]map[string]string{"Replace": {target: source}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(source, []byte(overlaid), 0o600), os.WriteFile(overlay, config, 0o600)); err != nil {
		return "", err
	}
	output, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", tests, "./"+pkg).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compile: %w\n%s", err, output)
	}
	return tests, nil
}

// try runs the tests with one entry changed, and tells whether any failed.
func try(tests, mutation string) (output string, failed bool) {
	cmd := exec.Command(tests)
	cmd.Dir = pkg
	cmd.Env = append(os.Environ(), variable+"="+mutation)
	text, err := cmd.CombinedOutput()
	return string(text), err != nil
}

// first is the first test in the output that failed, at its deepest.
func first(output string) string {
	found := ""
	for line := range strings.Lines(output) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			if found != "" && !strings.HasPrefix(name, found) {
				break
			}
			found, _, _ = strings.Cut(name, " (")
		} else if strings.HasPrefix(line, "panic:") {
			return "  (" + strings.TrimSpace(line) + ")"
		}
	}
	if found == "" {
		return ""
	}
	return "  " + found
}
