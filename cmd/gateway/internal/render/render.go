// Package render writes documents for people and for programs: as an aligned table, as lines or an
// array of Extended JSON, or as CSV. It reads BSON and writes to a writer, and knows no terminal.
package render

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/csv"
)

// Format names a form of documents.
type Format string

// The formats.
const (
	Table  Format = "table"
	NDJSON Format = "ndjson"
	JSON   Format = "json"
	CSV    Format = "csv"
	BSON   Format = "bson"
)

// formats makes a writer for each format.
var formats = map[Format]func(io.Writer, Options) Writer{
	Table: newTable, NDJSON: newLines, JSON: newArray, CSV: newRows, BSON: newDump,
}

// Formats names all formats, for people.
const Formats = "table, ndjson, json, csv or bson"

// Options says how documents are written.
type Options struct {
	Format Format
	// Mode is the form of Extended JSON.
	Mode extjson.Mode
	// Width is how many columns of the terminal a table may use; 0: any number.
	Width int
	// Columns are those of CSV; none: the fields of the first 200 documents.
	Columns []csv.Column
	// Continues says that the documents follow others: there is no [ and no row of names.
	Continues bool
}

// Writer writes documents. Close writes what is left, and does not close what it writes to.
type Writer interface {
	Write(doc bson.Raw) error
	// Flush writes what can be written before more documents come.
	Flush() error
	Close() error
}

// New returns a writer of documents to w.
func New(w io.Writer, o Options) (Writer, error) {
	makes := formats[o.Format]
	if makes == nil {
		return nil, fmt.Errorf("%q is not a format; the formats are %s", o.Format, Formats)
	}
	return makes(w, o), nil
}

// lines writes NDJSON.
type lines struct {
	w    *bufio.Writer
	mode extjson.Mode
	buf  []byte
}

func newLines(w io.Writer, o Options) Writer {
	return &lines{w: bufio.NewWriterSize(w, bufferSize), mode: o.Mode}
}

// bufferSize is how much is written at once.
const bufferSize = 64 << 10

func (l *lines) Write(doc bson.Raw) error { return l.write("", doc, "\n") }

// write writes a document between two texts.
func (l *lines) write(before string, doc bson.Raw, after string) (err error) {
	l.buf = append(l.buf[:0], before...)
	if l.buf, err = extjson.Append(l.buf, doc, l.mode); err != nil {
		return err
	}
	l.buf = append(l.buf, after...)
	_, err = l.w.Write(l.buf)
	return err
}

func (l *lines) Flush() error { return l.w.Flush() }
func (l *lines) Close() error { return l.w.Flush() }

// array writes one JSON array, with a document in each line.
type array struct {
	lines

	begun bool
}

func newArray(w io.Writer, o Options) Writer {
	return &array{
		lines: lines{w: bufio.NewWriterSize(w, bufferSize), mode: o.Mode}, begun: o.Continues,
	}
}

func (a *array) Write(doc bson.Raw) error {
	before := ",\n"
	if !a.begun {
		before = "[\n"
	}
	a.begun = true
	return a.write(before, doc, "")
}

func (a *array) Close() error {
	end := "\n]\n"
	if !a.begun {
		end = "[]\n"
	}
	if _, err := a.w.WriteString(end); err != nil {
		return err
	}
	return a.w.Flush()
}

// dump writes BSON, one document after the other.
type dump struct{ w *bufio.Writer }

func newDump(w io.Writer, _ Options) Writer { return dump{bufio.NewWriterSize(w, bufferSize)} }

func (d dump) Write(doc bson.Raw) error {
	_, err := d.w.Write(doc)
	return err
}

func (d dump) Flush() error { return d.w.Flush() }
func (d dump) Close() error { return d.w.Flush() }

// Text returns a value as a cell of a table: texts, numbers, dates and ids without quotes, and
// everything else as Extended JSON. Control characters become escapes, so that a document cannot
// control a terminal.
func Text(v bson.Value) string {
	switch v.Type {
	case bson.TypeString:
		s, _ := v.Str()
		return Plain(s)
	case bson.TypeObjectID:
		id, _ := v.ObjectID()
		return id.String()
	case bson.TypeDecimal128:
		d, _ := v.Decimal128()
		return d.String()
	}
	text, err := extjson.AppendValue(nil, v, extjson.Relaxed)
	if err != nil {
		return "?"
	}
	if date, ok := strings.CutPrefix(string(text), `{"$date":"`); ok {
		return strings.TrimSuffix(date, `"}`)
	}
	return Plain(string(text))
}

// Plain returns a text whose control characters are escapes.
func Plain(s string) string {
	if strings.IndexFunc(s, isControl) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if isControl(r) {
			quoted := fmt.Sprintf("%+q", r)
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
