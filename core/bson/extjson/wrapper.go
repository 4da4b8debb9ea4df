package extjson

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
)

// kind is a key that belongs to a type wrapper and to nothing else.
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

func (p *parser) colon() bool {
	if p.skip() != ':' {
		return p.expected("':'")
	}
	p.pos++
	p.skip()
	return true
}

// stringOf checks that a string begins at pos.
func (p *parser) stringOf(k kind) bool {
	if p.pos >= len(p.src) || p.src[p.pos] != '"' {
		return p.fail(p.pos, k.String()+" must be a string")
	}
	return true
}

// argument reads the string that is the value of a wrapper.
func (p *parser) argument(k kind) ([]byte, bool) {
	if !p.stringOf(k) {
		return nil, false
	}
	t, ok := p.token()
	if !ok {
		return nil, false
	}
	return p.bytes(t)
}

func (p *parser) objectID() bool {
	begin := p.pos
	s, ok := p.argument(kindOID)
	if !ok {
		return false
	}
	if len(s) != 24 {
		return p.fail(begin, "$oid must have 24 hexadecimal digits")
	}
	for i := 0; i < 24; i += 2 {
		high, low := unhex(s[i]), unhex(s[i+1])
		if high|low > 15 {
			return p.fail(begin, "$oid must have 24 hexadecimal digits")
		}
		p.dst = append(p.dst, high<<4|low)
	}
	return true
}

func (p *parser) wrappedInt(k kind, size int) bool {
	begin := p.pos
	s, ok := p.argument(k)
	if !ok {
		return false
	}
	n, ok := parseInt(s)
	switch {
	case !ok || size == 32 && n != int64(int32(n)):
		return p.fail(begin, k.String()+" must be an integer of its size")
	case size == 32:
		p.dst = binary.LittleEndian.AppendUint32(p.dst, uint32(n))
	default:
		p.dst = binary.LittleEndian.AppendUint64(p.dst, uint64(n))
	}
	return true
}

