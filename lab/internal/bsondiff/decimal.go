package bsondiff

import (
	"fmt"
	"regexp"

	official "go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mooringdb/mooring/core/bson"
)

var hugeExponent = regexp.MustCompile(`[eE][+-]?0*[1-9]\d{18,}$`)

// DecimalText compares what both sides read from the text of a decimal number.
func DecimalText(s string) error {
	ours, oursErr := bson.ParseDecimal128(s)
	theirs, theirsErr := official.ParseDecimal128(s)
	if oursErr == nil && theirsErr != nil && hugeExponent.MatchString(s) {
		// A zero, whose exponent is clamped; the official driver reads exponents of 64 bits alone.
		return nil
	}
	if (oursErr == nil) != (theirsErr == nil) {
		//nolint:errorlint // one of them is nil
		return fmt.Errorf("decimal %q: ours: %v, %v; theirs: %v, %v",
			s, ours, oursErr, theirs, theirsErr)
	}
	if h, l := theirs.GetBytes(); oursErr == nil && (ours.H != h || ours.L != l) {
		return fmt.Errorf("decimal %q: ours: %x; theirs: %x %x", s, ours, h, l)
	}
	return nil
}

// DecimalBits compares the texts that both sides give a decimal number. A coefficient beyond 34
// digits is zero to us alone (Decimal128, Reading from BSON: "treated as zero per IEEE 754").
func DecimalBits(h, l uint64) error {
	d := bson.Decimal128{H: h, L: l}
	ours, theirs := d.String(), official.NewDecimal128(h, l).String()
	if ours != theirs && (canonicalDecimal(d) || d.IsNaN() || d.IsInf() != 0) {
		return fmt.Errorf("decimal %x: ours: %s; theirs: %s", d, ours, theirs)
	}
	return nil
}
