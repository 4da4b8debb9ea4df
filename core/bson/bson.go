// Package bson reads, checks, builds and edits BSON documents as bytes.
//
// A document is a Raw and a value is a Value. Both are views of bytes that the
// caller owns, and neither may be changed while it is in use. Nothing is decoded
// into maps or structs, nothing uses reflection, and reading does not allocate.
// Returned strings are views too: they are valid as long as the bytes under
// them do not change.
//
// Walking a document is safe on any input: the walk stops at the first malformed
// element. Validate checks a whole document. Call it once for each document that
// comes from outside: the other functions do not check documents again.
//
// Only Reader does I/O. Package extjson writes and reads JSON.
package bson

import "strconv"

// Type holds the type byte of a BSON element. The zero value is not a type.
type Type byte

// The types of BSON 1.1. Undefined, DBPointer and Symbol are deprecated; they
// are carried unchanged.
const (
	TypeDouble        Type = 0x01
	TypeString        Type = 0x02
	TypeDocument      Type = 0x03
	TypeArray         Type = 0x04
	TypeBinary        Type = 0x05
	TypeUndefined     Type = 0x06
	TypeObjectID      Type = 0x07
	TypeBool          Type = 0x08
	TypeDateTime      Type = 0x09
	TypeNull          Type = 0x0A
	TypeRegex         Type = 0x0B
	TypeDBPointer     Type = 0x0C
	TypeJavaScript    Type = 0x0D
	TypeSymbol        Type = 0x0E
	TypeCodeWithScope Type = 0x0F
	TypeInt32         Type = 0x10
	TypeTimestamp     Type = 0x11
	TypeInt64         Type = 0x12
	TypeDecimal128    Type = 0x13
	TypeMaxKey        Type = 0x7F
	TypeMinKey        Type = 0xFF
)

// Binary subtypes that the specification names; 0x80 and above are free.
const (
	SubtypeGeneric   byte = 0x00
	SubtypeFunction  byte = 0x01
	SubtypeBinaryOld byte = 0x02
	SubtypeUUIDOld   byte = 0x03
	SubtypeUUID      byte = 0x04
	SubtypeMD5       byte = 0x05
	SubtypeEncrypted byte = 0x06
	SubtypeColumn    byte = 0x07
	SubtypeSensitive byte = 0x08
	SubtypeVector    byte = 0x09
)

// MaxDepth is how deeply documents and arrays may nest, the outermost counted.
const MaxDepth = 200

// MaxDocumentSize is the largest document that a Reader takes unless told
// otherwise: what a server stores, and 16 KiB of room for a command around it.
const MaxDocumentSize = 16<<20 + 16<<10

// minDocument is the size of the empty document: a length and a terminator.
const minDocument = 5

var typeNames = [...]string{
	TypeDouble: "double", TypeString: "string", TypeDocument: "object", TypeArray: "array",
	TypeBinary: "binData", TypeUndefined: "undefined", TypeObjectID: "objectId", TypeBool: "bool",
	TypeDateTime: "date", TypeNull: "null", TypeRegex: "regex", TypeDBPointer: "dbPointer",
	TypeJavaScript: "javascript", TypeSymbol: "symbol", TypeCodeWithScope: "javascriptWithScope",
	TypeInt32: "int", TypeTimestamp: "timestamp", TypeInt64: "long", TypeDecimal128: "decimal",
}

// String returns the alias that the $type operator knows the type by.
func (t Type) String() string {
	switch {
	case t == TypeMaxKey:
		return "maxKey"
	case t == TypeMinKey:
		return "minKey"
	case t != 0 && int(t) < len(typeNames):
		return typeNames[t]
	}
	return "type(0x" + strconv.FormatUint(uint64(t), 16) + ")"
}

// IsValid reports whether t is a type of BSON 1.1.
func (t Type) IsValid() bool { return layouts[t] != layoutInvalid }
