package bson

import (
	"encoding/binary"
	"math"
	"time"
)

// Constructors of single values. Strings and documents are copied where the
// layout demands it, and else referred to. What cannot be laid out (a zero byte
// in a regular expression) gives the zero Value.

func fixed64(t Type, n uint64) Value {
	return Value{t, binary.LittleEndian.AppendUint64(nil, n)}
}

func text(t Type, s string) Value {
	b := make([]byte, 0, len(s)+5)
	return Value{t, appendString(b, s)}
}

// DoubleValue makes a double.
func DoubleValue(f float64) Value { return fixed64(TypeDouble, math.Float64bits(f)) }

// StringValue makes a string.
func StringValue(s string) Value { return text(TypeString, s) }

// DocumentValue makes an embedded document; nil is the empty one.
func DocumentValue(d Raw) Value { return Value{TypeDocument, orEmpty(d)} }

// ArrayValue makes an array; nil is the empty one.
func ArrayValue(a Array) Value { return Value{TypeArray, orEmpty(a)} }

// BinaryValue makes a binary of a subtype.
func BinaryValue(subtype byte, data []byte) Value {
	return Value{TypeBinary, appendBinary(make([]byte, 0, len(data)+9), subtype, data)}
}

// UndefinedValue makes the deprecated undefined.
func UndefinedValue() Value { return Value{Type: TypeUndefined} }

// ObjectIDValue makes an ObjectId.
func ObjectIDValue(id ObjectID) Value { return Value{TypeObjectID, append([]byte(nil), id[:]...)} }

// BoolValue makes a boolean.
func BoolValue(b bool) Value { return Value{TypeBool, appendBool(nil, b)} }

// DateTimeValue makes a date from milliseconds since 1970.
func DateTimeValue(ms int64) Value { return fixed64(TypeDateTime, uint64(ms)) }

// TimeValue makes a date; what is finer than a millisecond is cut off.
func TimeValue(t time.Time) Value { return DateTimeValue(t.UnixMilli()) }

// NullValue makes a null.
func NullValue() Value { return Value{Type: TypeNull} }

// RegexValue makes a regular expression, its options sorted. It returns the zero Value if pattern
// or options have a zero byte.
func RegexValue(pattern, options string) Value {
	b, err := appendRegex(nil, pattern, options)
	if err != nil {
		return Value{}
	}
	return Value{TypeRegex, b}
}

// DBPointerValue makes the deprecated DBPointer.
func DBPointerValue(namespace string, id ObjectID) Value {
	return Value{TypeDBPointer, append(appendString(nil, namespace), id[:]...)}
}

// JavaScriptValue makes code without scope.
func JavaScriptValue(code string) Value { return text(TypeJavaScript, code) }

// SymbolValue makes the deprecated symbol.
func SymbolValue(s string) Value { return text(TypeSymbol, s) }

// CodeWithScopeValue makes code with its scope.
func CodeWithScopeValue(code string, scope Raw) Value {
	return Value{TypeCodeWithScope, appendCodeWithScope(nil, code, scope)}
}

// Int32Value makes a 32-bit integer.
func Int32Value(n int32) Value {
	return Value{TypeInt32, binary.LittleEndian.AppendUint32(nil, uint32(n))}
}

// TimestampValue makes the internal timestamp from seconds and increment.
func TimestampValue(t, i uint32) Value { return fixed64(TypeTimestamp, uint64(t)<<32|uint64(i)) }

// Int64Value makes a 64-bit integer.
func Int64Value(n int64) Value { return fixed64(TypeInt64, uint64(n)) }

// Decimal128Value makes a decimal number.
func Decimal128Value(d Decimal128) Value { return Value{TypeDecimal128, appendDecimal128(nil, d)} }

// MinKeyValue makes MinKey, which sorts before all other values.
func MinKeyValue() Value { return Value{Type: TypeMinKey} }

// MaxKeyValue makes MaxKey, which sorts after all other values.
func MaxKeyValue() Value { return Value{Type: TypeMaxKey} }
