package csv

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// EncoderOptions configures an Encoder.
type EncoderOptions struct {
	// Comma separates cells; 0 is ','.
	Comma byte
	// Mode is how columns without a type write values that have no plain text, such as documents.
	Mode extjson.Mode
	// Guard puts a ' in front of a text that a spreadsheet would run as a formula. What is read
	// back has the ', too.
	Guard bool
}

// Encoder writes documents as rows. It has one owner at a time.
type Encoder struct {
	columns []Column
	root    *node
	options EncoderOptions
	values  []bson.Value // by column
}

// NewEncoder returns an Encoder of these columns. A column cannot be within another one.
func NewEncoder(columns []Column, o EncoderOptions) (*Encoder, error) {
	root, err := treeOf(columns)
	if err != nil {
		return nil, fmt.Errorf("csv: %w", err)
	}
	if o.Comma == 0 {
		o.Comma = ','
	}
	return &Encoder{
		columns: columns, root: root, options: o, values: make([]bson.Value, len(columns)),
	}, nil
}

// AppendHeader appends the row of names.
func (e *Encoder) AppendHeader(dst []byte) []byte {
	for i := range e.columns {
		begin := e.beginCell(&dst, i)
		dst = append(dst, e.columns[i].String()...)
		dst = e.endCell(dst, begin, true)
	}
	return append(dst, '\n')
}

// AppendRow appends a document's row. A field that is not there is an empty cell, and so is null in
// a column with a type. A path leads through arrays by index. AppendRow fails, and appends nothing,
// if a value is not of its column's type, with a *literal.TypeError, or if d is malformed or a text
// of its row not UTF-8.
func (e *Encoder) AppendRow(dst []byte, d bson.Raw) ([]byte, error) {
	clear(e.values)
	if err := e.find(e.root, d); err != nil {
		return dst, err
	}
	row := dst
	for i, v := range e.values {
		begin := e.beginCell(&row, i)
		form := e.columns[i].Form
		if v.IsZero() || v.IsNull() && !form.IsAuto() && form.String() != "json()" {
			continue
		}
		out, err := form.Append(row, v, e.options.Mode)
		if err != nil {
			return dst, fmt.Errorf("column %s: %w", quoted(e.columns[i].String()), err)
		}
		row = e.endCell(out, begin, v.Type == bson.TypeString && form.String() != "json()")
	}
	return append(row, '\n'), nil
}

// find finds the values of the columns in a document, each the first of its name.
func (e *Encoder) find(in *node, d bson.Raw) error {
	it := d.Iter()
	for it.Next() {
		n := in.byName[it.Key()]
		if n == nil {
			continue
		}
		v := it.Value()
		if n.column >= 0 {
			if e.values[n.column].IsZero() {
				e.values[n.column] = v
			}
			continue
		}
		inner, ok := v.Document()
		if list, isList := v.Array(); isList {
			inner, ok = bson.Raw(list), true
		}
		if !ok {
			continue
		}
		if err := e.find(n, inner); err != nil {
			return err
		}
	}
	return it.Err()
}

// beginCell appends what is in front of a cell, and returns where it begins.
func (e *Encoder) beginCell(dst *[]byte, column int) int {
	if column > 0 {
		*dst = append(*dst, e.options.Comma)
	}
	return len(*dst)
}

// endCell puts quotes around the cell that begins here, if it needs them.
func (e *Encoder) endCell(dst []byte, begin int, isText bool) []byte {
	if isText && e.options.Guard && isFormula(dst[begin:]) {
		dst = append(dst, 0)
		copy(dst[begin+1:], dst[begin:])
		dst[begin] = '\''
	}
	cell := dst[begin:]
	if !e.needsQuotes(cell) {
		return dst
	}
	end, more := len(dst), bytes.Count(cell, []byte{'"'})+len(`""`)
	for range more {
		dst = append(dst, '"')
	}
	to := len(dst) - 1 // where the last quote is
	for from := end - 1; from >= begin; from-- {
		to--
		dst[to] = dst[from]
		if dst[from] == '"' {
			to--
			dst[to] = '"'
		}
	}
	dst[begin] = '"'
	return dst
}

// needsQuotes reports whether a reader would take a cell for something else without quotes. An
// empty one would be no value, and some remove spaces around a cell.
func (e *Encoder) needsQuotes(cell []byte) bool {
	if len(cell) == 0 {
		return true
	}
	first, last := cell[0], cell[len(cell)-1]
	return first == ' ' || first == '\t' || last == ' ' || last == '\t' ||
		bytes.HasPrefix(cell, []byte(byteOrderMark)) ||
		bytes.IndexByte(cell, e.options.Comma) >= 0 || bytes.ContainsAny(cell, "\"\r\n")
}

// isFormula reports whether a spreadsheet runs a text.
func isFormula(text []byte) bool {
	return len(text) > 0 && (strings.IndexByte("=+-@\t\r\n", text[0]) >= 0 ||
		bytes.HasPrefix(text, []byte("＝")) || bytes.HasPrefix(text, []byte("＋")) ||
		bytes.HasPrefix(text, []byte("－")) || bytes.HasPrefix(text, []byte("＠")))
}
