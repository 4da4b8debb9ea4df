package rest

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mooringdb/mooring/service/front"
)

// keeper has memory for the texts of large responses, at most maxKept for all of them.
type keeper struct {
	pool sync.Pool    // of *[pieceSize]byte
	kept atomic.Int64 // bytes that are reserved
}

const (
	maxKept = 32 << 20
	// maxText is the longest text that is kept: that of 1,000 documents of two kilobytes, or so.
	maxText = 2 << 20
	// pieceSize has room for Chunk bytes, and for the document that exceeds them.
	pieceSize = front.Chunk + 8<<10
)

// empty returns a buffer for a piece.
func (k *keeper) empty() []byte {
	if b, ok := k.pool.Get().(*[pieceSize]byte); ok {
		return b[:0]
	}
	return make([]byte, 0, pieceSize)
}

// recycle makes a buffer that is not used any more available to other responses.
func (k *keeper) recycle(text []byte) {
	if cap(text) == pieceSize {
		k.pool.Put((*[pieceSize]byte)(text[:pieceSize]))
	}
}

var _ roomMaker = (*pieces)(nil)

// pieces keeps the text of a large response until its length is known, so that the response is not
// encoded again to be sent. A text that is too long, or for which there is no memory to spare, is
// counted and not kept.
type pieces struct {
	keeper   *keeper
	memory   *front.Memory
	reserved int64
	kept     [][]byte
	length   int // of all that next has got
}

// reserve reserves memory for the text of so many bytes of BSON. If there is none, the text is
// counted.
func (p *pieces) reserve(size int) {
	text := size + 3*size/4 // seldom more
	n := int64((text/front.Chunk + 1) * pieceSize)
	if text > maxText {
		return
	}
	if p.keeper.kept.Add(n) > maxKept || !p.memory.Spare(n) {
		p.keeper.kept.Add(-n)
		return
	}
	p.reserved = n
}

// MakeRoom implements roomMaker. A document that does not fit a piece needs the memory itself.
func (p *pieces) MakeRoom(dst, doc []byte) ([]byte, error) {
	if len(doc) >= pieceSize {
		p.free()
	}
	return p.memory.MakeRoom(dst, doc)
}

// isKept reports whether first will return all that next gets.
func (p *pieces) isKept() bool { return p.reserved > 0 }

// next takes the text in a buffer, and returns a buffer for what follows. A document that did not
// fit the buffer has made it grow; such texts are not kept, because their buffers have no pool.
func (p *pieces) next(text []byte) []byte {
	p.length += len(text)
	if cap(text) != pieceSize || int64(len(p.kept)+1)*pieceSize > p.reserved {
		p.free()
		return text[:0]
	}
	p.kept = append(p.kept, text)
	return p.keeper.empty()
}

// put puts text before all that next has got.
func (p *pieces) put(text []byte) {
	p.length += len(text)
	p.kept = slices.Insert(p.kept, 0, text)
}

// first takes the first piece out. It reports false if there is none. The caller recycles it.
func (p *pieces) first() (text []byte, ok bool) {
	if len(p.kept) == 0 {
		return nil, false
	}
	text, p.kept = p.kept[0], p.kept[1:]
	return text, true
}

// free returns the memory. Nothing is kept any more.
func (p *pieces) free() {
	for text, ok := p.first(); ok; text, ok = p.first() {
		p.keeper.recycle(text)
	}
	p.keeper.kept.Add(-p.reserved)
	p.memory.Release(p.reserved)
	p.reserved = 0
}
