package bson

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"
)

// UUID holds a universally unique identifier in the byte order of RFC 4122. A UUID in a document
// is a binary, and is converted only on request.
type UUID [16]byte

// UUIDRepresentation names a way in which drivers have stored UUIDs as binaries.
type UUIDRepresentation uint8

// The representations. The standard one is binary subtype 4; the legacy ones are
// subtype 3 and differ in the order of bytes.
const (
	UUIDUnspecified UUIDRepresentation = iota
	UUIDStandard
	UUIDCSharpLegacy
	UUIDJavaLegacy
	UUIDPythonLegacy
)

var uuidRepresentations = [...]string{
	"unspecified", "standard", "csharpLegacy", "javaLegacy", "pythonLegacy",
}

// String returns the representation's name in a connection string.
func (r UUIDRepresentation) String() string { return uuidRepresentations[r] }

// The errors of UUIDs.
var (
	ErrUUIDSyntax         = errors.New("bson: not a UUID")
	ErrUUIDRepresentation = errors.New("bson: binary is not a UUID of this representation")
	ErrUUIDUnspecified    = errors.New("bson: unspecified UUID representation")
)

// ParseUUID reads 36 characters with hyphens or 32 without, of either case, and
// takes a URN's prefix.
func ParseUUID(s string) (UUID, error) {
	s = strings.TrimPrefix(s, "urn:uuid:")
	var digits [32]byte
	switch {
	case len(s) == 32:
		copy(digits[:], s)
	case len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-':
		copy(digits[0:], s[0:8])
		copy(digits[8:], s[9:13])
		copy(digits[12:], s[14:18])
		copy(digits[16:], s[19:23])
		copy(digits[20:], s[24:])
	default:
		return UUID{}, ErrUUIDSyntax
	}
	var u UUID
	if _, err := hex.Decode(u[:], digits[:]); err != nil {
		return UUID{}, ErrUUIDSyntax
	}
	return u, nil
}

// String returns the canonical text: lower case, with hyphens.
func (u UUID) String() string {
	b := make([]byte, 0, 36)
	for i, part := range [...][]byte{u[0:4], u[4:6], u[6:8], u[8:10], u[10:]} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, part)
	}
	return string(b)
}

// Value returns u as a binary. If r is UUIDUnspecified, the error is ErrUUIDUnspecified.
func (u UUID) Value(r UUIDRepresentation) (Value, error) {
	switch r {
	case UUIDStandard:
		return BinaryValue(SubtypeUUID, u[:]), nil
	case UUIDCSharpLegacy, UUIDJavaLegacy, UUIDPythonLegacy:
		u = u.reorder(r)
		return BinaryValue(SubtypeUUIDOld, u[:]), nil
	default:
		return Value{}, ErrUUIDUnspecified
	}
}

// UUID reads a binary as a UUID. If v does not have the subtype of the representation and 16 bytes,
// the error is ErrUUIDRepresentation; if r is UUIDUnspecified, it is ErrUUIDUnspecified.
func (v Value) UUID(r UUIDRepresentation) (UUID, error) {
	if r == UUIDUnspecified {
		return UUID{}, ErrUUIDUnspecified
	}
	want := SubtypeUUIDOld
	if r == UUIDStandard {
		want = SubtypeUUID
	}
	subtype, data, ok := v.Binary()
	if !ok || subtype != want || len(data) != 16 {
		return UUID{}, ErrUUIDRepresentation
	}
	return UUID(data).reorder(r), nil
}

// reorder moves the bytes between the standard order and a legacy one, which is
// its own inverse.
func (u UUID) reorder(r UUIDRepresentation) UUID {
	switch r {
	case UUIDCSharpLegacy:
		slices.Reverse(u[0:4])
		slices.Reverse(u[4:6])
		slices.Reverse(u[6:8])
	case UUIDJavaLegacy:
		slices.Reverse(u[0:8])
		slices.Reverse(u[8:16])
	case UUIDUnspecified, UUIDStandard, UUIDPythonLegacy:
	}
	return u
}
