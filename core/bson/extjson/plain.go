package extjson

import "github.com/mooringdb/mooring/core/bson"

// plain writes what the Atlas Data API wrote for the types that are not JSON
// types: the fields of its own structures, without their types.
func (w *writer) plain(dst []byte, t bson.Type, pos, limit, depth int) ([]byte, int) {
	switch t {
	case bson.TypeBinary:
		return w.binary(dst, pos, limit, `{"Subtype":`)
	case bson.TypeUndefined, bson.TypeMinKey, bson.TypeMaxKey:
		return append(dst, "{}"...), pos
	case bson.TypeRegex:
		return w.regex(dst, pos, limit, `{"Pattern":`, `,"Options":`, `}`)
	case bson.TypeDBPointer:
		dst, pos = w.text(append(dst, `{"DB":`...), pos, limit)
		if pos < 0 || limit-pos < 12 {
			return w.truncated(dst, pos)
		}
		dst = w.objectID(append(dst, `,"Pointer":`...), w.src[pos:pos+12])
		return append(dst, '}'), pos + 12
	case bson.TypeJavaScript, bson.TypeSymbol:
		return w.text(dst, pos, limit)
	case bson.TypeCodeWithScope:
		return w.codeWithScope(dst, pos, limit, depth, `{"Code":`, `,"Scope":`)
	case bson.TypeDecimal128:
		if limit-pos < 16 {
			return w.fail(dst, pos, problemTruncated)
		}
		return append(w.decimal(append(dst, '"'), pos), '"'), pos + 16
	}
	return w.fail(dst, pos, problemType)
}

// appendPlainDate writes any date with milliseconds. Years of more than four
// digits have a sign, as in JavaScript.
func appendPlainDate(dst []byte, ms int64) []byte {
	if ms >= minDate && ms <= maxDate {
		return appendDate(dst, ms, true)
	}
	days, rest := floorDiv(ms, msPerDay)
	year, month, day := civil(days)
	sign := byte('+')
	if year < 0 {
		sign, year = '-', -year
	}
	dst = append(dst, sign)
	for width := int64(100_000); width > year && width > 1; width /= 10 {
		dst = append(dst, '0')
	}
	dst = appendInt(dst, year)
	return appendMonth(dst, month, day, rest, true)
}
