package bson

import (
	"bytes"
	"encoding/binary"
	"math"
	"time"
)

// Value holds one value: its type, and its bytes without type and key. A Value that this package
// returns has as many bytes in Data as its type requires. The zero Value is no value; see IsZero.
//
// Each accessor reports false if the value has another type. The strings, documents and bytes that
// it returns are views on Data.
type Value struct {
	Type Type
	Data []byte
}

// IsZero reports whether v is the zero Value, which is no value. A BSON null and the number 0 are
// values.
func (v Value) IsZero() bool { return v.Type == 0 }

// IsNull reports whether v is null.
func (v Value) IsNull() bool { return v.Type == TypeNull }

// Equal reports whether v and w are of one type and have the same bytes.
func (v Value) Equal(w Value) bool { return v.Type == w.Type && bytes.Equal(v.Data, w.Data) }

// Clone returns a copy of v that shares no bytes with it.
func (v Value) Clone() Value { return Value{v.Type, append([]byte(nil), v.Data...)} }

// Validate checks the value as Raw.Validate checks a document. The zero Value is
// not valid.
func (v Value) Validate() error {
	if v.IsZero() {
		return &ValidationError{Problem: problemType}
	}
	var b Builder
	return b.Value("", v).Finish().Validate()
}

func (v Value) fixed(t Type) bool { return v.Type == t && len(v.Data) == int(layouts[t]) }

func (v Value) text(t Type) (string, bool) {
	if v.Type != t || len(v.Data) < 5 {
		return "", false
	}
	return view(v.Data[4 : len(v.Data)-1]), true
}

// Double returns the number of a double.
func (v Value) Double() (float64, bool) {
	if !v.fixed(TypeDouble) {
		return 0, false
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(v.Data)), true
}

// Str returns the text of a string, a view.
func (v Value) Str() (string, bool) { return v.text(TypeString) }

// Document returns an embedded document.
func (v Value) Document() (Raw, bool) {
	if v.Type != TypeDocument {
		return nil, false
	}
	return v.Data, true
}

// Array returns an array.
func (v Value) Array() (Array, bool) {
	if v.Type != TypeArray {
		return nil, false
	}
	return v.Data, true
}

// Binary returns subtype and payload of a binary; of the old subtype 2 the
// payload without its inner length.
func (v Value) Binary() (subtype byte, data []byte, ok bool) {
	if v.Type != TypeBinary || len(v.Data) < 5 {
		return 0, nil, false
	}
	subtype, data = v.Data[4], v.Data[5:]
	if subtype == SubtypeBinaryOld && len(data) >= 4 {
		data = data[4:]
	}
	return subtype, data, true
}

// ObjectID returns an ObjectId.
func (v Value) ObjectID() (ObjectID, bool) {
	if !v.fixed(TypeObjectID) {
		return ObjectID{}, false
	}
	return ObjectID(v.Data), true
}

// Bool returns a boolean.
func (v Value) Bool() (value, ok bool) {
	if !v.fixed(TypeBool) {
		return false, false
	}
	return v.Data[0] != 0, true
}

// DateTime returns a date as milliseconds since 1970.
func (v Value) DateTime() (int64, bool) {
	if !v.fixed(TypeDateTime) {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(v.Data)), true
}

// Time returns a date in UTC.
func (v Value) Time() (time.Time, bool) {
	ms, ok := v.DateTime()
	if !ok {
		return time.Time{}, false
	}
	return time.UnixMilli(ms).UTC(), true
}

// Regex returns pattern and options of a regular expression.
func (v Value) Regex() (pattern, options string, ok bool) {
	if v.Type != TypeRegex {
		return "", "", false
	}
	n := cstringLen(v.Data)
	if n < 0 || n+2 > len(v.Data) {
		return "", "", false
	}
	return view(v.Data[:n]), view(v.Data[n+1 : len(v.Data)-1]), true
}

// DBPointer returns namespace and id of the deprecated DBPointer.
func (v Value) DBPointer() (namespace string, id ObjectID, ok bool) {
	if v.Type != TypeDBPointer || len(v.Data) < 17 {
		return "", ObjectID{}, false
	}
	n := len(v.Data) - 12
	return view(v.Data[4 : n-1]), ObjectID(v.Data[n:]), true
}

// JavaScript returns the text of code without scope.
func (v Value) JavaScript() (string, bool) { return v.text(TypeJavaScript) }

// Symbol returns the text of the deprecated symbol.
func (v Value) Symbol() (string, bool) { return v.text(TypeSymbol) }

// CodeWithScope returns code and its scope.
func (v Value) CodeWithScope() (code string, scope Raw, ok bool) {
	if v.Type != TypeCodeWithScope || len(v.Data) < minScope {
		return "", nil, false
	}
	n := readInt32(v.Data[4:])
	if n < 1 || n > len(v.Data)-8-minDocument {
		return "", nil, false
	}
	return view(v.Data[8 : 7+n]), v.Data[8+n:], true
}

// Int32 returns a 32-bit integer.
func (v Value) Int32() (int32, bool) {
	if !v.fixed(TypeInt32) {
		return 0, false
	}
	return int32(binary.LittleEndian.Uint32(v.Data)), true
}

// Timestamp returns seconds and increment of the internal timestamp.
func (v Value) Timestamp() (t, i uint32, ok bool) {
	if !v.fixed(TypeTimestamp) {
		return 0, 0, false
	}
	return binary.LittleEndian.Uint32(v.Data[4:]), binary.LittleEndian.Uint32(v.Data), true
}

// Int64 returns a 64-bit integer.
func (v Value) Int64() (int64, bool) {
	if !v.fixed(TypeInt64) {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(v.Data)), true
}

// Decimal128 returns a decimal number.
func (v Value) Decimal128() (Decimal128, bool) {
	if !v.fixed(TypeDecimal128) {
		return Decimal128{}, false
	}
	h, l := binary.LittleEndian.Uint64(v.Data[8:]), binary.LittleEndian.Uint64(v.Data)
	return Decimal128{H: h, L: l}, true
}

// AsInt64 returns an int32, an int64, or a double that is a whole number in the range of int64.
func (v Value) AsInt64() (int64, bool) {
	if n, ok := v.Int32(); ok {
		return int64(n), true
	}
	if n, ok := v.Int64(); ok {
		return n, true
	}
	f, ok := v.Double()
	if !ok || f != math.Trunc(f) || f < -1<<63 || f >= 1<<63 {
		return 0, false
	}
	return int64(f), true
}

// AsDouble returns a double, an int32, or an int64, which it rounds. A Decimal128 is not converted.
func (v Value) AsDouble() (float64, bool) {
	if f, ok := v.Double(); ok {
		return f, true
	}
	n, ok := v.AsInt64()
	return float64(n), ok
}

// Truthy reports whether v is true, or a number that is not zero: what a server
// means by ok: 1.
func (v Value) Truthy() bool {
	if b, ok := v.Bool(); ok {
		return b
	}
	f, ok := v.AsDouble()
	return ok && f != 0
}
