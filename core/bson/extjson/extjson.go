// Package extjson writes BSON as MongoDB Extended JSON v2 and reads it back.
//
// Both ways are one pass straight over the bytes: no tree, no maps, no
// reflection. Writing appends to the caller's buffer and allocates nothing
// beyond its growth; reading appends the BSON to the caller's buffer. Reading
// takes canonical and relaxed forms, mixed, and nothing else: legacy forms,
// type wrappers with missing or additional keys or values of a wrong type,
// invalid UTF-8, lone surrogates and trailing bytes are errors, with the path
// and the offset of the place.
//
// Extended JSON cannot carry everything: an embedded document that looks like a
// type wrapper, the payload of a NaN and non-canonical Decimal128 encodings do
// not survive. BSON is the lossless form.
package extjson

import (
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
)

// Mode selects a form of Extended JSON.
type Mode uint8

const (
	// Relaxed writes numbers and the dates of 1970 to 9999 as plain JSON.
	Relaxed Mode = iota
	// Canonical keeps every type.
	Canonical
	// RelaxedSafe is Relaxed, but integers beyond ±(2^53−1), which JavaScript
	// cannot hold, are {"$numberLong": …}.
	RelaxedSafe
	// Plain is the Atlas Data API's JSON. It cannot be read back as it was.
	Plain
)

// MaxDepth is how deeply documents and arrays may nest, both ways; type wrappers
// do not count.
const MaxDepth = bson.MaxDepth

// SyntaxError says what is wrong, and where: in the JSON when reading, in the
// BSON when writing.
type SyntaxError struct {
	Path    string // as "a.b.3"; "" for the document itself
	Offset  int    // in bytes
	Problem string
	// TooLarge: the text may be sound, but becomes longer than its Limit.
	TooLarge bool
	// InvalidUTF8: the text or the document would be sound if a string in it were UTF-8.
	InvalidUTF8 bool
}

// Error returns the text "extended JSON: <problem> at <path> (offset <n>)".
func (e *SyntaxError) Error() string {
	at := ""
	if e.Path != "" {
		at = " at " + e.Path
	}
	return "extended JSON: " + e.Problem + at + " (offset " + strconv.Itoa(e.Offset) + ")"
}
