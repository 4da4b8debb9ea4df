package extjson

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
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

// appendString writes s in quotes, and reports whether it is valid UTF-8.
func appendString(dst, s []byte) ([]byte, bool) {
	dst = append(dst, '"')
	n := plainLen(s)
	dst = append(dst, s[:n]...)
	if n == len(s) {
		return append(dst, '"'), true
	}
	s = s[n:]
	if !utf8.Valid(s) {
		return dst, false
	}
	for {
		n := unescapedLen(s)
		dst = append(dst, s[:n]...)
		if n == len(s) {
			return append(dst, '"'), true
		}
		dst = appendEscape(dst, s[n])
		s = s[n+1:]
	}
}

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

// appendDouble writes a finite double with the fewest digits that read back the
// same, and always as what JSON calls a non-integer: 1.0, 1.5, -0.0, 1E+18.
func appendDouble(dst []byte, f float64) []byte {
	a := math.Abs(f)
	if a < 1e15 && a == math.Trunc(a) {
		if f == 0 && math.Signbit(f) {
			return append(dst, "-0.0"...)
		}
		return append(strconv.AppendInt(dst, int64(f), 10), '.', '0')
	}
	if a < 1e-5 || a >= 1e15 {
		return strconv.AppendFloat(dst, f, 'E', -1, 64)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}
