package csv

import (
	"errors"
	"io"
	"strconv"
	"unsafe"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// Options configures a Decoder. The zero value is for files with names in their first row.
type Options struct {
	// Comma separates cells; 0 is ','. It is a byte of ASCII, and neither a quote nor the end of a
	// line.
	Comma byte
	// MaxRow is the length of the longest row in bytes; 0 is bson.MaxDocumentSize.
	MaxRow int
	// Columns are those of a file without names. If they are nil, the first row has the names.
	Columns []Column
	// Memory, if set, provides the buffers that become large: that of rows, which the Decoder
	// keeps, and those of documents.
	Memory bson.Memory
}

func (o *Options) comma() byte {
	if o.Comma == 0 {
		return ','
	}
	return o.Comma
}

// Decoder reads rows as documents. It has one owner at a time.
type Decoder struct {
	scan    *scanner
	columns []Column
	root    *node
	leaves  []*node // by column
	rows    uint64
	most    int
	build   bson.Builder
	memory  bson.Memory
	err     error // nothing follows it
}

// NewDecoder returns a Decoder that reads from r. It reads ahead.
func NewDecoder(r io.Reader, o Options) *Decoder {
	d := &Decoder{
		scan: newScanner(r, o), columns: o.Columns, most: o.MaxRow, memory: o.Memory,
	}
	if d.most == 0 {
		d.most = bson.MaxDocumentSize
	}
	switch c := d.scan.comma; {
	case c == '"', c == '\r', c == '\n', c >= 0x80:
		d.err = errors.New("csv: " + strconv.QuoteRune(rune(c)) + " cannot separate cells")
	case o.Columns != nil:
		d.plant()
	}
	return d
}

// plant makes the fields of the columns.
func (d *Decoder) plant() {
	if d.root, d.err = treeOf(d.columns); d.err == nil {
		d.leaves = d.root.leaves(make([]*node, len(d.columns)))
		d.scan.most = len(d.columns) + 1
	}
}

// Columns returns the columns. If it has not been done before, it reads the first row. Its errors
// are an *Error, which is fatal, and that of the reader.
func (d *Decoder) Columns() ([]Column, error) {
	if d.root == nil && d.err == nil {
		d.columns, d.err = d.scan.columns()
		if d.err == nil {
			d.plant()
		}
	}
	if d.root == nil {
		return nil, d.err
	}
	return d.columns, nil
}

// Next reads the next row that has a value, and appends its document to dst. The document is what
// was appended. It returns io.EOF after the last row, an *Error, or the error of the reader or the
// Memory. After an *Error that is not fatal, Next can be called for the next row; after any other
// error, it returns the same again.
func (d *Decoder) Next(dst []byte) ([]byte, error) {
	if _, err := d.Columns(); err != nil {
		return dst, err
	}
	for d.err == nil {
		if d.err = d.scan.scan(d.most); d.err == nil && !d.scan.blank {
			return d.document(dst)
		}
	}
	return dst, d.err
}

// Line returns the line at which the row of the last Next begins.
func (d *Decoder) Line() int { return d.scan.line }

// Row returns the row of the last Next as it is in the file, with the end of its line, if it has
// one. It is a view until the next call of Next.
func (d *Decoder) Row() []byte { return d.scan.row }

// document appends the document of the row.
func (d *Decoder) document(dst []byte) ([]byte, error) {
	if at := d.scan.notText(); at >= 0 {
		return dst, d.named(d.scan.at(at, notUTF8), at)
	}
	if has, want := d.scan.count, len(d.columns); has != want {
		at := d.scan.cells[min(has, want)-1].end
		if has > want {
			at = d.scan.cells[want].begin
		}
		return dst, d.scan.at(at, "the row has "+strconv.Itoa(has)+" cells, not "+
			strconv.Itoa(want))
	}
	d.mark()
	d.build.ResetIn(dst, d.memory)
	if wrong := d.fields(d.root); wrong != nil {
		return dst, wrong
	}
	doc := d.build.Finish()
	if d.err = d.build.Err(); d.err != nil {
		return dst, d.err
	}
	if len(doc) > bson.MaxDocumentSize {
		wrong := d.scan.at(0, "the document is larger than "+
			strconv.Itoa(bson.MaxDocumentSize)+" bytes")
		wrong.TooLarge = true
		return dst, wrong
	}
	return d.build.Bytes(), nil
}

// named adds the name of the column that has this byte of the row to an error.
func (d *Decoder) named(e *Error, at int) *Error {
	for i, c := range d.scan.cells[:min(len(d.scan.cells), len(d.columns))] {
		if c.begin <= at && at < c.end {
			e.Name = d.columns[i].String()
		}
	}
	return e
}

// mark marks the fields that have a value in the row.
func (d *Decoder) mark() {
	d.rows++
	for i, c := range d.scan.cells {
		if c.begin < c.end || c.quoted && d.columns[i].Form.TakesEmpty() {
			d.leaves[i].mark(d.rows)
		}
	}
}

// fields adds the fields of a document that have a value.
func (d *Decoder) fields(of *node) error {
	for _, n := range of.fields {
		switch {
		case n.row != d.rows:
		case n.column >= 0:
			if err := d.value(n); err != nil {
				return err
			}
		default:
			d.build.OpenDocument(n.name)
			if err := d.fields(n); err != nil {
				return err
			}
			d.build.Close()
		}
	}
	return nil
}

// value adds the value of a cell.
func (d *Decoder) value(n *node) error {
	cell, column := d.scan.cells[n.column], &d.columns[n.column]
	text, err := d.scan.text(cell)
	if d.err = err; err != nil {
		return err
	}
	// The builder copies the text, and so does an error.
	view := unsafe.String(unsafe.SliceData(text), len(text))
	json := extjson.Parser{Limit: bson.MaxDocumentSize}
	if d.memory != nil {
		json.Memory = (*scratch)(d)
	}
	err = column.Form.Add(&d.build, n.name, view, json)
	switch {
	case err == nil:
		return nil
	case d.err != nil: // of the Memory
		return d.err
	}
	wrong := d.scan.at(cell.begin, err.Error())
	wrong.Name = column.String()
	return wrong
}

// scratch provides the Memory for Extended JSON that is parsed.
type scratch Decoder

func (s *scratch) Grow(dst []byte, _, n int) ([]byte, error) {
	larger, err := s.memory.Grow(dst, n)
	s.err = err
	return larger, err
}
