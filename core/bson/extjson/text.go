package extjson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// Eight bytes are looked at together. Each test sets the high bit of the lowest
// byte that it is true for; bits above that one may be wrong, so that only the
// lowest counts.
const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

func below20(w uint64) uint64         { return (w - 0x20*lowBits) &^ w & highBits }
func equal(w uint64, c uint64) uint64 { x := w ^ c*lowBits; return (x - lowBits) &^ x & highBits }

// special marks what JSON escapes: control characters, the quote, the backslash.
func special(w uint64) uint64 { return below20(w) | equal(w, '"') | equal(w, '\\') }

func isSpecial(c byte) bool { return c < 0x20 || c == '"' || c == '\\' }

// plainLen returns the number of bytes before the first that is not ASCII or is
// escaped in JSON.
func plainLen(s []byte) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := binary.LittleEndian.Uint64(s[i:])
		if m := special(w) | w&highBits; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf || isSpecial(s[i]) {
			return i
		}
	}
	return i
}

// unescapedLen returns the number of bytes before the first that is escaped in JSON.
func unescapedLen(s []byte) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		if m := special(binary.LittleEndian.Uint64(s[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(s) && !isSpecial(s[i]); i++ {
	}
	return i
}

// cstringLen returns the number of bytes before the first zero byte, or -1.
func cstringLen(s []byte) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		if m := equal(binary.LittleEndian.Uint64(s[i:]), 0); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(s); i++ {
		if s[i] == 0 {
			return i
		}
	}
	return -1
}

// longText is the length from which a text is copied as a whole, so that its buffer grows once.
const longText = 128

// appendString writes s in quotes, and reports whether it is valid UTF-8.
func appendString(dst, s []byte) ([]byte, bool) {
	dst = append(dst, '"')
	var seen uint64
	for i := 0; ; {
		if len(s)-i >= longText {
			n := unescapedLen(s[i:])
			dst = append(dst, s[i:i+n]...)
			i, seen = i+n, highBits // which may be there
		}
		w := uint64(0)
		for ; i+8 <= len(s); i += 8 {
			w = binary.LittleEndian.Uint64(s[i:])
			if special(w) != 0 {
				break
			}
			seen |= w
			dst = binary.LittleEndian.AppendUint64(dst, w)
		}
		if i+8 > len(s) {
			w = lastWord(s, i)
		}
		seen |= w
		n := bits.TrailingZeros64(special(w)) >> 3
		if i+n == len(s) {
			return appendWord(dst, w, n+1), seen&highBits == 0 || utf8.Valid(s)
		}
		dst = appendEscape(appendWord(dst, w, n), s[i+n])
		i += n + 1
	}
}

// lastWord returns the bytes of s from i on, which are less than eight, with quotes behind them. It
// may look at the bytes up to the capacity of s.
func lastWord(s []byte, i int) uint64 {
	const quotes = '"' * lowBits
	left := len(s) - i
	if i+8 <= cap(s) {
		w := binary.LittleEndian.Uint64(s[i : i+8])
		return w&(1<<(8*left)-1) | quotes<<(8*left)
	}
	w := uint64(quotes)
	for k, c := range s[i:] {
		w ^= uint64(c^'"') << (8 * k)
	}
	return w
}

// appendKey writes the key that s begins with, and a colon. n is the length of the key with the
// zero byte that ends it, or 0 if it has bytes that are escaped or not ASCII, or if s ends too soon
// to look at eight bytes together.
func appendKey(dst, s []byte) (_ []byte, n int) {
	out := append(dst, '"')
	for i := 0; i+8 <= len(s); i += 8 {
		w := binary.LittleEndian.Uint64(s[i:])
		n := plainBytes(w)
		if n == 8 {
			out = binary.LittleEndian.AppendUint64(out, w)
			continue
		}
		if s[i+n] != 0 {
			break
		}
		return append(appendWord(out, w&(1<<(8*n)-1)|'"'<<(8*n), n+1), ':'), i + n + 1
	}
	return dst, 0
}

// plainBytes returns how many of the eight bytes come before the first that is not ASCII or is
// escaped in JSON.
func plainBytes(w uint64) int { return bits.TrailingZeros64(special(w)|w&highBits) >> 3 }

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
