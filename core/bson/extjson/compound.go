package extjson

import (
	"encoding/base64"
	"math"
	"slices"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/internal/regex"
)

// The wrappers of an object, or of two keys.

func (p *parser) binary() bool {
	begin, start := p.pos, len(p.dst)
	var values [2]token
	var ok bool
	if p.legacy && begin < len(p.src) && p.src[begin] == '"' {
		values, ok = p.legacyBinary()
	} else {
		values, ok = p.pair(kindBinary, "base64", "subType")
	}
	if !ok {
		return false
	}
	subtype, ok := p.subtype(values[1])
	if !ok {
		return false
	}
	payload, ok := p.bytes(values[0])
	if !ok || !p.room(base64.StdEncoding.DecodedLen(len(payload))) {
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
	regex.SortOptions(p.dst[n : len(p.dst)-1])
	return true
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
	p.put32(uint32(values[0]))
	p.put32(uint32(values[1]))
	return true
}

func (s *scanner) uint32() (int64, bool) {
	begin := s.pos
	if begin < len(s.src) && s.src[begin]-'0' < 10 {
		n, _, end, kind := scanNumber(s.src, begin)
		if kind == numberInt && n <= math.MaxUint32 {
			s.pos = end
			return n, true
		}
	}
	return 0, s.fail(begin, "t and i of $timestamp must be integers of 32 bits without a sign")
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
	if !ok || !p.room(len(text)) {
		return false
	}
	p.dst = append(p.dst, text...)
	p.dst = append(p.dst, 0)
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
	p.dst = append(p.dst, 0, 0, 0, 0)
	if !p.scope() {
		return false
	}
	end := len(p.dst)
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
	return p.swap(start+4, end) && p.setLength(begin, start, len(p.dst)-start)
}

// swap moves what dst has from middle on to start, before what was there. A scope within scopes is
// moved at each level, so both are copied as a whole, with the shorter one put aside.
func (p *parser) swap(start, middle int) bool {
	end := len(p.dst)
	first, second := middle-start, end-middle
	if !p.room(min(first, second)) {
		return false
	}
	if first < second {
		p.dst = append(p.dst, p.dst[start:middle]...)
		copy(p.dst[start:], p.dst[middle:end])
		copy(p.dst[start+second:], p.dst[end:])
	} else {
		p.dst = append(p.dst, p.dst[middle:]...)
		copy(p.dst[start+second:], p.dst[start:middle])
		copy(p.dst[start:], p.dst[end:])
	}
	p.dst = p.dst[:end]
	return true
}

// scope reads a document, which is not a wrapper.
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
