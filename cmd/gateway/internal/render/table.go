package render

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"

	"github.com/mooringdb/mooring/core/bson"
)

const (
	// sample is how many documents the columns and their widths come from.
	sample = 200
	// gap stands between two columns.
	gap = "  "
	// narrowest is what a column is shortened to before columns are left out.
	narrowest = 8
	// longest is how wide a cell is at most, so that the rows which a table holds have a bound.
	longest = 1000
	// widest is how wide a cell is where the width is limited and there is room.
	widest = 60
)

// table writes an aligned table. Its columns are the fields of the first documents, which it holds
// until it knows them.
type table struct {
	w       *bufio.Writer
	width   int
	pending [][]cell
	columns []column
	index   map[string]int // of columns, by name
	left    []string       // the columns for which there is no room
	isBegun bool
	rows    int
}

// cell holds the text of a field of a document.
type cell struct {
	column int
	text   string
}

type column struct {
	name      string
	width     int
	isNumeric bool
}

func newTable(w io.Writer, o Options) Writer {
	return &table{
		w: bufio.NewWriterSize(w, bufferSize), width: o.Width, index: map[string]int{},
	}
}

func (t *table) Write(doc bson.Raw) error {
	t.rows++
	var row []cell
	for key, v := range doc.All() {
		at, ok := t.index[key]
		if !ok && t.isBegun {
			t.leaveOut(key)
			continue
		}
		if !ok {
			at = len(t.columns)
			t.index[key] = at
			name := Plain(key)
			t.columns = append(t.columns, column{name, uniseg.StringWidth(name), true})
		}
		text := Text(v)
		if len(text) > longest {
			text = shorten(text, longest)
		}
		if !t.isBegun && !isNumber(v) {
			t.columns[at].isNumeric = false
		}
		row = append(row, cell{at, text})
	}
	if t.isBegun {
		return t.row(row)
	}
	for _, c := range row {
		of := &t.columns[c.column]
		of.width = max(of.width, uniseg.StringWidth(c.text))
	}
	if t.pending = append(t.pending, row); len(t.pending) < sample {
		return nil
	}
	return t.begin()
}

// begin writes the heading, and the documents that are held.
func (t *table) begin() error {
	t.isBegun = true
	t.fit()
	heading, rule := make([]cell, len(t.columns)), make([]cell, len(t.columns))
	for i, c := range t.columns {
		heading[i] = cell{i, c.name}
		rule[i] = cell{i, strings.Repeat("─", c.width)}
	}
	for _, row := range append([][]cell{heading, rule}, t.pending...) {
		if err := t.row(row); err != nil {
			return err
		}
	}
	t.pending = nil
	return nil
}

// fit shortens the widest columns until the table has its width, and leaves out the last columns if
// that is not enough.
func (t *table) fit() {
	if t.width <= 0 {
		return
	}
	for i := range t.columns {
		if len(t.columns) > 1 {
			t.columns[i].width = min(t.columns[i].width, widest)
		}
	}
	for t.total() > t.width {
		most := slices.MaxFunc(t.columns, func(a, b column) int { return a.width - b.width })
		at := slices.Index(t.columns, most)
		last := len(t.columns) - 1
		switch {
		case most.width > narrowest || last == 0 && most.width > 1:
			t.columns[at].width--
			continue
		case last == 0:
			return
		}
		t.leaveOut(t.columns[last].name)
		t.columns = t.columns[:last]
	}
}

// isNumber reports whether a value can stand in a column that is aligned to the right.
func isNumber(v bson.Value) bool {
	_, ok := v.AsDouble()
	return ok || v.Type == bson.TypeDecimal128 || v.IsNull()
}

func (t *table) total() int {
	sum := (len(t.columns) - 1) * len(gap)
	for _, c := range t.columns {
		sum += c.width
	}
	return sum
}

// mostLeft is how many columns that were left out are named.
const mostLeft = 20

func (t *table) leaveOut(name string) {
	if len(t.left) < mostLeft && !slices.Contains(t.left, name) {
		t.left = append(t.left, name)
	}
}

// row writes a line.
func (t *table) row(row []cell) error {
	var b strings.Builder
	texts := make([]string, len(t.columns))
	for _, c := range row {
		if c.column < len(texts) {
			texts[c.column] = c.text
		}
	}
	for i, c := range t.columns {
		if i > 0 {
			b.WriteString(gap)
		}
		text := shorten(texts[i], c.width)
		space := strings.Repeat(" ", max(0, c.width-uniseg.StringWidth(text)))
		if c.isNumeric {
			b.WriteString(space + text)
		} else {
			b.WriteString(text + space)
		}
	}
	_, err := t.w.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	return err
}

// shorten returns the beginning of a text that is too wide, with an ellipsis.
func shorten(text string, width int) string {
	if uniseg.StringWidth(text) <= width {
		return text
	}
	var b strings.Builder
	used, clusters := 0, uniseg.NewGraphemes(text)
	for clusters.Next() && used+clusters.Width() < width {
		used += clusters.Width()
		b.WriteString(clusters.Str())
	}
	return b.String() + "…"
}

func (t *table) Flush() error { return t.w.Flush() }

// Close writes the last rows, and what a table cannot show.
func (t *table) Close() error {
	if t.rows == 0 {
		_, _ = t.w.WriteString("no documents\n") // Flush returns the error
		return t.w.Flush()
	}
	if !t.isBegun {
		if err := t.begin(); err != nil {
			return err
		}
	}
	if len(t.left) > 0 {
		slices.Reverse(t.left)
		fmt.Fprintf(t.w, "not shown: %s (--output ndjson shows all)\n",
			Plain(strings.Join(t.left, ", ")))
	}
	return t.w.Flush()
}

// isControl reports whether a character could control a terminal, or turn the direction of a text.
// Joiners, which emoji have, do neither.
func isControl(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != nonJoiner && r != joiner
}
