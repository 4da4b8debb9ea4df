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

// overlaid is the source that takes away an entry that exists, and removes the server where there
// is none. MOORING_MUTATE_TRANSITION has the indexes of the entry.
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

// table breaks each entry of the table of topology transitions once. For every entry at least one
// test of the package must fail.
func table(dir string, out io.Writer) error {
	target, err := filepath.Abs(filepath.Join(pkg, "mutation.go"))
	if err != nil {
		return err
	}
	tests, err := compile(dir, "./"+pkg, target, []byte(overlaid))
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

// compile builds a package's tests with one file laid over its place and returns the program.
func compile(dir, pkg, target string, source []byte) (tests string, err error) {
	file, overlay := filepath.Join(dir, "mutation.go"), filepath.Join(dir, "overlay.json")
	config, err := json.Marshal(map[string]map[string]string{"Replace": {target: file}})
	if err != nil {
		return "", err
	}
	err = errors.Join(os.WriteFile(file, source, 0o600), os.WriteFile(overlay, config, 0o600))
	if err != nil {
		return "", err
	}
	tests = filepath.Join(dir, "tests")
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", tests, pkg)
	output, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compile: %w\n%s", err, output)
	}
	return tests, nil
}

// try runs the tests with one entry changed, and reports whether any failed.
func try(tests, mutation string) (output string, failed bool) {
	cmd := exec.Command(tests)
	cmd.Dir = pkg
	cmd.Env = append(os.Environ(), variable+"="+mutation)
	text, err := cmd.CombinedOutput()
	return string(text), err != nil
}

// first returns the first failed test in the output, at its deepest, or the panic.
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
