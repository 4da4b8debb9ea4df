package extjson_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

func plain(tb testing.TB, v bson.Value) string {
	tb.Helper()
	text, err := extjson.AppendValue(nil, v, extjson.Plain)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// TestIntegers compares with strconv around each power of ten, where the number of digits changes.
func TestIntegers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	try := func(n int64) {
		if got, want := plain(t, bson.Int64Value(n)), strconv.FormatInt(n, 10); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for power, digits := int64(1), 1; digits <= 19; power, digits = power*10, digits+1 {
		for add := int64(-2); add <= 2; add++ {
			try(power + add)
			try(-power + add)
		}
		for range 1000 {
			try(r.Int64N(power))
		}
	}
	try(math.MaxInt64)
	try(math.MinInt64)
}

// TestShortestDoubles compares with strconv, which finds the fewest digits without a short way.
func TestShortestDoubles(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	try := func(f float64) {
		for _, f := range []float64{f, -f, math.Nextafter(f, 0), math.Nextafter(f, math.Inf(1))} {
			if a := math.Abs(f); a != 0 && (a < 1e-5 || a >= 1e15) {
				continue
			}
			got, want := plain(t, bson.DoubleValue(f)), strconv.FormatFloat(f, 'f', -1, 64)
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
	for _, f := range []float64{
		0, 0.1, 0.3, 1.5, 149.85, 0.00001, 0.12345678, 0.123456789, 9_999_999.99999999, 1e7, 1e7 + 0.5,
		2_251_799_813_685_248.5, 5e14 + 0.0625, 1.0 / 3, 51.5074, 0.1 + 0.2, 4.35, 1.005,
	} {
		try(f)
	}
	for digits := range 12 {
		for range 1000 {
			try(float64(r.Int64N(1e11)) / math.Pow10(digits))
		}
	}
	for range 10_000 {
		try(r.Float64())
		try(math.Ldexp(r.Float64(), r.IntN(66)-16))
	}
}
