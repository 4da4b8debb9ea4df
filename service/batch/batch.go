// Package batch computes how many documents to ask a server for, and where to cut a reply into
// pages and messages. It uses a target in bytes and the size of the documents seen so far.
//
// It is arithmetic on values, but for Sizes, which remembers means. It sends nothing and keeps no
// documents.
package batch

import (
	"sync/atomic"

	"github.com/mooringdb/mooring/core/bson"
)

const (
	// MinTarget is the minimum target of one batch of a stream, in bytes.
	MinTarget = 64 << 10
	// MaxTarget is the maximum target of one batch of a stream, in bytes.
	MaxTarget = 512 << 10
	// First is the number of documents to ask for while no size is known. It is the size of the
	// server's own first batch.
	First = 101
	// FirstUnknown is the number of documents of a first batch while nothing is known of the
	// documents of a namespace: they may have up to 16 MB each.
	FirstUnknown = 8
	// maxCount limits a batch of tiny documents.
	maxCount = 100_000
	// maxGrowth limits the ratio of a batch to its predecessor, because later documents may be
	// larger than earlier ones.
	maxGrowth = 4
)

// Sizer tracks the documents of one cursor. The zero value has seen none.
type Sizer struct {
	mean  int   // mean size of the documents seen, later ones weighing more; 0: none seen
	count int32 // documents of the last batch that had any, or what Next returned since
}

// Resume returns a sizer with the state that Seen returned for another sizer.
func Resume(mean int, count int32) Sizer {
	return Sizer{mean: max(mean, 0), count: min(max(count, 0), maxCount)}
}

// Seen returns the sizer's state: the mean size of documents, and the number of documents that
// batches have reached.
func (s *Sizer) Seen() (mean int, count int32) { return s.mean, s.count }

// Saw records the number of documents in a batch and their bytes.
func (s *Sizer) Saw(documents, bytes int) {
	if documents == 0 {
		return
	}
	mean := max(bytes/documents, 1)
	if s.mean > 0 {
		mean = (s.mean + mean + 1) / 2
	}
	s.mean = mean
	s.count = max(s.count, int32(min(documents, maxCount)))
}

// Next returns the number of documents to ask for next, so that they come close to target bytes.
func (s *Sizer) Next(target int) int32 {
	s.count = Size(target, s.mean, s.count)
	return s.count
}

// Size returns the batch size for a target in bytes, given the mean size of documents and the size
// of the batch before. 0 means that a size is unknown.
func Size(target, mean int, before int32) int32 {
	if mean <= 0 {
		return First
	}
	if before <= 0 {
		before = First
	}
	limit := min(int64(before)*maxGrowth, maxCount)
	return int32(max(min(int64(target/mean), limit), 1))
}

// Start returns the size of a cursor's first batch for a target in bytes: at most so many
// documents, and few if the mean size of the documents is not known (0).
func Start(target, mean int, most int32) int32 {
	if mean <= 0 {
		return min(most, FirstUnknown)
	}
	return int32(min(max(target/mean, 1), int(most)))
}

// Learn returns the mean size of documents to expect, given what was expected before (0: nothing)
// and the mean size of a batch. It follows larger documents at once, and smaller ones slowly:
// expecting too much costs a command, and expecting too little costs memory.
func Learn(before, mean int) int {
	if before == 0 || mean >= before {
		return mean
	}
	return before - (before-mean)/4
}

// Limits limits a page or a message. It has at least one document, whatever the limits are.
type Limits struct {
	// Bytes is the maximum size of the documents.
	Bytes int
	// Documents is the maximum number of documents. 0 means any number.
	Documents int
	// Text ends the page before a document that JSON cannot carry, unless the page begins with it.
	Text bool
	// Texts, if it is set, makes the text of the page, and so finds out where to end it.
	Texts Texts
}

// Texts makes the text of a page's documents.
type Texts interface {
	// Make makes the text of the leading documents that JSON can carry, and returns their number.
	// It returns 0 if it makes none: the first cannot be carried, or the page is too large.
	Make(docs []bson.Raw, bytes int) int
}

// Cut returns the number of leading documents within the limits, and their bytes.
func Cut(docs []bson.Raw, l Limits) (n, bytes int) {
	for _, doc := range docs {
		if n > 0 && (bytes+len(doc) > l.Bytes || n == l.Documents) {
			break
		}
		n++
		bytes += len(doc)
	}
	if !l.Text {
		return n, bytes
	}
	carried := l.carried(docs[:n], bytes)
	for _, doc := range docs[carried:n] {
		bytes -= len(doc)
	}
	return carried, bytes
}

// carried returns the number of leading documents that JSON can carry, and 1 if it cannot carry the
// first.
func (l Limits) carried(docs []bson.Raw, bytes int) (n int) {
	if l.Texts != nil {
		n = l.Texts.Make(docs, bytes)
	}
	if n > 0 {
		return n
	}
	for n < len(docs) && (n == 0 || docs[n].Validate() == nil) {
		n++
	}
	return n
}

// Budget divides a number of bytes between all open streams. The more streams are open, the smaller
// are the batches of each.
type Budget struct {
	total int64
	open  atomic.Int64
}

// NewBudget returns a budget of so many bytes.
func NewBudget(total int) *Budget { return &Budget{total: int64(total)} }

// Join counts a stream as open until it calls leave.
func (b *Budget) Join() (leave func()) {
	b.open.Add(1)
	return func() { b.open.Add(-1) }
}

// Target returns the number of bytes that one stream may ask for now.
func (b *Budget) Target() int { return Target(b.total, b.open.Load()) }

// Target returns the bytes of one batch: an equal share of total between open streams, within
// MinTarget and MaxTarget. A stream holds up to three batches.
func Target(total, open int64) int {
	return int(min(max(total/(3*max(open, 1)), MinTarget), MaxTarget))
}
