package transfer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/csv"
)

// Format names the form of a file.
type Format string

// The formats.
const (
	NDJSON Format = "ndjson" // a document in each line
	JSON   Format = "json"   // an array of documents
	CSV    Format = "csv"
	BSON   Format = "bson" // documents one after the other, as mongodump writes them
)

// Formats names all formats, for people.
const Formats = "ndjson, json, csv or bson"

// IsKnown reports whether f is one of the formats.
func (f Format) IsKnown() bool { return f == NDJSON || f == JSON || f == CSV || f == BSON }

// SourceOptions says how a file is read.
type SourceOptions struct {
	// Format is that of the file; "": what its first bytes look like.
	Format Format
	// Columns are those of a CSV file without a first row of names.
	Columns []csv.Column
	// Comma separates the cells of CSV; 0 is ','.
	Comma byte
}

// Trouble says what is wrong with one document of a file, and where.
type Trouble struct {
	Line   int    `json:"line,omitempty"` // from 1; 0: the file has no lines
	Column int    `json:"column,omitempty"`
	Number int64  `json:"number"` // of the document in the file, from 1
	Reason string `json:"reason"`
	// Text is the document as the file has it, or what was read of it.
	Text string `json:"text,omitempty"`
}

// Error returns where the trouble is, and what.
func (t *Trouble) Error() string {
	if t.Line == 0 {
		return fmt.Sprintf("document %d: %s", t.Number, t.Reason)
	}
	return fmt.Sprintf("line %d, column %d: %s", t.Line, t.Column, t.Reason)
}

// record holds a document of a file, or why it is none.
type record struct {
	doc     bson.Raw
	line    int
	number  int64 // in the file, from 1
	trouble *Trouble
	written bool // by an earlier run, in part
}

// source reads a file. next returns io.EOF after the last document. Another error ends the file, a
// *Trouble if it is the file's fault.
type source interface {
	next() (record, error)
	// text returns the line, or lines, of the last record, with the end if there is one. It is nil
	// in a format whose documents say where they end. It is a view until next.
	text() []byte
}

// unread reads a record again.
type unread struct {
	source
	record *record // nil: that was done
}

func (u *unread) next() (record, error) {
	if r := u.record; r != nil {
		u.record = nil
		return *r, nil
	}
	return u.source.next()
}

// headBytes is how much of a file is looked at to know its format.
const headBytes = 4 << 10

// maxInflated bounds the memory of a decoder of zstd.
const maxInflated = 256 << 20

// inflate returns what a file has, which may be gzip or zstd, by its first bytes.
func inflate(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, bufferBytes)
	head, _ := b.Peek(4) // a file may be shorter
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return z, nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxMemory(maxInflated))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return z.IOReadCloser(), nil
	}
	return b, nil
}

const bufferBytes = 256 << 10

// newSource returns the documents of a file, and its first bytes.
func newSource(r io.Reader, o SourceOptions) (source, []byte, error) {
	text, err := inflate(r)
	if err != nil {
		return nil, nil, err
	}
	b := bufio.NewReaderSize(text, bufferBytes)
	head, err := b.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	head = bytes.Clone(head)
	if o.Format == "" {
		o.Format = formatOf(head)
	}
	switch o.Format {
	case NDJSON:
		return &lines{r: b}, head, nil
	case JSON:
		return &array{r: b, line: 1, column: 1}, head, nil
	case BSON:
		return &dump{r: bson.NewReader(b, 0)}, head, nil
	case CSV:
		return &table{d: csv.NewDecoder(b, csv.Options{
			Columns: o.Columns, Comma: o.Comma,
		})}, head, nil
	}
	return nil, nil, fmt.Errorf("%q is not a format; the formats are %s", o.Format, Formats)
}

// formatOf returns the format that the first bytes of a file look like.
func formatOf(head []byte) Format {
	if len(head) > 4 {
		size := binary.LittleEndian.Uint32(head)
		if kind := head[4]; size >= 5 && size <= bson.MaxDocumentSize &&
			(kind == 0 && size == 5 || kind >= 0x01 && kind <= 0x13) {
			return BSON
		}
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(head, mark), " \t\r\n")
	switch {
	case len(text) == 0 || text[0] == '{':
		return NDJSON
	case text[0] == '[':
		return JSON
	}
	return CSV
}

// mark is the byte order mark that some programs write first.
var mark = []byte("\xef\xbb\xbf")

// dump reads BSON.
type dump struct {
	r *bson.Reader
	n int64
}

func (d *dump) next() (record, error) {
	doc, err := d.r.Next()
	if errors.Is(err, io.EOF) {
		return record{}, io.EOF
	}
	d.n++
	if err != nil {
		return record{}, &Trouble{Number: d.n, Reason: err.Error()}
	}
	if err := doc.Validate(); err != nil {
		return record{trouble: &Trouble{Reason: err.Error()}}, nil
	}
	return record{doc: doc}, nil
}

func (*dump) text() []byte { return nil }

// table reads CSV.
type table struct {
	d *csv.Decoder
}

func (t *table) next() (record, error) {
	doc, err := t.d.Next(nil)
	wrong, ok := errors.AsType[*csv.Error](err)
	if !ok {
		return record{doc: doc, line: t.d.Line()}, err
	}
	trouble := &Trouble{
		Line: wrong.Line, Column: wrong.Column, Reason: wrong.Problem, Text: clip(t.d.Row()),
	}
	if wrong.Name != "" {
		trouble.Reason = fmt.Sprintf("%q: %s", wrong.Name, wrong.Problem)
	}
	if wrong.Fatal {
		return record{}, trouble
	}
	return record{line: wrong.Line, trouble: trouble}, nil
}

func (t *table) text() []byte { return t.d.Row() }

// parser reads Extended JSON, and older forms of two types, too.
var parser = extjson.Parser{Limit: bson.MaxDocumentSize, Legacy: true}
