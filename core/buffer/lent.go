//go:build !poison

package buffer

// Poisoned says that memory is overwritten when it is taken back.
const Poisoned = false

// Least is the smallest size that is lent.
const Least = least

func lent(int64) {}

// Lent returns how many buffers are lent and neither released nor kept, and 0 without the tag
// poison.
func Lent() int64 { return 0 }

func (b *Buffer) poison() {}
