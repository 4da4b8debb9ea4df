package match_test

import (
	"cmp"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/match"
)

// rational returns a number, or nil and its rank if it is not finite.
func rational(t testing.TB, v bson.Value) (r *big.Rat, rank int) {
	t.Helper()
	if d, ok := v.Decimal128(); ok && !d.IsNaN() && d.IsInf() == 0 {
		r, ok := new(big.Rat).SetString(d.String())
		if !ok {
			t.Fatalf("%v is not a number", d)
		}
		return r, 0
	} else if ok && d.IsNaN() {
		return nil, -2
	} else if ok {
		return nil, d.IsInf()
	}
	f, ok := v.Double()
	switch {
	case !ok:
		n, _ := v.AsInt64()
		return new(big.Rat).SetInt64(n), 0
	case math.IsNaN(f):
		return nil, -2
	case math.IsInf(f, 0):
		return nil, cmp.Compare(f, 0)
	}
	return new(big.Rat).SetFloat64(f), 0
}

// checkNumbers compares two numbers in both directions, and as integers, with what rational numbers
// say.
func checkNumbers(t *testing.T, v, w bson.Value) {
	t.Helper()
	x, a := rational(t, v)
	y, b := rational(t, w)
	want := cmp.Compare(a, b)
	if x != nil && y != nil {
		want = x.Cmp(y)
	}
	if got, back := match.Compare(v, w), match.Compare(w, v); got != want || back != -want {
		t.Errorf("%v to %v is %d, and back %d, want %d", v, w, got, back, want)
	}
	if x == nil {
		x = new(big.Rat).SetFrac(new(big.Int).Lsh(big.NewInt(1), 64), big.NewInt(1)) // no integer
	}
	n := new(big.Int).Quo(x.Num(), x.Denom())
	if got, ok := match.Whole(v); ok != n.IsInt64() || ok && got != n.Int64() {
		t.Errorf("%v is the integer %d, %t, want %v", v, got, ok, n)
	}
}

func decimalOf(sign, exponent, hi, lo uint64) bson.Value {
	return bson.Decimal128Value(bson.Decimal128{H: sign<<63 | exponent<<49 | hi, L: lo})
}

// randomNumber returns numbers of all sizes, many of them at the edges.
func randomNumber(r *rand.Rand) bson.Value {
	const biased, exponents = 6176, 12288
	hi, coefficient := r.Uint64()>>(15+r.UintN(49)), r.Uint64()>>r.UintN(64)
	switch r.UintN(12) {
	case 0:
		return bson.Int64Value(int64(r.Uint64()) >> r.UintN(64))
	case 1:
		return bson.DoubleValue(math.Float64frombits(r.Uint64()))
	case 2: // subnormal
		sign := r.Uint64() & (1 << 63)
		return bson.DoubleValue(math.Float64frombits(sign | r.Uint64()>>(12+r.UintN(52))))
	case 3:
		return bson.DoubleValue(float64(int64(r.Uint64())>>r.UintN(64)) / 100)
	case 4:
		special := []float64{
			0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64,
			math.SmallestNonzeroFloat64, 1 << 63, -1 << 63,
		}
		return bson.DoubleValue(special[r.IntN(len(special))])
	case 5: // also NaN, infinities and what is outside of the standard
		return bson.Decimal128Value(bson.Decimal128{H: r.Uint64(), L: r.Uint64()})
	case 6:
		return decimalOf(r.Uint64()&1, r.Uint64N(exponents), 0, 0)
	case 7: // near the edges of integers
		edge := int64(math.MinInt64) + int64(r.IntN(3)) - 1
		return decimalOf(r.Uint64()&1, biased, 0, uint64(edge))
	case 8:
		return decimalOf(r.Uint64()&1, r.Uint64N(exponents), hi, r.Uint64())
	case 9:
		return decimalOf(r.Uint64()&1, biased-40+r.Uint64N(80), hi, coefficient)
	default:
		return decimalOf(r.Uint64()&1, biased-400+r.Uint64N(750), 0, coefficient)
	}
}

