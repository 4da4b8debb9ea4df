//go:build poison

package buffer

import "sync/atomic"

// Poisoned says that memory is overwritten when it is taken back.
const Poisoned = true

// Least is the smallest size that is lent.
const Least = 1

var count atomic.Int64

func lent(n int64) { count.Add(n) }

// Lent returns how many buffers are lent and neither released nor kept, and 0 without the tag
// poison.
func Lent() int64 { return count.Load() }

// poison overwrites the memory, which is not used again: what still reads it finds no document.
func (b *Buffer) poison() {
	for i := range b.bytes {
		b.bytes[i] = Poison
	}
	for i := range b.documents {
		b.documents[i] = b.bytes[:1]
	}
}
