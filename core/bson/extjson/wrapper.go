package extjson

import "github.com/mooringdb/mooring/core/bson"

// kind names a key that only type wrappers have.
type kind uint8

const (
	notSpecial kind = iota
	kindOID
	kindSymbol
	kindInt
	kindLong
	kindDouble
	kindDecimal
	kindBinary
	kindCode
	kindScope
	kindTimestamp
	kindRegex
	kindDBPointer
	kindDate
	kindMinKey
	kindMaxKey
	kindUndefined
	kindUUID
	numKinds
)

var kindNames = [numKinds]string{
	kindOID: "$oid", kindSymbol: "$symbol", kindInt: "$numberInt", kindLong: "$numberLong",
	kindDouble: "$numberDouble", kindDecimal: "$numberDecimal", kindBinary: "$binary",
	kindCode: "$code", kindScope: "$scope", kindTimestamp: "$timestamp",
	kindRegex: "$regularExpression", kindDBPointer: "$dbPointer", kindDate: "$date",
	kindMinKey: "$minKey", kindMaxKey: "$maxKey", kindUndefined: "$undefined", kindUUID: "$uuid",
}

func (k kind) String() string { return kindNames[k] }

// specialKey returns the kind of a key that begins with '$'.
func specialKey(key []byte) kind {
	switch string(key) {
	case "$oid":
		return kindOID
	case "$date":
		return kindDate
	case "$numberInt":
		return kindInt
	case "$numberLong":
		return kindLong
	case "$numberDouble":
		return kindDouble
	case "$numberDecimal":
		return kindDecimal
	case "$binary":
		return kindBinary
	case "$code":
		return kindCode
	case "$scope":
		return kindScope
	case "$timestamp":
		return kindTimestamp
	case "$regularExpression":
		return kindRegex
	case "$dbPointer":
		return kindDBPointer
	case "$minKey":
		return kindMinKey
	case "$maxKey":
		return kindMaxKey
	case "$undefined":
		return kindUndefined
	case "$uuid":
		return kindUUID
	case "$symbol":
		return kindSymbol
	}
	return notSpecial
}

// wrapperAt returns the kind of the wrapper at the beginning of src, and the number of bytes
// before its colon, if the wrapper has no white space and no escapes, as is usual. In canonical
// text every second object is a wrapper.
func wrapperAt(src []byte) (k kind, n int) {
	const opening, longest = `{"$`, `{"$regularExpression"`
	if len(src) < len(longest) || string(src[:len(opening)]) != opening {
		return notSpecial, 0
	}
	for n = len(opening); n < len(longest); n++ {
		if src[n] == '"' {
			return specialKey(src[2:n]), n + 1
		}
	}
	return notSpecial, 0
}

// wrapper reads the rest of a type wrapper whose first key has just been read,
// and appends the value that it stands for.
func (p *parser) wrapper(k kind) (bson.Type, bool) {
	if !p.colon() {
		return 0, false
	}
	t, ok := p.wrapped(k)
	if !ok {
		return 0, false
	}
	switch p.skip() {
	case '}':
		p.pos++
		return t, true
	case ',':
		return 0, p.fail(p.pos, k.String()+" beside other keys")
	}
	return 0, p.expected("'}' after " + k.String())
}

func (p *parser) wrapped(k kind) (bson.Type, bool) {
	switch k {
	case kindOID:
		return bson.TypeObjectID, p.objectID()
	case kindSymbol:
		return bson.TypeSymbol, p.stringOf(k) && p.text()
	case kindInt:
		return bson.TypeInt32, p.wrappedInt(k, 32)
	case kindLong:
		return bson.TypeInt64, p.wrappedInt(k, 64)
	case kindDouble:
		return bson.TypeDouble, p.wrappedDouble()
	case kindDecimal:
		return bson.TypeDecimal128, p.decimal()
	case kindBinary:
		return bson.TypeBinary, p.binary()
	case kindCode:
		return p.code()
	case kindScope:
		return bson.TypeCodeWithScope, p.scopeFirst()
	case kindTimestamp:
		return bson.TypeTimestamp, p.timestamp()
	case kindRegex:
		return bson.TypeRegex, p.regex()
	case kindDBPointer:
		return bson.TypeDBPointer, p.dbPointer()
	case kindDate:
		return bson.TypeDateTime, p.date()
	case kindMinKey:
		return bson.TypeMinKey, p.one(k)
	case kindMaxKey:
		return bson.TypeMaxKey, p.one(k)
	case kindUndefined:
		if p.pos >= len(p.src) || p.src[p.pos] != 't' || !p.literal("true") {
			return 0, p.fail(p.pos, "$undefined must be true")
		}
		return bson.TypeUndefined, true
	case kindUUID:
		return bson.TypeBinary, p.uuid()
	default:
		panic("bug: extjson: no wrapper " + k.String())
	}
}
