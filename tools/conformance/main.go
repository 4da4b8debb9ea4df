// Command conformance runs every test of this module that walks the MongoDB specifications' own
// files, and prints a table of suites, files and cases, then the files that no runner walks yet.
// Its last line is `N passed, N failed, N skipped`. It exits 1 if a case fails, if the tests do
// not run to their end, if a file has no runner and is not listed as not built yet, or if there
// are no specifications. With -without it accepts that there are none.
//
// The folder with the specifications' tests is SPECIFICATIONS_DIR, or shared/specifications beside
// the checkout.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/mooringdb/mooring/internal/spectest"
)

// runnersImport is the package that every runner imports in its tests.
const runnersImport = "github.com/mooringdb/mooring/internal/spectest"

func main() {
	verbose := flag.Bool("v", false, "list every skipped case with its reason")
	without := flag.Bool("without", false,
		"succeed without running anything if there are no specifications")
	full := flag.Bool("full", false, "run the suites of lab as well (MOORING_TEST_URI)")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(),
			"usage: conformance [-v] [-without] [-full]\n\nRuns the specifications' own tests and "+
				"prints a table.\nSPECIFICATIONS_DIR names their folder.")
		flag.PrintDefaults()
	}
	flag.Parse()

	root, ok := spectest.Root()
	if !ok && *without {
		//nolint:forbidigo // a command prints
		fmt.Println("no specifications, as -without says: nothing was run")
		return
	}
	if !ok {
		fmt.Fprintln(os.Stderr,
			"conformance: there are no specifications: set SPECIFICATIONS_DIR, or say so with "+
				"-without")
		os.Exit(1)
	}
	if *full && os.Getenv("MOORING_TEST_URI") == "" {
		fmt.Fprintln(os.Stderr, "conformance: -full needs MOORING_TEST_URI, a MongoDB server")
		os.Exit(1)
	}
	failed, err := run(os.Stdout, root, *verbose, *full)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
	if failed {
		os.Exit(1)
	}
}

func run(out io.Writer, root string, verbose, full bool) (failed bool, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return false, err
	}
	paths, err := spectest.Walk(root)
	if err != nil {
		return false, err
	}
	runners, err := runners()
	if err != nil {
		return false, err
	}
	log, err := os.CreateTemp("", "mooring-conformance-*.log")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(log.Name()) }()
	defer log.Close()

	env := append(os.Environ(), "MOORING_CONFORMANCE_LOG="+log.Name(), "SPECIFICATIONS_DIR="+root)
	output, testErr := runTests(env, ".", runners...)
	if full {
		labOutput, labErr := runTests(env, "lab", "./conformance")
		output, testErr = append(output, labOutput...), errors.Join(testErr, labErr)
	}
	cases, err := readCases(log)
	if err != nil {
		return false, err
	}
	cases = once(cases)
	total := report(out, cases, verbose)
	files, hasCase := make([]string, len(paths)), map[string]bool{}
	for i, path := range paths {
		files[i] = spectest.Relative(root, path)
	}
	for _, c := range cases {
		hasCase[c.file] = true
	}
	w := compare(files, hasCase)
	w.report(out)
	if testErr != nil {
		fmt.Fprintf(out, "%s\n", output)
	}
	if testErr != nil && total.failed == 0 {
		fmt.Fprintf(out, "the tests did not run to their end (%v); that counts as a failure\n",
			testErr)
		total.failed = 1
	}
	if total.cases() == 0 {
		fmt.Fprintf(out, "no case was run, though %s is there; that counts as a failure\n", root)
		total.failed = 1
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", total.passed, total.failed,
		total.skipped)
	return total.failed > 0 || len(w.errors) > 0, nil
}

// runTests runs the tests of packages of the module in a directory.
func runTests(env []string, dir string, packages ...string) ([]byte, error) {
	test := exec.Command("go", append([]string{"test", "-count=1"}, packages...)...)
	test.Dir, test.Env = dir, env
	return test.CombinedOutput()
}

