package match

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/mooringdb/mooring/core/bson"
)

// number holds a number without rounding: (hi·2^64 + lo)·10^ten·2^two, and its sign. ten is 0
// unless it was a Decimal128, and two unless it was a double.
type number struct {
	// rank orders numbers of which one is not finite: it is 0 of those that are.
	rank     int
	negative bool
	hi, lo   uint64
	ten, two int
}

const (
	rankNaN          = -2
	mantissaBits     = 52
	smallestExponent = -1074 // of a double whose mantissa is an integer
)

// exact returns a number's value. Other values count as 0.
func exact(v bson.Value) number {
	switch v.Type {
	case bson.TypeDecimal128:
		d, _ := v.Decimal128()
		if d.IsNaN() {
			return number{rank: rankNaN}
		}
		x := number{rank: d.IsInf(), negative: d.H>>63 != 0}
		if x.rank == 0 {
			x.hi, x.lo, x.ten = d.Parts()
		}
		return x
	case bson.TypeDouble:
		f, _ := v.Double()
		switch {
		case f != f:
			return number{rank: rankNaN}
		case math.IsInf(f, 0):
			return number{rank: cmp.Compare(f, 0)}
		}
		return double(f)
	default:
		n, _ := v.AsInt64()
		if n < 0 {
			return number{negative: true, lo: -uint64(n)}
		}
		return number{lo: uint64(n)}
	}
}

// double returns a double that is finite.
func double(f float64) number {
	b := math.Float64bits(f)
	x := number{negative: b>>63 != 0, lo: b & (1<<mantissaBits - 1), two: smallestExponent}
	if exponent := int(b >> mantissaBits & 0x7FF); exponent > 0 {
		x.lo |= 1 << mantissaBits
		x.two += exponent - 1
	}
	return x
}

func (x number) isZero() bool { return x.rank == 0 && x.hi|x.lo == 0 }

func (x number) sign() int {
	switch {
	case x.hi|x.lo == 0:
		return 0
	case x.negative:
		return -1
	}
	return 1
}

// bits returns how many bits the coefficient has.
func (x number) bits() int {
	if x.hi != 0 {
		return 64 + bits.Len64(x.hi)
	}
	return bits.Len64(x.lo)
}

// magnitude returns the binary logarithm of a number that is not 0, or less by up to 1.
func (x number) magnitude() float64 {
	return float64(x.bits()-1+x.two) + float64(x.ten)*(math.Ln10/math.Ln2)
}

func (x number) compare(y number) int {
	sign := x.sign()
	c := cmp.Or(cmp.Compare(x.rank, y.rank), cmp.Compare(sign, y.sign()))
	if c != 0 || sign == 0 {
		return c
	}
	// Beyond this, the rounding does not matter. Within, the exponents of ten of two Decimal128s
	// differ by 34 at most, and those of a Decimal128 and a double by 358.
	if d := x.magnitude() - y.magnitude(); math.Abs(d) > 1.01 {
		return sign * cmp.Compare(d, 0)
	}
	if x.ten < y.ten {
		x, y, sign = y, x, -sign
	}
	return sign * x.compareScaled(y)
}

// compareScaled compares magnitudes that are close. y has the smaller exponent of ten, by which
// both are divided.
func (x number) compareScaled(y number) int {
	ten := x.ten - y.ten
	p := product{words: [productWords]uint64{x.lo, x.hi}, n: 2}
	for n := ten; n > 0; n -= mostFives {
		p.multiply(fives[min(n, mostFives)])
	}
	if c := cmp.Compare(p.bits()+ten+x.two, y.bits()+y.two); c != 0 {
		return c
	}
	hi, lo, more := p.top()
	otherHi, otherLo, _ := (&product{words: [productWords]uint64{y.lo, y.hi}, n: 2}).top()
	return cmp.Or(cmp.Compare(hi, otherHi), cmp.Compare(lo, otherLo), more)
}

// whole returns the integer that a number becomes without its fraction. It reports false if there
// is none of 64 bits.
func (x number) whole() (int64, bool) {
	const digits = 19 // a power of ten up to this one has 64 bits
	for x.ten < 0 && x.hi|x.lo != 0 {
		n := min(-x.ten, digits)
		by, rest := uint64(math.Pow10(n)), uint64(0)
		x.hi, rest = x.hi/by, x.hi%by
		x.lo, _ = bits.Div64(rest, x.lo, by)
		x.ten += n
	}
	switch {
	case x.rank != 0:
		return 0, false
	case x.hi|x.lo == 0:
		return 0, true
	case x.hi != 0 || x.ten > digits:
		return 0, false
	}
	over, n := bits.Mul64(x.lo, uint64(math.Pow10(x.ten)))
	if x.negative {
		return int64(-n), over == 0 && n <= 1<<63
	}
	return int64(n), over == 0 && n < 1<<63
}

const (
	// productWords is what 5^358 takes with a coefficient of 53 bits, or 5^309 with one of 113.
	productWords = 15
	mostFives    = 27 // the last power of five that has 64 bits
)

// fives has the powers of five.
var fives = func() (all [mostFives + 1]uint64) {
	all[0] = 1
	for i := range mostFives {
		all[i+1] = 5 * all[i]
	}
	return all
}()

// product holds an integer, from its lowest word on. The words from n on are 0.
type product struct {
	words [productWords]uint64
	n     int
}

func (p *product) multiply(by uint64) {
	carry := uint64(0)
	for i := range p.words[:p.n] {
		hi, lo := bits.Mul64(p.words[i], by)
		sum, over := bits.Add64(lo, carry, 0)
		p.words[i], carry = sum, hi+over
	}
	if carry != 0 {
		p.words[p.n] = carry
		p.n++
	}
}

// trim takes the highest words away that are 0. The product is not 0.
func (p *product) trim() {
	for p.words[p.n-1] == 0 {
		p.n--
	}
}

func (p *product) bits() int {
	p.trim()
	return 64*(p.n-1) + bits.Len64(p.words[p.n-1])
}

// top returns the highest 128 bits, of which the first is set, and 1 if another bit is.
func (p *product) top() (hi, lo uint64, more int) {
	p.trim()
	var next, third uint64
	if hi = p.words[p.n-1]; p.n > 1 {
		next = p.words[p.n-2]
	}
	if p.n > 2 {
		third = p.words[p.n-3]
	}
	shift := bits.LeadingZeros64(hi)
	hi, lo, third = hi<<shift|next>>(64-shift), next<<shift|third>>(64-shift), third<<shift
	for _, word := range p.words[:max(p.n-3, 0)] {
		third |= word
	}
	if third != 0 {
		more = 1
	}
	return hi, lo, more
}