// parseInt reads [-]digits.
func parseInt(s []byte) (int64, bool) {
	if len(s) == 0 || len(s) > 18 || s[0] == '+' {
		if len(s) > 0 && s[0] == '+' {
			return 0, false
		}
		n, err := strconv.ParseInt(view(s), 10, 64)
		return n, err == nil
	}
	digits := s
	if s[0] == '-' {
		digits = s[1:]
	}
	var n int64
	for _, c := range digits {
		if c-'0' > 9 {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if s[0] == '-' {
		n = -n
	}
	return n, len(digits) > 0
}

func (p *parser) wrappedDouble() bool {
	begin := p.pos
	s, ok := p.argument(kindDouble)
	if !ok {
		return false
	}
	f, ok := parseDouble(s)
	if !ok {
		return p.fail(begin, "$numberDouble must be a double")
	}
	p.dst = binary.LittleEndian.AppendUint64(p.dst, math.Float64bits(f))
	return true
}

func parseDouble(s []byte) (float64, bool) {
	switch string(s) {
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	case "NaN":
		return math.Float64frombits(0x7FF8 << 48), true
	}
	for _, c := range s { // strconv takes more: hexadecimal, underscores, words
		if c-'0' > 9 && c != '.' && c != '-' && c != '+' && c|0x20 != 'e' {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(view(s), 64)
	return f, err == nil
}

func (p *parser) decimal() bool {
	begin := p.pos
	s, ok := p.argument(kindDecimal)
	if !ok {
		return false
	}
	d, err := bson.ParseDecimal128(view(s))
	switch {
	case errors.Is(err, bson.ErrDecimal128Range):
		return p.fail(begin, "$numberDecimal is out of range")
	case errors.Is(err, bson.ErrDecimal128Inexact):
		return p.fail(begin, "$numberDecimal has more than 34 digits")
	case err != nil:
		return p.fail(begin, "$numberDecimal must be a decimal number")
	}
	p.dst = binary.LittleEndian.AppendUint64(p.dst, d.L)
	p.dst = binary.LittleEndian.AppendUint64(p.dst, d.H)
	return true
}

func (p *parser) date() bool {
	if p.pos < len(p.src) && p.src[p.pos] == '{' {
		return p.dateLong()
	}
	begin := p.pos
	if begin >= len(p.src) || p.src[begin] != '"' {
		return p.fail(begin, `$date must be a string or {"$numberLong": …}`)
	}
	s, ok := p.argument(kindDate)
	if !ok {
		return false
	}
	ms, ok := parseDate(s)
	if !ok {
		return p.fail(begin, "$date must be as in RFC 3339, with at most milliseconds")
	}
	p.dst = binary.LittleEndian.AppendUint64(p.dst, uint64(ms))
	return true
}

// dateLong reads {"$numberLong": "…"}.
func (p *parser) dateLong() bool {
	begin := p.pos
	key, ok := p.member(true)
	if !ok {
		return false
	}
	if string(key) != "$numberLong" {
		return p.fail(begin, `$date must be a string or {"$numberLong": …}`)
	}
	return p.wrappedInt(kindLong, 64) && p.end(kindLong)
}

// member goes to the first or the next member of the object at pos, reads its
// key and stops before its value. The key is valid until the next token; nil at
// the object's end.
func (p *parser) member(first bool) (key []byte, ok bool) {
	if first {
		p.pos++ // the brace
	}
	c := p.skip()
	if c == '}' {
		p.pos++
		return nil, true
	}
	if !first {
		if c != ',' {
			return nil, p.expected("',' or '}'")
		}
		p.pos++
		c = p.skip()
	}
	if c != '"' {
		return nil, p.expected("a key in quotes")
	}
	t, ok := p.token()
	if !ok {
		return nil, false
	}
	if key, ok = p.bytes(t); !ok {
		return nil, false
	}
	return key[:len(key):len(key)], p.colon()
}

// end reads the brace that ends an object.
func (p *parser) end(k kind) bool {
	if p.skip() != '}' {
		return p.expected("'}' after " + k.String())
	}
	p.pos++
	return true
}

// objectOf checks that an object begins at pos.
func (p *parser) objectOf(k kind) bool {
	if p.pos >= len(p.src) || p.src[p.pos] != '{' {
		return p.fail(p.pos, k.String()+" must be an object")
	}
	return true
}

// stringToken reads a string that is the value of a wrapper's inner key.
func (p *parser) stringToken(k kind) (token, bool) {
	if p.pos >= len(p.src) || p.src[p.pos] != '"' {
		return token{}, p.fail(p.pos, "the values in "+k.String()+" must be strings")
	}
	return p.token()
}

// pair reads an object of exactly two members with string values.
func (p *parser) pair(k kind, name0, name1 string) (values [2]token, ok bool) {
	begin := p.pos
	if !p.objectOf(k) {
		return values, false
	}
	var seen [2]bool
	for i := range 3 {
		key, ok := p.member(i == 0)
		if !ok {
			return values, false
		}
		if key == nil {
			break
		}
		n := 0
		if string(key) == name1 {
			n = 1
		} else if string(key) != name0 {
			return values, p.fail(begin, k.String()+" must have the keys "+name0+" and "+name1)
		}
		if seen[n] {
			return values, p.fail(begin, k.String()+" must have the keys "+name0+" and "+name1+" once")
		}
		seen[n] = true
		if values[n], ok = p.stringToken(k); !ok {
			return values, false
		}
	}
	if !seen[0] || !seen[1] {
		return values, p.fail(begin, k.String()+" must have the keys "+name0+" and "+name1)
	}
	return values, true
}

func (p *parser) binary() bool {
	begin, start := p.pos, len(p.dst)
	values, ok := p.pair(kindBinary, "base64", "subType")
	if !ok {
		return false
	}
	subtype, ok := p.subtype(values[1])
	if !ok {
		return false
	}
	payload, ok := p.bytes(values[0])
	if !ok {
		return false
	}
	p.dst = append(p.dst, 0, 0, 0, 0, subtype)
	if subtype == bson.SubtypeBinaryOld {
		p.dst = append(p.dst, 0, 0, 0, 0)
	}
	n := len(p.dst)
	if !p.base64(payload) {
		return p.fail(begin, "$binary must have valid base64")
	}
	if subtype == bson.SubtypeBinaryOld && !p.setLength(begin, n-4, len(p.dst)-n) {
		return false
	}
	return p.setLength(begin, start, len(p.dst)-start-5)
}

func (p *parser) subtype(t token) (byte, bool) {
	s, ok := p.bytes(t)
	if !ok {
		return 0, false
	}
	var n byte
	for _, c := range s {
		d := unhex(c)
		if d > 15 || len(s) > 2 {
			return 0, p.fail(t.start, "subType must have one or two hexadecimal digits")
		}
		n = n<<4 | d
	}
	if len(s) == 0 {
		return 0, p.fail(t.start, "subType must have one or two hexadecimal digits")
	}
	return n, true
}

// base64 appends what s stands for. The library skips line ends, which are no
// base64 here.
func (p *parser) base64(s []byte) bool {
	if len(s)%4 != 0 || slices.Contains(s, '\n') || slices.Contains(s, '\r') {
		return false
	}
	var err error
	p.dst, err = base64.StdEncoding.AppendDecode(p.dst, s)
	return err == nil
}

func (p *parser) uuid() bool {
	begin := p.pos
	s, ok := p.argument(kindUUID)
	if !ok {
		return false
	}
	id, err := bson.ParseUUID(view(s))
	if err != nil {
		return p.fail(begin, "$uuid must be a UUID")
	}
	p.dst = append(p.dst, 16, 0, 0, 0, bson.SubtypeUUID)
	p.dst = append(p.dst, id[:]...)
	return true
}

func (p *parser) regex() bool {
	begin := p.pos
	values, ok := p.pair(kindRegex, "pattern", "options")
	if !ok || !p.cstring(values[0], begin, "zero byte in a pattern") {
		return false
	}
	n := len(p.dst)
	if !p.cstring(values[1], begin, "zero byte in a pattern's options") {
		return false
	}
	slices.Sort(p.dst[n : len(p.dst)-1])
	return true
}

// one reads the number 1.
func (p *parser) one(k kind) bool {
	begin := p.pos
	if begin < len(p.src) && p.src[begin] == '1' {
		n, end, kind := scanNumber(p.src, begin)
		p.pos = end
		if kind == numberInt && n == 1 {
			return true
		}
	}
	return p.fail(begin, k.String()+" must be 1")
}

// timestamp reads {"t": n, "i": n}.
func (p *parser) timestamp() bool {
	begin := p.pos
	if !p.objectOf(kindTimestamp) {
		return false
	}
	var values [2]int64 // i, t
	seen := [2]bool{}
	for j := range 3 {
		key, ok := p.member(j == 0)
		if !ok {
			return false
		}
		if key == nil {
			break
		}
		n := 0
		if string(key) == "t" {
			n = 1
		}
		if seen[n] || n == 0 && string(key) != "i" {
			return p.fail(begin, "$timestamp must have the keys t and i")
		}
		seen[n] = true
		if values[n], ok = p.uint32(); !ok {
			return false
		}
	}
	if !seen[0] || !seen[1] {
		return p.fail(begin, "$timestamp must have the keys t and i")
	}
	p.dst = binary.LittleEndian.AppendUint32(p.dst, uint32(values[0]))
	p.dst = binary.LittleEndian.AppendUint32(p.dst, uint32(values[1]))
	return true
}

func (p *parser) uint32() (int64, bool) {
	begin := p.pos
	if begin < len(p.src) && p.src[begin]-'0' < 10 {
		n, end, kind := scanNumber(p.src, begin)
		if kind == numberInt && n <= math.MaxUint32 {
			p.pos = end
			return n, true
		}
	}
	return 0, p.fail(begin, "t and i of $timestamp must be integers of 32 bits without a sign")
}

// dbPointer reads {"$ref": "…", "$id": {"$oid": "…"}}.
func (p *parser) dbPointer() bool {
	begin, start := p.pos, len(p.dst)
	if !p.objectOf(kindDBPointer) {
		return false
	}
	var ref token
	var id bson.ObjectID
	var hasRef, hasID bool
	for i := range 3 {
		key, ok := p.member(i == 0)
		if !ok {
			return false
		}
		if key == nil {
			break
		}
		switch {
		case string(key) == "$ref" && !hasRef:
			ref, hasRef = p.stringToken(kindDBPointer)
			ok = hasRef
		case string(key) == "$id" && !hasID:
			ok = p.nestedObjectID()
			hasID = ok
			if ok {
				id = bson.ObjectID(p.dst[start:])
				p.dst = p.dst[:start]
			}
		default:
			ok = p.fail(begin, "$dbPointer must have the keys $ref and $id")
		}
		if !ok {
			return false
		}
	}
	if !hasRef || !hasID {
		return p.fail(begin, "$dbPointer must have the keys $ref and $id")
	}
	p.dst = append(p.dst, 0, 0, 0, 0)
	text, ok := p.bytes(ref)
	if !ok {
		return false
	}
	p.dst = append(append(p.dst, text...), 0)
	if !p.setLength(begin, start, len(p.dst)-start-4) {
		return false
	}
	p.dst = append(p.dst, id[:]...)
	return true
}

func (p *parser) nestedObjectID() bool {
	begin := p.pos
	if p.pos < len(p.src) && p.src[p.pos] == '{' {
		key, ok := p.member(true)
		if !ok {
			return false
		}
		if string(key) == "$oid" {
			return p.objectID() && p.end(kindOID)
		}
	}
	return p.fail(begin, `$id of $dbPointer must be {"$oid": …}`)
}

// code reads the string of $code, and $scope if it follows.
func (p *parser) code() (bson.Type, bool) {
	begin, start := p.pos, len(p.dst)
	if !p.stringOf(kindCode) || !p.text() {
		return 0, false
	}
	if p.skip() != ',' {
		return bson.TypeJavaScript, true
	}
	key, ok := p.member(false)
	if !ok {
		return 0, false
	}
	if string(key) != "$scope" {
		return 0, p.fail(begin, "$code beside other keys")
	}
	p.dst = slices.Insert(p.dst, start, 0, 0, 0, 0)
	return bson.TypeCodeWithScope, p.scope() && p.setLength(begin, start, len(p.dst)-start)
}

// scopeFirst reads the object of $scope, and $code, which must follow.
func (p *parser) scopeFirst() bool {
	begin, start := p.pos, len(p.dst)
	if !p.scope() {
		return false
	}
	scope := slices.Clone(p.dst[start:])
	p.dst = append(p.dst[:start], 0, 0, 0, 0)
	if p.skip() != ',' {
		return p.fail(begin, "$scope without $code")
	}
	key, ok := p.member(false)
	if !ok {
		return false
	}
	if string(key) != "$code" {
		return p.fail(begin, "$scope beside other keys")
	}
	if !p.stringOf(kindCode) || !p.text() {
		return false
	}
	p.dst = append(p.dst, scope...)
	return p.setLength(begin, start, len(p.dst)-start)
}

// scope reads a document, which is no wrapper.
func (p *parser) scope() bool {
	begin := p.pos
	if !p.objectOf(kindScope) {
		return false
	}
	p.pos++
	if p.skip() == '"' && p.peekSpecial() {
		return p.fail(begin, "$scope must be a document")
	}
	p.pos = begin
	_, ok := p.object(false)
	return ok
}