// report prints what is not built yet, by row, and the errors.
func (w walked) report(out io.Writer) {
	for _, row := range slices.Sorted(maps.Keys(w.missing)) {
		fmt.Fprintf(out, "not built yet: %s*: %d files need %s\n", row, len(w.missing[row]),
			notBuilt[row])
	}
	for _, problem := range w.errors {
		fmt.Fprintf(out, "FAILED %s\n", problem)
	}
}

// runners lists the packages whose tests import spectest.
func runners() ([]string, error) {
	list := exec.Command("go", "list", "-f",
		`{{.ImportPath}} {{join .TestImports ","}},{{join .XTestImports ","}}`, "./...")
	list.Stderr = os.Stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []string
	for line := range strings.Lines(string(output)) {
		path, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.Contains(strings.Split(imports, ","), runnersImport) {
			packages = append(packages, path)
		}
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("no package tests with %s", runnersImport)
	}
	return packages, nil
}

// specCase represents one line of the log that spectest writes.
type specCase struct{ suite, file, name, result, reason string }

func readCases(r io.Reader) ([]specCase, error) {
	var cases []specCase
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		field := bytes.SplitN(lines.Bytes(), []byte("\t"), 5)
		if len(field) < 4 {
			return nil, fmt.Errorf("conformance log: %q is not a case", lines.Text())
		}
		c := specCase{
			suite: string(field[0]), file: string(field[1]), name: string(field[2]),
			result: string(field[3]),
		}
		if len(field) == 5 {
			c.reason = string(field[4])
		}
		cases = append(cases, c)
	}
	return cases, lines.Err()
}

// once returns each case once. Of several results it keeps the failure, else the success.
func once(cases []specCase) []specCase {
	rank := map[string]int{"fail": 2, "pass": 1}
	type key struct{ suite, file, name string }
	places := map[key]int{}
	var all []specCase
	for _, c := range cases {
		k := key{c.suite, c.file, c.name}
		i, seen := places[k]
		switch {
		case !seen:
			places[k] = len(all)
			all = append(all, c)
		case rank[c.result] > rank[all[i].result]:
			all[i] = c
		}
	}
	return all
}

// tally counts the cases of one suite.
type tally struct {
	files                   map[string]bool
	passed, failed, skipped int
}

func (t *tally) cases() int { return t.passed + t.failed + t.skipped }

func (t *tally) count(c specCase) {
	if t.files == nil {
		t.files = map[string]bool{}
	}
	t.files[c.file] = true
	switch c.result {
	case "pass":
		t.passed++
	case "skip":
		t.skipped++
	default:
		t.failed++
	}
}

// report prints the table and the reasons for what was skipped, and returns the sum.
func report(out io.Writer, cases []specCase, verbose bool) tally {
	suites := map[string]*tally{}
	reasons := map[[2]string]int{}
	var total tally
	for _, c := range cases {
		if suites[c.suite] == nil {
			suites[c.suite] = &tally{}
		}
		suites[c.suite].count(c)
		total.count(c)
		if c.result == "skip" {
			reasons[[2]string{c.suite, c.reason}]++
		}
	}

	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "suite\tfiles\tcases\tpassed\tfailed\tskipped")
	for _, name := range slices.Sorted(maps.Keys(suites)) {
		s := suites[name]
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\n", name, len(s.files), s.cases(), s.passed,
			s.failed, s.skipped)
	}
	_ = table.Flush() // out is a terminal or a pipe

	for _, key := range slices.SortedFunc(maps.Keys(reasons), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	}) {
		fmt.Fprintf(out, "skipped in %s: %d × %s\n", key[0], reasons[key], key[1])
	}
	for _, c := range cases {
		if c.result == "fail" {
			fmt.Fprintf(out, "FAILED %s: %s: %s\n", c.suite, c.file, c.name)
		}
		if verbose && c.result == "skip" {
			fmt.Fprintf(out, "skipped %s: %s: %s: %s\n", c.suite, c.file, c.name, c.reason)
		}
	}
	return total
}
