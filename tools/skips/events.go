package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event holds a line of go test -json; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
}

// test names a test or a subtest.
type test struct{ Package, Test string }

func (t test) String() string {
	return strings.TrimPrefix(t.Package, "github.com/mooringdb/mooring/") + " " + t.Test
}

// skip names a test that was skipped, and says what the table of reasons makes of it.
type skip struct {
	test
	Reason string
	Kind   kind
}

// result holds what a run of go test has given.
type result struct {
	Name           string
	Passed, Failed int
	Skips          []skip
	Ran            []test // those that passed
}

// read reads the events of go test -json and writes what go test writes without -json and -v: a
// line for each package, and before it the output of the tests that failed. A line that is not an
// event is written as it is.
func read(events io.Reader, out io.Writer) (result, error) {
	var r result
	packages := map[string]*output{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.take(line, packages, out)
		}
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
	}
}

func (r *result) take(line string, packages map[string]*output, out io.Writer) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		_, _ = io.WriteString(out, line)
		return
	}
	if e.Action == "build-output" {
		_, _ = io.WriteString(out, e.Output)
		return
	}
	p := packages[e.Package]
	if p == nil {
		p = &output{of: map[string][]string{}}
		packages[e.Package] = p
	}
	if e.Action == "output" {
		p.add(e)
		return
	}
	if e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
		return
	}
	if e.Test == "" {
		p.print(out, e.Action == "fail")
		delete(packages, e.Package)
		return
	}
	t := test{e.Package, e.Test}
	switch e.Action {
	case "pass":
		r.Passed++
		r.Ran = append(r.Ran, t)
		p.forget(e.Test)
	case "skip":
		r.Skips = append(r.Skips, skip{test: t, Reason: reason(p.of[e.Test])})
		p.forget(e.Test)
	default:
		r.Failed++
	}
}

// output holds what a package has written: the package itself as "", and each of its tests that
// has not passed.
type output struct {
	tests []string // in the order of their first line
	of    map[string][]string
}

func (o *output) add(e event) {
	if _, seen := o.of[e.Test]; !seen {
		o.tests = append(o.tests, e.Test)
	}
	o.of[e.Test] = append(o.of[e.Test], e.Output)
}

func (o *output) forget(test string) { o.of[test] = nil }

// frame matches the lines that only go test -v writes.
var frame = regexp.MustCompile(`^\s*=== (RUN|PAUSE|CONT|NAME) `)

// print writes the package's last line and, if the package failed, what it and its tests wrote.
func (o *output) print(out io.Writer, failed bool) {
	own := o.of[""]
	if len(own) > 0 && !failed {
		_, _ = io.WriteString(out, own[len(own)-1])
	}
	if !failed {
		return
	}
	for _, test := range o.tests {
		for _, line := range o.of[test] {
			if test != "" && !frame.MatchString(line) {
				_, _ = io.WriteString(out, line)
			}
		}
	}
	for _, line := range own {
		_, _ = io.WriteString(out, line)
	}
}

// logged matches the first line of what a test logs, which begins with a file and a line.
var logged = regexp.MustCompile(`^\s+[^\s:]+\.go:\d+: (.*)\n?$`)

// reason returns the last of what a test has logged: that is what it was skipped with.
func reason(lines []string) string {
	for i, line := range slices.Backward(lines) {
		first := logged.FindStringSubmatch(line)
		if first == nil {
			continue
		}
		text := []string{first[1]}
		for _, more := range lines[i+1:] {
			if frame.MatchString(more) || strings.HasPrefix(strings.TrimSpace(more), "--- ") {
				break
			}
			text = append(text, strings.TrimSpace(more))
		}
		return strings.TrimSpace(strings.Join(text, " "))
	}
	return ""
}

// print writes the counts of a run, its skips by reason, and the skips that are errors.
func (r result) print(out io.Writer, problems []string) {
	fmt.Fprintf(out, "%s %d tests passed, %d failed, %d were skipped\n",
		r.Name, r.Passed, r.Failed, len(r.Skips))
	printSkips(out, r.Skips)
	for _, problem := range problems {
		fmt.Fprintln(out, "FAIL: skipped", problem)
	}
}
