package bson_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
)

func TestParseDecimal128(t *testing.T) {
	for in, want := range map[string]string{
		"2.00":                                   "2.00",
		"-0":                                     "-0",
		"+017.":                                  "17",
		".5":                                     "0.5",
		"0.000001":                               "0.000001",
		"0.0000001":                              "1E-7",
		"1e3":                                    "1E+3",
		"12E+3":                                  "1.2E+4",
		"1E+6112":                                "1.0E+6112",
		"0E+9999":                                "0E+6111",
		"0E-9999":                                "0E-6176",
		"10E-6177":                               "1E-6176",
		"1" + strings.Repeat("0", 36):            "1." + strings.Repeat("0", 33) + "E+36",
		"0." + strings.Repeat("0", 50) + "1E50":  "0.1",
		"9." + strings.Repeat("9", 33) + "E6144": "9." + strings.Repeat("9", 33) + "E+6144",
		"inf":                                    "Infinity",
		"-Infinity":                              "-Infinity",
		"+INF":                                   "Infinity",
		"nan":                                    "NaN",
		"-NaN":                                   "NaN",
		"1E-" + strings.Repeat("0", 40) + "1":    "0.1",
		"0E" + strings.Repeat("9", 40):           "0E+6111",
	} {
		d, err := bson.ParseDecimal128(in)
		if err != nil || d.String() != want {
			t.Errorf("ParseDecimal128(%q) = %v, %v, want %s", in, d, err, want)
			continue
		}
		if again, err := bson.ParseDecimal128(want); err != nil || again != d && !d.IsNaN() {
			t.Errorf("ParseDecimal128(%q) = %x, %v, want %x", want, again, err, d)
		}
	}
	for in, want := range map[string]error{
		"":                              bson.ErrDecimal128Syntax,
		".":                             bson.ErrDecimal128Syntax,
		"-":                             bson.ErrDecimal128Syntax,
		"1 ":                            bson.ErrDecimal128Syntax,
		"1_0":                           bson.ErrDecimal128Syntax,
		"0x1":                           bson.ErrDecimal128Syntax,
		"1e":                            bson.ErrDecimal128Syntax,
		"1e+":                           bson.ErrDecimal128Syntax,
		"infinit":                       bson.ErrDecimal128Syntax,
		"sNaN":                          bson.ErrDecimal128Syntax,
		"1E+6145":                       bson.ErrDecimal128Range,
		"1E" + strings.Repeat("9", 40):  bson.ErrDecimal128Range,
		"1E-6177":                       bson.ErrDecimal128Range,
		"11E-6177":                      bson.ErrDecimal128Range,
		"1E-" + strings.Repeat("9", 40): bson.ErrDecimal128Range,
		strings.Repeat("1", 35):         bson.ErrDecimal128Inexact,
		"0." + strings.Repeat("1", 35):  bson.ErrDecimal128Inexact,
	} {
		if d, err := bson.ParseDecimal128(in); !errors.Is(err, want) {
			t.Errorf("ParseDecimal128(%q) = %v, %v, want %v", in, d, err, want)
		}
	}
}

func TestDecimal128Encodings(t *testing.T) {
	for _, c := range []struct {
		name string
		d    bson.Decimal128
		want string
	}{
		{"coefficient of 10^34", bson.Decimal128{H: 0x3041ED09BEAD87C0, L: 0x378D8E6400000000}, "0"},
		{"largest coefficient", bson.Decimal128{H: 0x3041ED09BEAD87C0, L: 0x378D8E63FFFFFFFF}, strings.Repeat("9", 34)},
		{"large form", bson.Decimal128{H: 0x6C10000000000000, L: 1}, "0"},
		{"large form, negative", bson.Decimal128{H: 0xEC10000000000000}, "-0"},
		{"signalling NaN", bson.Decimal128{H: 0x7E00000000000000}, "NaN"},
		{"negative NaN with payload", bson.Decimal128{H: 0xFC00000000000000, L: 12}, "NaN"},
		{"infinity with payload", bson.Decimal128{H: 0xF800000000000000, L: 12}, "-Infinity"},
		{"zero", bson.Decimal128{}, "0E-6176"},
	} {
		if got := c.d.String(); got != c.want {
			t.Errorf("%s: String() = %s, want %s", c.name, got, c.want)
		}
	}
	if (bson.Decimal128{H: 0x7800000000000000}).IsInf() != 1 ||
		(bson.Decimal128{H: 0xF800000000000000}).IsInf() != -1 || (bson.Decimal128{}).IsInf() != 0 {
		t.Error("IsInf")
	}
}
