package bsondiff

import (
	"math"

	"github.com/mooringdb/mooring/core/bson"
)

// Class names a set of values that a document can hold and Extended JSON cannot.
type Class uint8

// What Extended JSON cannot carry. BSON → canonical → BSON is the identity for everything else.
const (
	// Wrapper is an embedded document with a key that only type wrappers have: {"a": {"$oid":
	// "…"}}.
	Wrapper Class = 1 << iota
	// NaN is a not-a-number other than the value that "NaN" is read as.
	NaN
	// Decimal is a Decimal128 in an encoding that no text is read as: NaN with a sign, a payload
	// or signalling, an infinity with trailing bits, a coefficient beyond 34 digits.
	Decimal
)

// Classes are all of them.
var Classes = [...]Class{Wrapper, NaN, Decimal}

// String returns the class's name.
func (c Class) String() string {
	return map[Class]string{
		Wrapper: "embedded document that looks like a type wrapper", NaN: "NaN with a payload",
		Decimal: "non-canonical Decimal128",
	}[c]
}

// wrapperKeys are the keys that belong to type wrappers alone.
var wrapperKeys = map[string]bool{
	"$oid": true, "$symbol": true, "$numberInt": true, "$numberLong": true, "$numberDouble": true,
	"$numberDecimal": true,
	"$binary":        true, "$code": true, "$scope": true, "$timestamp": true,
	"$regularExpression": true, "$dbPointer": true,
	"$date": true, "$minKey": true, "$maxKey": true, "$undefined": true, "$uuid": true,
}

const canonicalNaN = 0x7FF8 << 48

// Uncarried says what of a valid document Extended JSON cannot carry. The outermost document is
// never a wrapper.
func Uncarried(doc []byte) Class {
	var c Class
	for _, v := range bson.Raw(doc).All() {
		switch v.Type { //nolint:exhaustive // the others are carried
		case bson.TypeDouble:
			if f, _ := v.Double(); f != f && math.Float64bits(f) != canonicalNaN {
				c |= NaN
			}
		case bson.TypeDecimal128:
			if d, _ := v.Decimal128(); !canonicalDecimal(d) {
				c |= Decimal
			}
		case bson.TypeDocument:
			c |= uncarriedDocument(v.Data)
		case bson.TypeArray:
			c |= Uncarried(v.Data)
		case bson.TypeCodeWithScope:
			_, scope, _ := v.CodeWithScope()
			c |= uncarriedDocument(scope)
		}
	}
	return c
}

func uncarriedDocument(doc []byte) Class {
	c := Uncarried(doc)
	for key := range bson.Raw(doc).All() {
		if wrapperKeys[key] {
			c |= Wrapper
		}
	}
	return c
}

// canonicalDecimal reports whether d is in an encoding that a text is read as.
func canonicalDecimal(d bson.Decimal128) bool {
	const maxH, maxL = 0x0001ED09BEAD87C0, 0x378D8E63FFFFFFFF // 10^34 − 1
	switch {
	case d.IsNaN():
		return d == bson.Decimal128{H: 0x7C << 56}
	case d.IsInf() != 0:
		return d.H&^(1<<63) == 0x78<<56 && d.L == 0
	case d.H>>61&3 == 3:
		return false
	}
	h := d.H & (1<<49 - 1)
	return h < maxH || h == maxH && d.L <= maxL
}
