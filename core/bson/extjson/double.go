package extjson

import (
	"math"
	"math/bits"
	"strconv"
)

// appendDouble writes a finite double with the fewest digits that read back the same, and always
// as what JSON calls a non-integer: 1.0, 1.5, -0.0, 1E+18.
func appendDouble(dst []byte, f float64) []byte {
	a := math.Abs(f)
	if a < 1e15 && a == math.Trunc(a) {
		if f == 0 && math.Signbit(f) {
			return append(dst, "-0.0"...)
		}
		return append(appendInt(dst, int64(f)), '.', '0')
	}
	if a < 1e-5 || a >= 1e15 {
		return strconv.AppendFloat(dst, f, 'E', -1, 64)
	}
	return appendFraction(dst, f)
}

// appendPlainDouble writes a number as JavaScript does: 1, not 1.0.
func appendPlainDouble(dst []byte, f float64) []byte {
	switch a := math.Abs(f); {
	case a != 0 && (a < 1e-6 || a >= 1e21):
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	case a == math.Trunc(a):
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	return appendFraction(dst, f)
}

// appendFraction writes a double that is not an integer, with the fewest digits that read back the
// same.
//
// Prices, measurements and coordinates have few digits. If n/10^8 is f and n has at most 15 digits,
// its digits are those to write: decimals of up to 15 digits are further apart than doubles, so
// that no other one, and no shorter one, is f.
func appendFraction(dst []byte, f float64) []byte {
	a := math.Abs(f)
	if !(a >= 1e-5 && a < 1e7) {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	n := int64(a*pow8 + 0.5)
	if float64(n)/pow8 != a { // both are exact, so that the quotient is the nearest double
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	if f < 0 {
		dst = append(dst, '-')
	}
	dst = append(appendUint(dst, uint64(n/pow8)), '.')
	x := digits8(uint64(n % pow8))
	return appendWord(dst, x|zeros, 8-bits.LeadingZeros64(x)>>3)
}
