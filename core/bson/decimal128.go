package bson

import (
	"errors"
	"math/bits"
	"strconv"
	"strings"
)

// Decimal128 represents an IEEE 754 decimal number of up to 34 digits in its binary
// encoding (BID). It is a value to carry: there is no arithmetic, and 2.0 and
// 2.00 differ.
type Decimal128 struct{ H, L uint64 }

// The errors of ParseDecimal128.
var (
	ErrDecimal128Syntax  = errors.New("bson: not a decimal number")
	ErrDecimal128Range   = errors.New("bson: decimal number is out of range")
	ErrDecimal128Inexact = errors.New("bson: decimal number has more than 34 digits")
)

const (
	decimalDigits = 34
	decimalBias   = 6176
	decimalMin    = -6176 // smallest exponent
	decimalMax    = 6111  // largest

	decimalSign     = 1 << 63
	decimalInfinity = 0x78 << 56
	decimalNaN      = 0x7C << 56

	e17 = 100_000_000_000_000_000
	// The largest coefficient is 10^34 − 1.
	maxCoefficientH, maxCoefficientL = 0x0001ED09BEAD87C0, 0x378D8E63FFFFFFFF
)

// IsNaN reports whether d is not a number, of any kind.
func (d Decimal128) IsNaN() bool { return d.H>>58&0x1F == 0x1F }

// IsInf returns 1 or -1 for an infinity, else 0.
func (d Decimal128) IsInf() int {
	if d.H>>58&0x1F != 0x1E {
		return 0
	}
	return 1 - 2*int(d.H>>63)
}

// Parts splits a finite number: without its sign, which is the highest bit of d.H, it is
// (hi·2^64 + lo)·10^exponent. Encodings outside the standard are zero.
func (d Decimal128) Parts() (hi, lo uint64, exponent int) {
	if d.H>>61&3 == 3 {
		return 0, 0, int(d.H>>47&0x3FFF) - decimalBias
	}
	hi, lo, exponent = d.H&(1<<49-1), d.L, int(d.H>>49&0x3FFF)-decimalBias
	if hi > maxCoefficientH || hi == maxCoefficientH && lo > maxCoefficientL {
		return 0, 0, exponent
	}
	return hi, lo, exponent
}

// String writes d as the Decimal128 specification says: "1.0E+3", "-Infinity", "NaN".
func (d Decimal128) String() string { return string(d.Append(nil)) }

// Append appends String to dst.
func (d Decimal128) Append(dst []byte) []byte {
	if d.IsNaN() {
		return append(dst, "NaN"...)
	}
	if d.H&decimalSign != 0 {
		dst = append(dst, '-')
	}
	if d.IsInf() != 0 {
		return append(dst, "Infinity"...)
	}
	hi, lo, exponent := d.Parts()
	var buf [decimalDigits]byte
	digits := coefficient(&buf, hi, lo)
	adjusted := exponent + len(digits) - 1
	if exponent > 0 || adjusted < -6 {
		return appendScientific(dst, digits, adjusted)
	}
	point := len(digits) + exponent // digits before it
	switch {
	case exponent == 0:
		return append(dst, digits...)
	case point > 0:
		dst = append(dst, digits[:point]...)
		dst = append(dst, '.')
		return append(dst, digits[point:]...)
	}
	dst = append(dst, "0."...)
	for ; point < 0; point++ {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

func appendScientific(dst, digits []byte, adjusted int) []byte {
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(dst, '.')
		dst = append(dst, digits[1:]...)
	}
	dst = append(dst, 'E')
	if adjusted >= 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(adjusted), 10)
}

// coefficient writes hi·2^64 + lo in decimal, without leading zeros.
func coefficient(buf *[decimalDigits]byte, hi, lo uint64) []byte {
	high, low := bits.Div64(hi, lo, e17) // hi < 2^49 < 10^17
	for i := decimalDigits - 1; i >= 17; i-- {
		buf[i] = '0' + byte(low%10)
		low /= 10
	}
	for i := 16; i >= 0; i-- {
		buf[i] = '0' + byte(high%10)
		high /= 10
	}
	for i := range decimalDigits - 1 {
		if buf[i] != '0' {
			return buf[i:]
		}
	}
	return buf[decimalDigits-1:]
}

