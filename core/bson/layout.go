package bson

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// layout tells the length of a type's values. A layout below layoutInvalid is the length itself.
type layout uint8

const (
	layoutInvalid   layout = 0x80 + iota
	layoutString           // int32 n, n bytes of which the last is 0
	layoutDocument         // int32 n, n bytes including itself, the last is 0
	layoutBinary           // int32 n, subtype, n bytes
	layoutRegex            // two cstrings
	layoutDBPointer        // a string and 12 bytes
	layoutScope            // int32 n, n bytes including itself
)

var layouts = func() (l [256]layout) {
	for i := range l {
		l[i] = layoutInvalid
	}
	l[TypeDouble], l[TypeDateTime], l[TypeTimestamp], l[TypeInt64] = 8, 8, 8, 8
	l[TypeInt32], l[TypeBool], l[TypeObjectID], l[TypeDecimal128] = 4, 1, 12, 16
	l[TypeNull], l[TypeUndefined], l[TypeMinKey], l[TypeMaxKey] = 0, 0, 0, 0
	l[TypeString], l[TypeJavaScript], l[TypeSymbol] = layoutString, layoutString, layoutString
	l[TypeDocument], l[TypeArray] = layoutDocument, layoutDocument
	l[TypeBinary], l[TypeRegex] = layoutBinary, layoutRegex
	l[TypeDBPointer], l[TypeCodeWithScope] = layoutDBPointer, layoutScope
	return l
}()

// valueLen returns the length of the value of type t that b begins with, or -1
// when t is not a type or the value does not fit in b. It checks lengths and the
// terminators that end a view, not what is between them.
func valueLen(t Type, b []byte) int {
	l := layouts[t]
	if l < layoutInvalid {
		if int(l) > len(b) {
			return -1
		}
		return int(l)
	}
	if l == layoutRegex {
		pattern := cstringLen(b)
		if pattern < 0 {
			return -1
		}
		options := cstringLen(b[pattern+1:])
		if options < 0 {
			return -1
		}
		return pattern + options + 2
	}
	if l == layoutInvalid || len(b) < 4 {
		return -1
	}
	n := int(int32(binary.LittleEndian.Uint32(b)))
	if n < 0 || n > len(b) {
		return -1
	}
	switch l {
	case layoutString:
		if n < 1 || n+4 > len(b) || b[n+3] != 0 {
			return -1
		}
		return n + 4
	case layoutDocument:
		if n < minDocument || b[n-1] != 0 {
			return -1
		}
		return n
	case layoutBinary:
		if n+5 > len(b) {
			return -1
		}
		return n + 5
	case layoutDBPointer:
		if n < 1 || n+16 > len(b) || b[n+3] != 0 {
			return -1
		}
		return n + 16
	default: // layoutScope
		if n < minScope {
			return -1
		}
		return n
	}
}

// minScope is the shortest code with scope: its length, "" and {}.
const minScope = 4 + 5 + minDocument

// cstringLen returns the number of bytes before the first zero byte of b, or -1.
// Keys are short, so it looks at eight bytes at a time without a call.
func cstringLen(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		if z := zeroBytes(w); z != 0 {
			return i + bits.TrailingZeros64(z)>>3
		}
	}
	for ; i < len(b); i++ {
		if b[i] == 0 {
			return i
		}
	}
	return -1
}

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// zeroBytes has the high bit set in the lowest byte of w that is zero; bits
// above it mean nothing.
func zeroBytes(w uint64) uint64 { return (w - lowBits) &^ w & highBits }

// view returns b as a string without a copy.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func readInt32(b []byte) int { return int(int32(binary.LittleEndian.Uint32(b))) }
