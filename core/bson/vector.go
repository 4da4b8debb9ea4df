package bson

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// VectorType names the type of a vector's elements: the specification's dtype.
type VectorType byte

// The element types.
const (
	VectorInt8      VectorType = 0x03
	VectorFloat32   VectorType = 0x27
	VectorPackedBit VectorType = 0x10 // eight elements of one bit in each byte
)

// String returns the type's name in the specification.
func (t VectorType) String() string {
	switch t {
	case VectorInt8:
		return "INT8"
	case VectorFloat32:
		return "FLOAT32"
	case VectorPackedBit:
		return "PACKED_BIT"
	}
	return fmt.Sprintf("vector type 0x%02x", byte(t))
}

// Vector holds a dense vector of numbers of one type: binary subtype 9. It is a view on the packed
// elements.
type Vector struct {
	Type VectorType
	// Padding counts the low bits of the last byte that are not elements. Only PACKED_BIT has any,
	// and they must be 0.
	Padding int
	Data    []byte // elements, packed, little-endian
}

// The errors of vectors.
var (
	ErrVectorType    = errors.New("bson: not a vector of a known type")
	ErrVectorPadding = errors.New("bson: vector has a padding that its type or length forbids")
	ErrVectorBits    = errors.New("bson: vector has a padding bit that is not zero")
	ErrVectorLength  = errors.New("bson: vector ends within an element")
	ErrVectorElement = errors.New("bson: vector element does not fit its type")
)

// NewVector packs numbers. INT8 takes integers from -128 to 127, PACKED_BIT bytes from 0 to 255 of
// eight elements each, and FLOAT32 any number in its range, which it rounds. For other values the
// error is ErrVectorElement; otherwise NewVector fails where Validate does.
func NewVector(t VectorType, values []float64, padding int) (Vector, error) {
	v := Vector{Type: t, Padding: padding}
	low, high := -128.0, 127.0
	if t == VectorPackedBit {
		low, high = 0, 255
	}
	for _, x := range values {
		if t == VectorFloat32 {
			if f := float32(x); math.IsInf(float64(f), 0) && !math.IsInf(x, 0) {
				return Vector{}, ErrVectorElement
			}
			v.Data = binary.LittleEndian.AppendUint32(v.Data, math.Float32bits(float32(x)))
			continue
		}
		if x != math.Trunc(x) || x < low || x > high {
			return Vector{}, ErrVectorElement
		}
		v.Data = append(v.Data, byte(int(x)))
	}
	return v, v.Validate()
}

// NewFloat32Vector packs a FLOAT32 vector.
func NewFloat32Vector(values []float32) Vector {
	data := make([]byte, 0, 4*len(values))
	for _, x := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return Vector{Type: VectorFloat32, Data: data}
}

// Validate checks the type, the padding with the bits that it excludes, and the length.
func (v Vector) Validate() error {
	switch v.Type {
	case VectorInt8, VectorFloat32, VectorPackedBit:
	default:
		return ErrVectorType
	}
	if v.Padding != 0 &&
		(v.Type != VectorPackedBit || v.Padding < 0 || v.Padding > 7 || len(v.Data) == 0) {
		return ErrVectorPadding
	}
	if v.Padding != 0 && v.Data[len(v.Data)-1]&(1<<v.Padding-1) != 0 {
		return ErrVectorBits
	}
	if v.Type == VectorFloat32 && len(v.Data)%4 != 0 {
		return ErrVectorLength
	}
	return nil
}

// Value returns v as a binary. It fails where Validate does.
func (v Vector) Value() (Value, error) {
	if err := v.Validate(); err != nil {
		return Value{}, err
	}
	return BinaryValue(SubtypeVector, append([]byte{byte(v.Type), byte(v.Padding)}, v.Data...)), nil
}

// Vector returns the vector in a binary of subtype 9. It fails where Validate does.
func (v Value) Vector() (Vector, error) {
	subtype, data, ok := v.Binary()
	if !ok || subtype != SubtypeVector || len(data) < 2 {
		return Vector{}, ErrVectorType
	}
	vector := Vector{Type: VectorType(data[0]), Padding: int(data[1]), Data: data[2:]}
	return vector, vector.Validate()
}

// Len returns the number of elements.
func (v Vector) Len() int {
	switch v.Type {
	case VectorFloat32:
		return len(v.Data) / 4
	case VectorPackedBit:
		return len(v.Data)*8 - v.Padding
	default:
		return len(v.Data)
	}
}

// At returns element i of a vector of any type; that of PACKED_BIT is 0 or 1. i must be from 0 to
// Len()-1, and the vector valid.
func (v Vector) At(i int) float64 {
	switch v.Type {
	case VectorFloat32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.Data[4*i:])))
	case VectorPackedBit:
		return float64(v.Data[i/8] >> (7 - i%8) & 1)
	default:
		return float64(int8(v.Data[i]))
	}
}

// Equal reports whether v and w have the same type, padding and elements.
func (v Vector) Equal(w Vector) bool {
	return v.Type == w.Type && v.Padding == w.Padding && bytes.Equal(v.Data, w.Data)
}
