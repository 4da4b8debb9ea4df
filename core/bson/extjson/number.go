package extjson

import "encoding/binary"

type numberKind uint8

const (
	numberBad     numberKind = iota
	numberInt                // an integer of 64 bits
	numberDecimal            // a quotient of two doubles, of which neither is rounded
	numberFloat              // anything else
)

// powersOf10 has the powers that a double holds exactly.
var powersOf10 = [...]float64{
	1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

// maxExact is the largest integer up to which a double holds all of them.
const maxExact = 1 << 53

// scanNumber reads a number as the JSON grammar has it. The value is n for numberInt, and
// n/10^scale for numberDecimal.
func scanNumber(src []byte, pos int) (n int64, scale, end int, kind numberKind) {
	negative := src[pos] == '-'
	if negative {
		pos++
	}
	start := pos
	var u uint64
	for ; pos < len(src) && src[pos]-'0' < 10; pos++ {
		u = u*10 + uint64(src[pos]-'0') // wraps only after 19 digits; see below
	}
	digits := pos - start
	if digits == 0 || digits > 1 && src[start] == '0' {
		return 0, 0, start + min(digits, 1), numberBad
	}
	kind = numberInt
	if pos < len(src) && src[pos] == '.' {
		kind = numberDecimal
		point := pos + 1
		u, pos = scanFraction(src, point, u)
		if scale = pos - point; scale == 0 {
			return 0, 0, pos, numberBad
		}
		digits += scale
	}
	if pos < len(src) && src[pos]|0x20 == 'e' {
		kind = numberFloat
		pos++
		if pos < len(src) && (src[pos] == '+' || src[pos] == '-') {
			pos++
		}
		first := pos
		for ; pos < len(src) && src[pos]-'0' < 10; pos++ {
		}
		if pos == first {
			return 0, 0, pos, numberBad
		}
	}
	switch {
	case kind == numberFloat || digits > 19:
	case kind == numberDecimal && (u > maxExact || u == 0): // there is a zero with a sign
	case negative && u <= 1<<63:
		return -int64(u), scale, pos, kind
	case !negative && u < 1<<63:
		return int64(u), scale, pos, kind
	}
	return 0, 0, pos, numberFloat
}

// scanFraction reads digits, and returns u with these digits behind its own.
func scanFraction(src []byte, pos int, u uint64) (with uint64, end int) {
	for ; pos+8 <= len(src); pos += 8 {
		n, ok := parse8(binary.LittleEndian.Uint64(src[pos:]))
		if !ok {
			break
		}
		u = u*pow8 + n
	}
	for ; pos < len(src) && src[pos]-'0' < 10; pos++ {
		u = u*10 + uint64(src[pos]-'0')
	}
	return u, pos
}
