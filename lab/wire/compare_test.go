package wire_test

import (
	_ "embed"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// difference is a field that another driver sends otherwise than Mooring's.
type difference struct {
	driver, operation, command, field string
	mooring, other                    string // absent: the field is not there
}

const absent = "—"

func (d difference) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", d.driver, d.operation, d.command, d.field,
		d.mooring, d.other)
}

// compare returns the differences between Mooring's recording and that of another driver. Where
// drivers send other commands for an operation, that is the one difference.
func compare(driver string, operations []string, mooring, other recording) []difference {
	var all []difference
	for _, name := range operations {
		mine, theirs := mooring[name], other[name]
		d := difference{driver: driver, operation: name}
		if names(mine) != names(theirs) {
			d.command, d.field, d.mooring, d.other = "", "(commands)", names(mine), names(theirs)
			all = append(all, d)
			continue
		}
		for i := range mine {
			all = append(all, d.fields(mine[i], theirs[i])...)
		}
	}
	return all
}

// names returns the names of commands, in their order.
func names(commands []command) string {
	if commands == nil {
		return absent
	}
	var all []string
	for _, c := range commands {
		all = append(all, c.name)
	}
	return strings.Join(all, ", ")
}

func (d difference) fields(mine, theirs command) (all []difference) {
	d.command = mine.name
	paths := slices.Collect(maps.Keys(mine.fields))
	paths = slices.AppendSeq(paths, maps.Keys(theirs.fields))
	slices.Sort(paths)
	for _, d.field = range slices.Compact(paths) {
		d.mooring, d.other = orAbsent(mine.fields, d.field), orAbsent(theirs.fields, d.field)
		if d.mooring != d.other {
			all = append(all, d)
		}
	}
	return all
}

func orAbsent(fields map[string]string, path string) string {
	if v, ok := fields[path]; ok {
		return v
	}
	return absent
}

//go:embed differences.md
var differences string

// explanation is a row of differences.md: patterns for the fields of a difference, and why it is.
type explanation struct {
	patterns [6]string
	why      string
	embedded bool // only the embedded database causes the difference
	// sometimes says that the difference is not there in each run of the test.
	sometimes bool
	used      bool
}

// explanations reads the table. Its rows have seven columns; "*" stands for any text.
func explanations(t *testing.T, text string) []*explanation {
	t.Helper()
	var all []*explanation
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 7 {
			t.Fatalf("%d columns: %s", len(cells), line)
		}
		e := &explanation{}
		for i, cell := range cells {
			cell = strings.Trim(strings.TrimSpace(cell), "`")
			if i < len(e.patterns) {
				e.patterns[i] = cell
			} else {
				e.why = cell
			}
		}
		if e.patterns[0] == "driver" || strings.HasPrefix(e.patterns[0], "-") {
			continue // the table's head
		}
		e.embedded = strings.HasPrefix(e.why, "embedded: ")
		e.sometimes = strings.HasPrefix(e.why, "sometimes: ")
		if e.why == "" {
			t.Errorf("there is no reason: %s", line)
		}
		all = append(all, e)
	}
	return all
}

// explains reports whether the row is about a difference. Where both values of the row end with "="
// they are about the same number in two types.
func (e *explanation) explains(d difference) bool {
	if mine, ok := strings.CutSuffix(e.patterns[4], "="); ok {
		theirs := strings.TrimSuffix(e.patterns[5], "=")
		same := strings.TrimPrefix(d.mooring, mine) == strings.TrimPrefix(d.other, theirs)
		if !same || !strings.HasPrefix(d.mooring, mine) || !strings.HasPrefix(d.other, theirs) {
			return false
		}
		return (&explanation{patterns: [6]string{
			e.patterns[0], e.patterns[1], e.patterns[2], e.patterns[3], "*", "*",
		}}).explains(d)
	}
	for i, value := range []string{
		d.driver, d.operation, d.command, d.field, d.mooring, d.other,
	} {
		if !matches(e.patterns[i], value) {
			return false
		}
	}
	return true
}

// matches compares a text with a pattern of alternatives, which may have stars.
func matches(pattern, text string) bool {
	// path.Match's star does not match a slash.
	escape := strings.NewReplacer("/", "\x00", "[", "\x01", "\\", "\x02")
	for alternative := range strings.SplitSeq(pattern, " or ") {
		ok, err := path.Match(escape.Replace(alternative), escape.Replace(text))
		if ok && err == nil {
			return true
		}
	}
	return false
}
