package rest

import (
	"errors"
	"io"
	"net/url"
	"unsafe"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/csv"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// The parameters of rows.
const (
	columnsParam   = "columns"
	delimiterParam = "delimiter"
)

// rowParams lists the parameters of an import of rows.
var rowParams = []string{columnsParam, delimiterParam}

// openRows has the cutter read rows. header is what the Content-Type says of the first one.
func (in *cutter) openRows(body io.Reader, query url.Values, header string) error {
	columns, err := columnsOf(query)
	if err != nil {
		return err
	}
	comma, err := delimiterOf(query)
	if err != nil {
		return err
	}
	switch {
	case header == "absent" && columns == nil:
		return refuseField(columnsParam, "is required for CSV without a header row")
	case header == "present" && columns != nil:
		return refuseField(columnsParam, "is only for CSV without a header row")
	}
	memory := &rowMemory{of: in.memory, held: map[*byte]int64{}}
	rows := csv.NewDecoder(body, csv.Options{
		Columns: columns, Comma: comma, MaxRow: min(in.most, bson.MaxDocumentSize), Memory: memory,
	})
	size := 0
	in.next = func() (*mooringv1.Document, int, error) {
		doc, err := rows.Next(make([]byte, 0, size))
		if err != nil {
			return nil, 0, in.rowError(err)
		}
		_ = in.memory.Do(len(rows.Row()))
		size = min(len(doc), cutBuffer)
		charged := memory.take(doc, rows.Row())
		in.charged += charged
		more := (documentCost - 1) * charged
		if err := in.memory.Charge(more); err != nil {
			return nil, 0, err
		}
		in.charged += more
		return payload.NewDocument(doc), len(doc), nil
	}
	return nil
}

// rowError returns the error of a row as that of a document.
func (in *cutter) rowError(err error) error {
	wrong, ok := errors.AsType[*csv.Error](err)
	switch {
	case !ok:
		return err
	case wrong.TooLarge:
		return in.content(refuse(rpcerr.TooLarge, wrong.Error()))
	}
	return in.content(refuse(rpcerr.MalformedDocument, wrong.Error()))
}

// columnsOf returns the columns that a query names; nil if it names none.
func columnsOf(query url.Values) ([]csv.Column, error) {
	if !query.Has(columnsParam) {
		return nil, nil
	}
	columns, err := csv.ParseColumns(query.Get(columnsParam))
	if err != nil {
		return nil, refuseField(columnsParam, err.Error())
	}
	return columns, nil
}

// delimiterOf returns what a query says that is between cells; 0 if it says nothing.
func delimiterOf(query url.Values) (byte, error) {
	text := query.Get(delimiterParam)
	switch {
	case !query.Has(delimiterParam):
		return 0, nil
	case text == "tab":
		return '\t', nil
	case len(text) != 1 || text[0] < ' ' && text != "\t" || text[0] >= 0x7f || text == `"`:
		return 0, refuseField(delimiterParam, quoted(text)+" must be tab or one character, "+
			"such as ; (%3B)")
	}
	return text[0], nil
}

// rowMemory charges a request with what becomes large when rows are read.
type rowMemory struct {
	of   *front.Memory
	held map[*byte]int64 // charged, by buffer
}

var _ bson.Memory = (*rowMemory)(nil)

// Grow charges a larger buffer, and releases the smaller one.
func (m *rowMemory) Grow(buf []byte, n int) ([]byte, error) {
	size := max(2*cap(buf), len(buf)+n, cutBuffer)
	if err := m.of.Charge(int64(size)); err != nil {
		return nil, err
	}
	larger := append(make([]byte, 0, size), buf...)
	m.release(unsafe.SliceData(buf))
	m.held[unsafe.SliceData(larger)] = int64(size)
	return larger, nil
}

func (m *rowMemory) release(buf *byte) {
	m.of.Release(m.held[buf])
	delete(m.held, buf)
}

// take returns what the document is charged with, which the caller releases, and keeps the charge
// of the row's buffer. Nothing else is in use.
func (m *rowMemory) take(doc, row []byte) int64 {
	charged := m.held[unsafe.SliceData(doc)]
	delete(m.held, unsafe.SliceData(doc))
	for buf := range m.held {
		if buf != unsafe.SliceData(row) {
			m.release(buf)
		}
	}
	return charged
}
