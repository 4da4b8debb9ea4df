package render

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/csv"
)

// rows writes CSV. Without columns, these are the fields of the first documents, which it holds
// until it knows them.
type rows struct {
	w       *bufio.Writer
	o       Options
	encoder *csv.Encoder
	columns []csv.Column
	pending []bson.Raw
	held    int // bytes
	buf     []byte
	n       int
}

// heldBytes is how much of the first documents is held.
const heldBytes = 4 << 20

func newRows(w io.Writer, o Options) Writer {
	return &rows{w: bufio.NewWriterSize(w, bufferSize), o: o, columns: o.Columns}
}

// Columns reads the names of columns, which commas separate: "name,age.int32()".
func Columns(text string) ([]csv.Column, error) {
	if text == "" {
		return nil, nil
	}
	return csv.ParseColumns(text)
}

func (r *rows) Write(doc bson.Raw) error {
	r.n++
	if r.encoder == nil && len(r.columns) == 0 && len(r.pending) < sample && r.held < heldBytes {
		r.pending = append(r.pending, doc.Clone())
		r.held += len(doc)
		return nil
	}
	if err := r.begin(); err != nil {
		return err
	}
	return r.row(doc)
}

// begin writes the first row, and the documents that are held.
func (r *rows) begin() (err error) {
	if r.encoder != nil {
		return nil
	}
	if len(r.columns) == 0 {
		var seen []string
		for _, doc := range r.pending {
			for key := range doc.All() {
				if slices.Contains(seen, key) {
					continue
				}
				seen = append(seen, key)
				c, err := csv.ParseColumn(key)
				if err != nil || strings.Contains(key, ".") {
					return fmt.Errorf("the field %q cannot be a column: name the columns "+
						"by --fields", key)
				}
				r.columns = append(r.columns, c)
			}
		}
	}
	r.encoder, err = csv.NewEncoder(r.columns, csv.EncoderOptions{Mode: r.o.Mode})
	if err != nil {
		return err
	}
	if !r.o.Continues {
		if _, err := r.w.Write(r.encoder.AppendHeader(nil)); err != nil {
			return err
		}
	}
	for _, doc := range r.pending {
		if err := r.row(doc); err != nil {
			return err
		}
	}
	r.pending = nil
	return nil
}

func (r *rows) row(doc bson.Raw) (err error) {
	if r.buf, err = r.encoder.AppendRow(r.buf[:0], doc); err != nil {
		return err
	}
	_, err = r.w.Write(r.buf)
	return err
}

func (r *rows) Flush() error { return r.w.Flush() }

func (r *rows) Close() error {
	if r.n == 0 && len(r.columns) == 0 {
		return nil
	}
	return errors.Join(r.begin(), r.w.Flush())
}