// ParseDecimal128 reads a number as the Decimal128 specification says. Nothing is rounded: a number
// that does not fit exactly is an error. An exponent out of range is clamped if zeros in the
// coefficient can make up for it, or if the number is 0.
func ParseDecimal128(s string) (Decimal128, error) {
	var sign uint64
	rest := s
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		if rest[0] == '-' {
			sign = decimalSign
		}
		rest = rest[1:]
	}
	if len(rest) >= 3 && rest[0]|0x20 >= 'i' {
		return parseSpecial(rest, sign)
	}
	var n decimalParser
	if !n.parse(rest) {
		return Decimal128{}, ErrDecimal128Syntax
	}
	return n.encode(sign)
}

func parseSpecial(s string, sign uint64) (Decimal128, error) {
	switch {
	case strings.EqualFold(s, "inf"), strings.EqualFold(s, "infinity"):
		return Decimal128{H: sign | decimalInfinity}, nil
	case strings.EqualFold(s, "nan"):
		return Decimal128{H: decimalNaN}, nil
	}
	return Decimal128{}, ErrDecimal128Syntax
}

// decimalParser holds a number on its way from text.
type decimalParser struct {
	digits   [decimalDigits]byte // significant ones
	n        int
	exponent int64
	inexact  bool // a digit other than zero did not fit
}

// parse reads digits, point and exponent, and reports whether they are well
// formed.
func (p *decimalParser) parse(s string) bool {
	i, seen, point := 0, false, false
	for ; i < len(s); i++ {
		c := s[i]
		if c == '.' {
			if point {
				return false
			}
			point = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		seen = true
		if point {
			p.exponent--
		}
		p.digit(c)
	}
	if !seen {
		return false
	}
	if i == len(s) {
		return true
	}
	return s[i]|0x20 == 'e' && p.parseExponent(s[i+1:])
}

// digit takes the next digit of the coefficient.
func (p *decimalParser) digit(c byte) {
	switch {
	case p.n == 0 && c == '0':
	case p.n < decimalDigits:
		p.digits[p.n] = c - '0'
		p.n++
	default:
		p.exponent++
		p.inexact = p.inexact || c != '0'
	}
}

func (p *decimalParser) parseExponent(s string) bool {
	negative := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		negative = s[0] == '-'
		s = s[1:]
	}
	if s == "" {
		return false
	}
	var e int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		if e < 1<<50 { // beyond any input's length it does not matter
			e = e*10 + int64(s[i]-'0')
		}
	}
	if negative {
		e = -e
	}
	p.exponent += e
	return true
}

// encode fits the number into the format, exactly or not at all.
func (p *decimalParser) encode(sign uint64) (Decimal128, error) {
	if p.inexact {
		return Decimal128{}, ErrDecimal128Inexact
	}
	if p.n == 0 {
		p.exponent = min(max(p.exponent, decimalMin), decimalMax)
	}
	for p.exponent > decimalMax && p.n < decimalDigits && p.n > 0 {
		p.n++ // the digits beyond are zeros
		p.exponent--
	}
	for p.exponent < decimalMin && p.n > 1 && p.digits[p.n-1] == 0 {
		p.n--
		p.exponent++
	}
	if p.exponent > decimalMax || p.exponent < decimalMin {
		return Decimal128{}, ErrDecimal128Range
	}
	var hi, lo uint64
	for _, c := range p.digits[:p.n] {
		over, low := bits.Mul64(lo, 10)
		var carry uint64
		lo, carry = bits.Add64(low, uint64(c), 0)
		hi = hi*10 + over + carry
	}
	return Decimal128{H: sign | uint64(p.exponent+decimalBias)<<49 | hi, L: lo}, nil
}
