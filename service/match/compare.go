package match

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
)

// class numbers the places of types in BSON's order.
type class uint8

const (
	classMinKey class = iota
	classMissing
	classNull
	classNumber
	classText
	classDocument
	classArray
	classBinary
	classObjectID
	classBool
	classDate
	classTimestamp
	classRegex
	classPointer
	classCode
	classScope
	classMaxKey
)

var classes = [256]class{
	0: classMissing, bson.TypeUndefined: classMissing, bson.TypeMinKey: classMinKey,
	bson.TypeNull: classNull, bson.TypeDouble: classNumber, bson.TypeInt32: classNumber,
	bson.TypeInt64: classNumber, bson.TypeDecimal128: classNumber, bson.TypeString: classText,
	bson.TypeSymbol: classText, bson.TypeDocument: classDocument, bson.TypeArray: classArray,
	bson.TypeBinary: classBinary, bson.TypeObjectID: classObjectID, bson.TypeBool: classBool,
	bson.TypeDateTime: classDate, bson.TypeTimestamp: classTimestamp, bson.TypeRegex: classRegex,
	bson.TypeDBPointer: classPointer, bson.TypeJavaScript: classCode,
	bson.TypeCodeWithScope: classScope, bson.TypeMaxKey: classMaxKey,
}

func classOf(t bson.Type) class { return classes[t] }

// Compare returns the order in which a server without a collation sorts two values: -1, 0 or 1.
func Compare(v, w bson.Value) int { return (&evaluation{}).compare(v, w) }

// compare returns the order of two values: by their classes first. Texts compare by their bytes,
// and NaN is below all numbers. It takes the steps of Decimal128s.
func (e *evaluation) compare(v, w bson.Value) int {
	a := classOf(v.Type)
	if c := cmp.Compare(a, classOf(w.Type)); c != 0 {
		return c
	}
	switch a {
	case classNumber:
		return e.compareNumbers(v, w)
	case classText, classCode: // a length, the text and a zero byte
		return bytes.Compare(v.Data[4:], w.Data[4:])
	case classDocument, classArray:
		return e.compareDocuments(v.Data, w.Data, a == classDocument)
	case classBinary:
		if c := cmp.Compare(len(v.Data), len(w.Data)); c != 0 {
			return c
		}
		return bytes.Compare(v.Data[4:], w.Data[4:])
	case classDate:
		x, _ := v.DateTime()
		y, _ := w.DateTime()
		return cmp.Compare(x, y)
	case classTimestamp:
		return cmp.Compare(binary.LittleEndian.Uint64(v.Data), binary.LittleEndian.Uint64(w.Data))
	case classRegex:
		p, options, _ := v.Regex()
		q, others, _ := w.Regex()
		return cmp.Or(strings.Compare(p, q), strings.Compare(options, others))
	case classPointer:
		return cmp.Or(cmp.Compare(len(v.Data), len(w.Data)), bytes.Compare(v.Data, w.Data))
	case classScope:
		p, scope, _ := v.CodeWithScope()
		q, other, _ := w.CodeWithScope()
		return cmp.Or(strings.Compare(p, q), e.compareDocuments(scope, other, true))
	default: // ObjectIDs and booleans; the others have no bytes
		return bytes.Compare(v.Data, w.Data)
	}
}

// compareDocuments compares element by element: the class, the key if keys count, and the value.
func (e *evaluation) compareDocuments(d, f bson.Raw, keys bool) int {
	a, b := d.Iter(), f.Iter()
	for {
		more, others := a.Next(), b.Next()
		switch {
		case !more && !others:
			return 0
		case !more:
			return -1
		case !others:
			return 1
		}
		v, w := a.Value(), b.Value()
		if c := cmp.Compare(classOf(v.Type), classOf(w.Type)); c != 0 {
			return c
		}
		if keys && a.Key() != b.Key() {
			return strings.Compare(a.Key(), b.Key())
		}
		if c := e.compare(v, w); c != 0 {
			return c
		}
	}
}

// decimalSteps is how many more steps a comparison with a Decimal128 takes.
const decimalSteps = 16

// compareNumbers compares by value, without rounding.
func (e *evaluation) compareNumbers(v, w bson.Value) int {
	if v.Type == bson.TypeDecimal128 || w.Type == bson.TypeDecimal128 {
		e.steps -= decimalSteps
		return exact(v).compare(exact(w))
	}
	x, isDouble := v.Double()
	y, isDouble2 := w.Double()
	switch {
	case isDouble && isDouble2:
		return cmp.Compare(x, y) // NaN is equal to itself and below all others
	case isDouble:
		n, _ := w.AsInt64()
		return -compareToDouble(n, x)
	case isDouble2:
		n, _ := v.AsInt64()
		return compareToDouble(n, y)
	}
	n, _ := v.AsInt64()
	m, _ := w.AsInt64()
	return cmp.Compare(n, m)
}

func compareToDouble(n int64, f float64) int {
	switch {
	case f != f || f < -1<<63:
		return 1
	case f >= 1<<63:
		return -1
	}
	t := math.Trunc(f)
	return cmp.Or(cmp.Compare(n, int64(t)), cmp.Compare(t, f))
}

func isNaN(v bson.Value) bool {
	if d, ok := v.Decimal128(); ok {
		return d.IsNaN()
	}
	f, ok := v.Double()
	return ok && f != f
}
