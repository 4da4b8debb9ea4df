package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/lab/internal/plot"
)

// pages returns the files that show results, by their paths below the root of the repository.
func pages(root string, rows []row) (map[string]string, error) {
	t := table(rows)
	performance, err := replace(root, "docs/performance.md", map[string]string{
		"requests": t.requests(), "limits": t.limits(), "added": t.added(),
	})
	if err != nil {
		return nil, err
	}
	readme, err := replace(root, "README.md", map[string]string{"figures": t.figures()})
	if err != nil {
		return nil, err
	}
	files := map[string]string{"docs/performance.md": performance, "README.md": readme}
	for _, s := range sweeps {
		if files["docs/performance-"+s.name+".svg"], err = t.chart(s); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// writePages rewrites the files that show results.
func writePages(root, results string) error {
	rows, err := readResults(results)
	if err != nil {
		return err
	}
	files, err := pages(root, rows)
	if err != nil {
		return err
	}
	for path, text := range files {
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// replace returns the text of a page with new parts between their lines "<!-- name begin -->" and
// "<!-- name end -->".
func replace(root, path string, parts map[string]string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return "", err
	}
	text := string(b)
	for name, part := range parts {
		begin, end := "<!-- "+name+" begin -->\n", "<!-- "+name+" end -->\n"
		head, rest, ok := strings.Cut(text, begin)
		_, tail, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			return "", fmt.Errorf("%s lacks the lines %q and %q", path, begin, end)
		}
		text = head + begin + "\n" + part + "\n" + end + tail
	}
	return text, nil
}

// table holds all rows of the results.
type table []row

// of returns the row of one side in a case.
func (t table) of(name, side string) (row, bool) {
	i := slices.IndexFunc(t, func(r row) bool { return r.Case == name && r.Side == side })
	if i < 0 {
		return row{}, false
	}
	return t[i], true
}

// The names of the sides that the page compares.
const (
	ours  = "mooring"
	floor = "floor"
	thin  = "thin"
)

// trio holds the rows of one case.
type trio struct{ ours, floor, thin row }

func (t table) trio(name string) (all trio, ok bool) {
	var found [3]bool
	all.ours, found[0] = t.of(name, ours)
	all.floor, found[1] = t.of(name, floor)
	all.thin, found[2] = t.of(name, thin)
	return all, found == [3]bool{true, true, true}
}

// protocols are the prefixes of the cases, and their names.
var protocols = []struct{ prefix, name string }{{"rest-", "REST"}, {"grpc-", "gRPC"}}

// requests returns the tables of the requests, one for each number of callers.
func (t table) requests() string {
	var b strings.Builder
	for _, callers := range allCallers {
		title := fmt.Sprintf("### %d callers\n\n", callers)
		if callers == 1 {
			title = "### One caller\n\n"
		}
		if _, ok := t.trio(protocols[0].prefix + requests[0].name + callersSuffix(callers)); !ok {
			continue // not a full run
		}
		b.WriteString(title + "| | CPU: floor | thin | Mooring | : floor | : thin | " +
			"allocations: floor, thin, Mooring | p50, p99: floor | Mooring | " +
			"peak: floor, thin, Mooring |\n|---|---|---|---|---|---|---|---|---|---|\n")
		for _, p := range protocols {
			for _, r := range requests {
				c, ok := t.trio(p.prefix + r.name + callersSuffix(callers))
				if !ok {
					continue
				}
				fmt.Fprintf(&b, "| %s %s | %s | %s | %s | %.2f | %.3f | %s, %s, %s | %s | %s | "+
					"%.0f, %.0f, %.0f MiB |\n", p.name, r.text, micro(c.floor.CPU),
					micro(c.thin.CPU), micro(c.ours.CPU), c.ours.CPU/c.floor.CPU,
					c.ours.CPU/c.thin.CPU, count(c.floor.Allocations), count(c.thin.Allocations),
					count(c.ours.Allocations), times(c.floor), times(c.ours),
					c.floor.Peak, c.thin.Peak, c.ours.Peak)
			}
		}
		b.WriteByte('\n')
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// limits says how far each request is from the floor.
func (t table) limits() string {
	bounds := []struct {
		below float64
		text  string
	}{
		{1.5, "Near the limit, at most 1.5 times the floor"},
		{3, "Up to 3 times the floor"},
		{1e9, "Farther away"},
	}
	names := make([][]string, len(bounds))
	for _, p := range protocols {
		for _, r := range requests {
			c, ok := t.trio(p.prefix + r.name)
			if !ok {
				continue
			}
			ratio := c.ours.CPU / c.floor.CPU
			i := 0
			for ratio > bounds[i].below {
				i++
			}
			names[i] = append(names[i], fmt.Sprintf("%s %s (%.1f)", p.name, r.text, ratio))
		}
	}
	var b strings.Builder
	for i, n := range names {
		text := "none"
		if len(n) > 0 {
			text = strings.Join(n, "; ")
		}
		fmt.Fprintf(&b, "- %s: %s.\n", bounds[i].text, text)
	}
	return wrap(b.String())
}

// added returns the table of what a policy, traces and an audit log add.
func (t table) added() string {
	var b strings.Builder
	b.WriteString("| | CPU | allocations |\n|---|---|---|\n")
	for _, r := range t {
		if r.More != nil {
			fmt.Fprintf(&b, "| %s, %s | %+.1f µs | %+.1f |\n", r.Case, r.Side, r.More.CPU,
				r.More.Allocations)
		}
	}
	return b.String()
}

// figures returns the table of the README.
func (t table) figures() string {
	var b strings.Builder
	b.WriteString("| CPU for each request | floor | Mooring | thin gateway |\n|---|---|---|---|\n")
	for _, name := range []string{
		"rest-find-one", "rest-find-100", "rest-insert-100", "grpc-find-one", "grpc-find-100",
	} {
		c, ok := t.trio(name)
		if !ok {
			continue
		}
		protocol, rest := "REST", strings.TrimPrefix(name, "rest-")
		if after, ok := strings.CutPrefix(name, "grpc-"); ok {
			protocol, rest = "gRPC", after
		}
		i := slices.IndexFunc(requests, func(r request) bool { return r.name == rest })
		fmt.Fprintf(&b, "| %s %s | %s | %s | %s |\n", protocol, requests[i].text,
			micro(c.floor.CPU), micro(c.ours.CPU), micro(c.thin.CPU))
	}
	return b.String()
}

// chart draws the processor time of a sweep.
func (t table) chart(s sweep) (string, error) {
	chart := plot.Chart{X: s.axis, Y: "CPU for each request, µs"}
	for _, side := range []struct{ name, color string }{
		{thin, "#b03030"}, {ours, "#2050a0"}, {floor, "#308030"},
	} {
		for _, p := range protocols {
			line := plot.Line{Name: side.name + ", " + p.name, Color: side.color}
			if p.prefix == "grpc-" {
				line.Name += " (dashed)"
				line.Dash = "6 4"
			}
			for _, n := range s.values {
				if r, ok := t.of(p.prefix+s.caseName(n), side.name); ok && r.CPU > 0 {
					line.Points = append(line.Points, plot.Point{X: float64(n), Y: r.CPU})
				}
			}
			if len(line.Points) == 0 {
				return "", fmt.Errorf("no results of %s%s by %s", p.prefix, s.name, side.name)
			}
			chart.Lines = append(chart.Lines, line)
		}
	}
	return chart.SVG(), nil
}

// micro writes a time of so many microseconds.
func micro(n float64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%.0f µs", n)
	case n < 100_000:
		return fmt.Sprintf("%.1f ms", n/1000)
	}
	return fmt.Sprintf("%.0f ms", n/1000)
}

// count writes a number with three digits or more, and with groups of thousands.
func count(n float64) string {
	text := fmt.Sprintf("%.0f", n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func times(r row) string { return fmt.Sprintf("%.1f, %.1f ms", r.P50, r.P99) }

// wrap breaks the lines of a list before column 100.
func wrap(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		column := 0
		for i, word := range strings.Fields(line) {
			switch n := len([]rune(word)); {
			case i == 0:
				column = n
			case column+1+n >= 100:
				b.WriteString("\n  ")
				column = 2 + n
			default:
				b.WriteByte(' ')
				column += 1 + n
			}
			b.WriteString(word)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