// near returns a number that is equal to another or almost, often of another type or exponent.
func near(r *rand.Rand, v bson.Value) bson.Value {
	d, isDecimal := v.Decimal128()
	f, isDouble := v.Double()
	n, _ := v.AsInt64()
	text := strconv.FormatInt(n, 10)
	switch {
	case isDecimal:
		text = d.String()
	case isDouble:
		text = strconv.FormatFloat(f, 'e', r.IntN(34), 64)
	}
	if r.IntN(2) == 0 {
		f, _ := strconv.ParseFloat(text, 64) // or an infinity
		return bson.DoubleValue(math.Float64frombits(math.Float64bits(f) + uint64(r.IntN(3)) - 1))
	}
	digits, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if !strings.Contains(digits, ".") {
		digits += "."
	}
	d, err := bson.ParseDecimal128(digits + strings.Repeat("0", r.IntN(20)) + "e" +
		cmp.Or(exponent, "0"))
	if err != nil {
		return v
	}
	d.L += uint64(r.IntN(3)) - 1
	return bson.Decimal128Value(d)
}

func TestNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		v, w := randomNumber(r), randomNumber(r)
		checkNumbers(t, v, w)
		checkNumbers(t, v, near(r, v))
		checkNumbers(t, v, near(r, near(r, v)))
	}
}

// FuzzNumbers reads each number from its kind and 128 bits.
func FuzzNumbers(f *testing.F) {
	f.Add(uint8(0), uint64(0x3040)<<48, uint64(1), uint8(1), uint64(0), math.Float64bits(1))
	f.Add(uint8(0), uint64(0), uint64(1), uint8(0), uint64(0), uint64(2))
	f.Add(uint8(0), uint64(0x3041ED09BEAD87C0), uint64(0x378D8E63FFFFFFFF), uint8(2), uint64(0),
		^uint64(0))
	number := func(kind uint8, h, l uint64) bson.Value {
		switch kind % 3 {
		case 0:
			return bson.Decimal128Value(bson.Decimal128{H: h, L: l})
		case 1:
			return bson.DoubleValue(math.Float64frombits(l))
		default:
			return bson.Int64Value(int64(l))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, h, l uint64, other uint8, otherH, otherL uint64) {
		v, w := number(kind, h, l), number(other, otherH, otherL)
		checkNumbers(t, v, w)
		r := rand.New(rand.NewPCG(l, h))
		checkNumbers(t, v, near(r, v))
	})
}

// decimals pairs numbers that a Decimal128 is compared with.
var decimals = []struct{ name, held, operand string }{
	{"int", `{"$numberLong": "1"}`, `{"$numberLong": "2"}`},
	{"cents", `{"$numberDecimal": "19.99"}`, `{"$numberDecimal": "20.5"}`},
	{"long", `{"$numberDecimal": "1.234567890123456789012345678901234"}`, `{"$numberDecimal": "1"}`},
	{"far", `{"$numberDecimal": "1E-6176"}`, `{"$numberDecimal": "1E+6111"}`},
	{"smallest", `{"$numberDecimal": "1E-6176"}`, `{"$numberDecimal": "2E-6176"}`},
	{"cents and a double", `{"$numberDecimal": "19.99"}`, `20.5`},
	{"small and a double", `{"$numberDecimal": "4.940656458412465441765687928682213E-324"}`, `5e-324`},
	{"large and a double", `{"$numberDecimal": "1E+308"}`, `1e308`},
}

// TestDecimalAllocations checks that no exponent makes a comparison, or a $mod, large.
func TestDecimalAllocations(t *testing.T) {
	for _, row := range decimals {
		f := compile(t, `{"$or": [{"a": `+row.operand+`}, {"a": {"$mod": [7, 5]}}]}`)
		d := parse(t, `{"a": `+row.held+`}`)
		if n := testing.AllocsPerRun(10, func() { f.Match(d) }); n > 0 {
			t.Errorf("%s: %v allocations", row.name, n)
		}
	}
}

func BenchmarkDecimals(b *testing.B) {
	for _, row := range decimals {
		b.Run(row.name, func(b *testing.B) {
			f, d := compile(b, `{"a": `+row.operand+`}`), parse(b, `{"a": `+row.held+`}`)
			b.ReportAllocs()
			for b.Loop() {
				f.Match(d)
			}
		})
	}
}
