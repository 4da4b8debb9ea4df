// Package buffer lends the memory that large replies are read into, and takes it back for other
// replies. It counts references and keeps memory in pools by size. It does no I/O and knows no
// message.
//
// With the build tag poison nothing is used again: what is taken back is overwritten, so that a use
// after the last Release shows, and counted, so that a test can find what was never taken back.
package buffer

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/mooringdb/mooring/core/bson"
)

// Most is the largest size that is lent: larger memory would stay in the pools although no call is
// charged for it. Least is the smallest: smaller memory is cheap to allocate. With the tag poison
// all sizes up to Most are lent.
const (
	Most  = 2 << 20
	least = 16 << 10
)

// Poison is what memory is overwritten with when it is taken back.
const Poison = 0xdb

// Buffer holds the memory of one reply. Each holder has one reference, and releases it once:
//
//	holder               from                         until
//	core/conn            the length is known          the reply is read, or fails
//	core/operation       the reply is read            the result is returned, or is an error
//	core/cursor          the first batch has come     Next, NextLent or Close
//	Cursor.LentBatches   NextLent returns a batch     the body of the loop has ended
//	service/stream       NextLent returns a batch     the client has taken the batch after it
//	paging, leftover     NextLent returns a batch     its last document is in a page, or copied
//	paging, remembered   the page is delivered        it is forgotten
//	service/call         a page or stream is sent     gRPC or REST has written the response
//
// What lives longer is copied: cluster times, recovery tokens, the namespace of a cursor. Errors
// have views of their reply, so the memory of a reply with an error is left to the collector: see
// Keep. So is that of a batch which Cursor.Next returns, of a page that goes to another replica or
// that another call waits for, of a statement's response, which its transaction remembers, and of
// what was not sent.
//
// The methods of a nil Buffer do nothing: it stands for memory of the collector, which stays valid
// for as long as it is used. All methods may be called by several goroutines.
type Buffer struct {
	bytes []byte
	// documents is the list that Documents returns.
	documents  []bson.Raw
	class      int
	references atomic.Int32
	kept       atomic.Bool
}

// Get lends memory of n bytes, whose content is arbitrary, with one reference. It returns nil for
// sizes that are not lent: then the caller allocates.
func Get(n int) *Buffer {
	if n < Least || n > Most {
		return nil
	}
	class := classOf(n)
	b, _ := pools[class].Get().(*Buffer)
	if b == nil {
		b = &Buffer{bytes: make([]byte, sizeOf(class)), class: class}
	}
	b.bytes = b.bytes[:n]
	b.references.Store(1)
	lent(1)
	return b
}

// Bytes returns the memory.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Documents returns a list of n documents that is lent with the memory, and is used again like it.
// It is for the one reader of the reply, before there are other holders.
func (b *Buffer) Documents(n int) []bson.Raw {
	if b == nil {
		return make([]bson.Raw, n)
	}
	if n > cap(b.documents) {
		b.documents = make([]bson.Raw, n)
	}
	b.documents = b.documents[:n]
	return b.documents
}

// Retain adds a reference, for another holder. The caller has one.
func (b *Buffer) Retain() {
	if b != nil && b.references.Add(1) < 2 {
		panic("bug: buffer: Retain after the last Release")
	}
}

// Release ends a reference. After the last one the memory is used for other replies, unless Keep
// was called.
func (b *Buffer) Release() {
	if b == nil {
		return
	}
	switch left := b.references.Add(-1); {
	case left > 0:
	case left < 0:
		panic("bug: buffer: Release after the last one")
	case !b.kept.Load():
		b.giveBack()
	}
}

// Keep leaves the memory to the collector: it stays valid for as long as anything points into it.
// The caller has a reference, which it need not release.
func (b *Buffer) Keep() {
	if b != nil && b.kept.CompareAndSwap(false, true) {
		lent(-1)
	}
}

// maxDocuments bounds the lists that are lent again, so that many tiny documents do not keep their
// memory.
const maxDocuments = 8 << 10

func (b *Buffer) giveBack() {
	if cap(b.documents) > maxDocuments {
		b.documents = nil
	}
	lent(-1)
	if Poisoned {
		b.poison()
		return
	}
	clear(b.documents)
	pools[b.class].Put(b)
}

// Between two powers of two there are four sizes, so that a fifth of the memory at most is not
// used.
const steps = 4

var pools [numClasses]sync.Pool

const numClasses = steps*7 + 1 // from least to Most

// classOf returns the class of the smallest buffer that has n bytes.
func classOf(n int) int {
	n = max(n, least)
	doubling := bits.Len(uint(n-1)) - bits.Len(least-1) // n <= least<<doubling
	if doubling == 0 {
		return 0
	}
	step := (least << (doubling - 1)) / steps
	return steps*(doubling-1) + (n-least<<(doubling-1)+step-1)/step
}

// sizeOf returns the size of the buffers of a class.
func sizeOf(class int) int {
	base := least << (class / steps)
	return base + class%steps*(base/steps)
}
