// Package csv reads documents from CSV and writes them as CSV. The first row names the columns:
// each is the path of a field, and may say the type of its values.
//
//	name,age.int32(),at.date(),address.city
//	Ada,36,1852-11-27,London
//
// A column without a type has what its cells look like: see package literal, which lists the types.
// A cell that is empty, and not quoted, is not a field. A row without any value is not a document.
// An empty text is written "". A field of a document in a document is named with a dot; an array is
// Extended JSON in a column of the type json().
//
// The format is that of RFC 4180, with lines that end with \n or \r\n, and text in UTF-8. Package
// encoding/csv does not read it here, because it changes \r\n within a text, does not tell "" from
// an empty cell, and has no bound for a row. The tests compare both.
//
// What is read and written is exact. A spreadsheet that opens it runs a text which begins like a
// formula, such as "=1+1", unless EncoderOptions.Guard is set.
//
// The package starts no goroutine and holds no lock. It reads from an io.Reader, and does no other
// I/O.
package csv

import (
	"fmt"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
)

const (
	// MaxColumns is the largest number of columns.
	MaxColumns = 10_000
	// MaxHeader is the length of the longest row of names, in bytes.
	MaxHeader = 1 << 20
	// MaxName is the length of the longest name, in bytes. It bounds how much larger a document is
	// than its row.
	MaxName = 255
	// maxDepth is how many documents a path leads through.
	maxDepth = bson.MaxDepth / 2
)

// Error says what is wrong with a file, and where.
type Error struct {
	// Line and Column are where it is, from 1. A column here is one character, and \n ends a line.
	Line, Column int
	// Name is the column's text in the first row; "" if the error is of none.
	Name    string
	Problem string
	// Fatal says that what follows cannot be read. Otherwise, Next goes on with the next row.
	Fatal bool
	// TooLarge says that a row, or a document, is larger than the limit.
	TooLarge bool
}

func (e *Error) Error() string {
	name := ""
	if e.Name != "" {
		name = " (" + clip(e.Name) + ")"
	}
	return fmt.Sprintf("line %d, column %d%s: %s", e.Line, e.Column, name, e.Problem)
}

// maxClip is how many bytes of a text an error repeats.
const maxClip = 40

func clip(text string) string {
	if len(text) > maxClip {
		return text[:maxClip] + "…"
	}
	return text
}

func quoted(text string) string { return strconv.Quote(clip(text)) }
