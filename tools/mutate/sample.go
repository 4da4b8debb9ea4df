package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	module = "github.com/mooringdb/mooring/"
	// memory limits what the tests of a mutant may map, in KiB, because a mutant may loop forever.
	memory = "12000000"
)

// sample tries mutants in the order of the seed until enough of them compiled.
func sample(o options, dir string, out io.Writer) error {
	verdicts, err := readVerdicts(o.verdicts)
	if err != nil {
		return err
	}
	all, err := everyMutant(o.packages, out)
	if err != nil {
		return err
	}
	stale := verdicts.unknown(all)
	var survivors []string
	tried, known := 0, 0
	began := time.Now()
	for _, m := range pick(o.seed, o.oneIn, all) {
		if tried == o.sample {
			break
		}
		if !o.only.MatchString(m.name) {
			continue
		}
		result, err := tryMutant(dir, m, o.timeout)
		switch {
		case err != nil:
			return err
		case result == notCompiled:
			continue
		case result == notNoticed && verdicts[m.name] != "":
			known++
			result = "equivalent"
		case result == notNoticed:
			survivors = append(survivors, m.name)
		}
		tried++
		seconds := int(time.Since(began).Seconds())
		fmt.Fprintf(out, "%4d s  %-11s %s:%d  %s\n", seconds, result, m.file, m.line, m.name)
	}
	fmt.Fprintf(out, "%d of %d mutants tried, seed %q: %d noticed, %d equivalent, %d not noticed\n",
		tried, len(all), o.seed, tried-known-len(survivors), known, len(survivors))
	if len(survivors) > 0 {
		err = fmt.Errorf("no test fails with these; add a test, or a verdict to %s:\n%s",
			o.verdicts, strings.Join(survivors, "\n"))
	}
	if len(stale) > 0 {
		err = errors.Join(err,
			fmt.Errorf("verdicts on code that does not exist:\n%s", strings.Join(stale, "\n")))
	}
	return err
}

// pkgInfo holds the fields of `go list -json` that are used.
type pkgInfo struct {
	Dir, ImportPath           string
	GoFiles                   []string
	TestGoFiles, XTestGoFiles []string
}

// everyMutant returns the mutants of all packages that have tests, and names those that have none.
func everyMutant(patterns []string, out io.Writer) ([]mutant, error) {
	listing, err := exec.Command("go", append([]string{"list", "-json"}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []mutant
	for list := json.NewDecoder(bytes.NewReader(listing)); ; {
		var p pkgInfo
		if err := list.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			fmt.Fprintf(out, "no tests: %s\n", name)
			continue
		}
		for _, file := range p.GoFiles {
			found, err := fileMutants(name, filepath.Join(p.Dir, file))
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
}

func fileMutants(pkg, path string) ([]mutant, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return mutants(pkg, filepath.Join(pkg, filepath.Base(path)), source)
}

// The results of a mutant.
const (
	notCompiled = "no compile"
	notNoticed  = "NOT NOTICED"
	noticed     = "noticed"
)

// tryMutant compiles the tests of the mutant's package and runs them until one fails.
func tryMutant(dir string, m mutant, limit time.Duration) (result string, err error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	target, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	tests, err := compile(dir, "./"+m.pkg, target, m.apply(source))
	if err != nil {
		return notCompiled, nil //nolint:nilerr // the types did not fit: no mutant
	}
	// The test program ends itself at the limit, unless it is too busy to.
	ctx, cancel := context.WithTimeout(context.Background(), limit+limit/2)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "ulimit -v "+memory+`; exec "$0" "$@"`,
		tests, "-test.failfast", "-test.timeout", limit.String())
	cmd.Dir = m.pkg
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return noticed, nil //nolint:nilerr // a failing test is the wanted result
	}
	return notNoticed, nil
}

// verdicts maps the names of known survivors to the reasons why no test can notice them.
type verdicts map[string]string

// readVerdicts reads the verdict file: two lines for each mutant, its name and the indented reason.
func readVerdicts(path string) (verdicts, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	v, name := verdicts{}, ""
	for l := range strings.Lines(string(text)) {
		trimmed := strings.TrimSpace(l)
		switch {
		case trimmed == "" || strings.HasPrefix(trimmed, "#"):
		case !strings.HasPrefix(l, " "):
			name = trimmed
			v[name] = ""
		case name == "":
			return nil, fmt.Errorf("%s: a reason without a mutant: %s", path, trimmed)
		default:
			v[name] = strings.TrimSpace(v[name] + " " + trimmed)
		}
	}
	for name, reason := range v {
		if reason == "" {
			return nil, fmt.Errorf("%s: no reason for %s", path, name)
		}
	}
	return v, nil
}

// unknown returns the verdicts on mutants of these packages that are not among them.
func (v verdicts) unknown(all []mutant) []string {
	packages, names := map[string]bool{}, map[string]bool{}
	for _, m := range all {
		packages[m.pkg], names[m.name] = true, true
	}
	var stale []string
	for name := range v {
		pkg, _, _ := strings.Cut(name, " ")
		if packages[pkg] && !names[name] {
			stale = append(stale, name)
		}
	}
	slices.Sort(stale)
	return stale
}
