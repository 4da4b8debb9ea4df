package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
)

// summarize prints the counts of runs, the reasons for what was skipped in all of them, and what
// was not run because something is missing.
func summarize(out io.Writer, runs []result) {
	var sum result
	ran := map[test]bool{}
	for _, r := range runs {
		fmt.Fprintf(out, "%s %d passed, %d failed, %d skipped\n",
			r.Name, r.Passed, r.Failed, len(r.Skips))
		sum.Passed += r.Passed
		sum.Failed += r.Failed
		sum.Skips = append(sum.Skips, r.Skips...)
		for _, t := range r.Ran {
			ran[t] = true
		}
	}
	passed := func(s skip) bool { return ran[s.test] }
	never := slices.DeleteFunc(slices.Clone(sum.Skips), passed)
	fmt.Fprintf(out,
		"in all %d passed, %d failed, %d skipped (%d of these passed in another run)\n",
		sum.Passed, sum.Failed, len(sum.Skips), len(sum.Skips)-len(never))
	printSkips(out, never)
	for _, g := range groups(never) {
		if g.Kind == missing || g.Kind == elsewhere {
			fmt.Fprintf(out, "NOT RUN: %s: %s\n", g.Reason, g.names())
		}
	}
}

// group holds the skips that have one reason.
type group struct {
	Kind   kind
	Reason string
	tests  []test
}

// names lists the group's first tests.
func (g group) names() string {
	const most = 5
	text := ""
	for i, t := range g.tests {
		if i == most {
			return text + fmt.Sprintf(" and %d more", len(g.tests)-most)
		}
		if i > 0 {
			text += ", "
		}
		text += t.String()
	}
	return text
}

// groups sorts skips by kind and reason. A test that was skipped in several runs is there once.
func groups(skips []skip) []group {
	type key struct {
		kind   kind
		reason string
	}
	all := map[key]*group{}
	for _, s := range skips {
		k := key{s.Kind, s.Reason}
		if all[k] == nil {
			all[k] = &group{Kind: s.Kind, Reason: s.Reason}
		}
		if !slices.Contains(all[k].tests, s.test) {
			all[k].tests = append(all[k].tests, s.test)
		}
	}
	var sorted []group
	for _, k := range slices.SortedFunc(maps.Keys(all), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.reason, b.reason))
	}) {
		sorted = append(sorted, *all[k])
	}
	return sorted
}

// printSkips prints a line for each reason. The cases of specifications are only counted: make
// conformance lists their reasons.
func printSkips(out io.Writer, skips []skip) {
	cases := 0
	for _, g := range groups(skips) {
		if g.Kind == leftOut {
			cases += len(g.tests)
			continue
		}
		fmt.Fprintf(out, "skipped (%s): %d × %s: %s\n",
			cmp.Or(g.Kind, "unknown"), len(g.tests), g.Reason, g.names())
	}
	if cases > 0 {
		fmt.Fprintf(out,
			"skipped (%s): %d cases of the specifications; make conformance lists why\n",
			leftOut, cases)
	}
}
