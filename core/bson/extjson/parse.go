package extjson

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"unsafe"

	"github.com/mooringdb/mooring/core/bson"
)

// Parse reads one JSON object, which must be the whole input but for white
// space, and appends it to dst as a BSON document. The outermost object is never
// a type wrapper. On error dst is returned as it was.
func Parse(dst, json []byte) (doc []byte, err error) { return NoLimit.Parse(dst, json) }

// ParseValue parses any Extended JSON value, the whole input. The value is a view on the returned
// buffer, which is dst with its bytes appended. It nests less than MaxDepth, so that a document
// can hold it.
func ParseValue(dst, json []byte) (bson.Value, []byte, error) {
	return NoLimit.ParseValue(dst, json)
}

// ParsePrefix parses the object at the beginning of json, and returns how many bytes it has
// consumed.
func ParsePrefix(dst, json []byte) (out []byte, n int, err error) {
	return NoLimit.ParsePrefix(dst, json)
}

// ParseValuePrefix does what ParseValue does with the value at the beginning of json, and returns
// how many bytes it has consumed.
func ParseValuePrefix(dst, json []byte) (v bson.Value, out []byte, n int, err error) {
	return NoLimit.ParseValuePrefix(dst, json)
}

// Limit bounds how many bytes of BSON one text may become. Its methods are the functions of the
// same names with that bound. A text can become several times longer, such as an array of small
// numbers; the limit keeps a text that is refused for it from using that memory first. It is
// checked between elements, so the result may exceed it by one element, or by the length of one
// long string.
type Limit int

// NoLimit is the limit of the functions.
const NoLimit Limit = math.MaxInt

// Parse does what the function Parse does, within the limit.
func (l Limit) Parse(dst, json []byte) (doc []byte, err error) {
	return Parser{Limit: l}.Parse(withRoom(dst, len(json)), json)
}

// ParseValue does what the function ParseValue does, within the limit.
func (l Limit) ParseValue(dst, json []byte) (bson.Value, []byte, error) {
	return Parser{Limit: l}.ParseValue(dst, json)
}

// ParsePrefix does what the function ParsePrefix does, within the limit.
func (l Limit) ParsePrefix(dst, json []byte) (out []byte, n int, err error) {
	return Parser{Limit: l}.ParsePrefix(dst, json)
}

// ParseValuePrefix does what the function ParseValuePrefix does, within the limit.
func (l Limit) ParseValuePrefix(dst, json []byte) (v bson.Value, out []byte, n int, err error) {
	return Parser{Limit: l}.ParseValuePrefix(dst, json)
}

// Parser has the functions of the same names as methods, within a limit, and with memory that
// belongs to the caller. The zero Limit is 0; NoLimit is none.
type Parser struct {
	Limit Limit
	// Memory, if set, provides the memory for what does not fit dst. Otherwise append does.
	Memory Memory
	// Legacy takes older forms of two types, too: {"$date": 1356351330501}, a zone without its
	// colon, and {"$binary": "AQID", "$type": "00"}.
	Legacy bool
}

// Memory provides memory for BSON that grows.
type Memory interface {
	// Grow returns a buffer with the bytes of dst and room for n more. What is parsed begins at
	// start, and has at most so many bytes. The parser returns the error as it is.
	Grow(dst []byte, start, n int) ([]byte, error)
}

// Parse does what the function Parse does.
func (by Parser) Parse(dst, json []byte) (doc []byte, err error) {
	p := by.parser(dst, json)
	if !p.top() || !p.atEnd() {
		return dst, p.failure()
	}
	return p.dst, nil
}

// ParseValue does what the function ParseValue does.
func (by Parser) ParseValue(dst, json []byte) (bson.Value, []byte, error) {
	p := by.parser(dst, json)
	t, ok := p.alone()
	if !ok || !p.atEnd() {
		return bson.Value{}, dst, p.failure()
	}
	return bson.Value{Type: t, Data: p.dst[len(dst):]}, p.dst, nil
}

// ParsePrefix does what the function ParsePrefix does.
func (by Parser) ParsePrefix(dst, json []byte) (out []byte, n int, err error) {
	p := by.parser(dst, json)
	if !p.top() {
		return dst, 0, p.failure()
	}
	return p.dst, p.pos, nil
}

// ParseValuePrefix does what the function ParseValuePrefix does.
func (by Parser) ParseValuePrefix(dst, json []byte) (v bson.Value, out []byte, n int, err error) {
	p := by.parser(dst, json)
	t, ok := p.alone()
	if !ok {
		return bson.Value{}, dst, 0, p.failure()
	}
	return bson.Value{Type: t, Data: p.dst[len(dst):]}, p.dst, p.pos, nil
}

func (by Parser) parser(dst, json []byte) parser {
	limit := int(by.Limit)
	if limit < math.MaxInt-len(dst) {
		limit += len(dst)
	}
	p := parser{
		scanner: scanner{src: json}, dst: dst, start: len(dst), limit: limit,
		memory: by.Memory, legacy: by.Legacy,
	}
	if p.spare = spare; by.Memory == nil {
		p.spare = math.MinInt / 2 // there is always room
	}
	return p
}

// spare is how many bytes are kept free for what is appended without asking for room: numbers, and
// what surrounds keys and texts.
const spare = 64

// room makes room for n more bytes, if the memory is not append's. It reports whether there is.
func (p *parser) room(n int) bool { return p.hasRoom(n) || p.grow(n) }

func (p *parser) hasRoom(n int) bool { return cap(p.dst)-len(p.dst) >= n+p.spare }

// grow asks for more than room does, so that the end of a document with one long text needs no
// further growth.
func (p *parser) grow(n int) bool {
	dst, err := p.memory.Grow(p.dst, p.start, n+4*p.spare)
	if err != nil {
		p.refused = err
		return p.fail(p.pos, "")
	}
	p.dst = dst
	return true
}

// failure returns the error of the text, or that of the memory.
func (p *parser) failure() error {
	if p.refused != nil {
		return p.refused
	}
	return p.syntaxError()
}

// maxGenerous is the largest text that gets more room than its own length.
const maxGenerous = 64 << 10

// withRoom returns dst with room for what a text of n bytes usually becomes. Most documents are
// shorter as BSON, but not those with many short keys and numbers. Large texts get less extra
// room, to save memory. A caller's buffer that may be large enough is left as it is.
func withRoom(dst []byte, n int) []byte {
	if dst != nil && cap(dst)-len(dst) >= n/2 {
		return dst
	}
	if n <= maxGenerous {
		n += n/2 + 16
	} else {
		n += n / 16
	}
	if dst == nil {
		return make([]byte, 0, n)
	}
	return slices.Grow(dst, n)
}

// parser appends to dst what it reads of a text. Its methods report whether they went well: see
// scanner.
type parser struct {
	scanner
	dst     []byte
	start   int    // where in dst that begins which is parsed
	limit   int    // the longest that dst may be
	memory  Memory // nil: append's
	spare   int    // see room
	refused error  // of memory
	legacy  bool   // see Parser.Legacy
	depth   int    // of objects and arrays that are open and no wrappers
}

// top reads the outermost object.
func (p *parser) top() bool {
	if p.skip() != '{' {
		return p.expected("an object")
	}
	_, ok := p.object(true)
	return ok
}

// alone reads a value that is in no document. It counts the document that will hold the value.
func (p *parser) alone() (bson.Type, bool) {
	p.depth++
	p.skip()
	return p.value()
}

// value reads the value at pos, and returns its type.
func (p *parser) value() (bson.Type, bool) {
	if p.pos >= len(p.src) {
		return 0, p.expected(aValue)
	}
	switch c := p.src[p.pos]; c {
	case '"':
		return bson.TypeString, p.text()
	case '{':
		return p.object(false)
	case '[':
		return bson.TypeArray, p.array()
	case 't':
		p.dst = append(p.dst, 1)
		return bson.TypeBool, p.literal("true")
	case 'f':
		p.dst = append(p.dst, 0)
		return bson.TypeBool, p.literal("false")
	case 'n':
		return bson.TypeNull, p.literal("null")
	default:
		if c == '-' || c-'0' < 10 {
			return p.number()
		}
	}
	return 0, p.expected(aValue)
}

// object reads the object at pos: a document, or what a type wrapper stands for.
// Plain objects, such as the outermost one, are never wrappers.
func (p *parser) object(plain bool) (bson.Type, bool) {
	begin, start := p.pos, len(p.dst)
	if !plain && begin+2 < len(p.src) && p.src[begin+2] == '$' {
		if p.exactObjectID() {
			return bson.TypeObjectID, true
		}
		if p.exactDate() {
			return bson.TypeDateTime, true
		}
		if kind, n := wrapperAt(p.src[begin:]); kind != notSpecial {
			p.pos += n
			return p.wrapper(kind)
		}
	}
	if !p.room(0) {
		return 0, false
	}
	p.pos++
	p.dst = append(p.dst, 0, 0, 0, 0)
	if p.depth++; p.depth > MaxDepth {
		// A wrapper may stand where nothing may nest any more.
		if p.skip() != '"' || !p.peekSpecial() {
			return 0, p.fail(begin, problemDepth)
		}
	}
	if p.skip() == '}' {
		p.pos++
		return bson.TypeDocument, p.close(begin, start)
	}
	for first := true; ; first = false {
		at, keyPos := len(p.dst), p.pos
		p.dst = append(p.dst, 0)
		colon := p.shortKey()
		if !colon && !p.key() {
			return 0, false
		}
		if p.dst[at+1] == '$' && !plain {
			if kind := specialKey(p.dst[at+1 : len(p.dst)-1]); kind != notSpecial {
				if !first {
					return 0, p.fail(keyPos, kind.String()+" beside other keys")
				}
				p.dst = p.dst[:start]
				p.depth--
				if colon {
					p.pos--
				}
				return p.wrapper(kind)
			}
		}
		if !colon && !p.colon() {
			return 0, false
		}
		p.skip()
		t, ok := p.value()
		if !ok {
			p.leave(at + 1)
			return 0, false
		}
		p.dst[at] = byte(t)
		if len(p.dst) > p.limit {
			return 0, p.tooLarge()
		}
		if !p.room(0) {
			return 0, false
		}
		switch p.skip() {
		case ',':
			p.pos++
			p.skip()
		case '}':
			p.pos++
			return bson.TypeDocument, p.close(begin, start)
		default:
			return 0, p.expected("',' or '}'")
		}
	}
}

// peekSpecial reports whether the key at pos belongs to a wrapper.
func (p *parser) peekSpecial() bool {
	pos, n := p.pos, len(p.dst)
	ok := p.key() && specialKey(p.dst[n:len(p.dst)-1]) != notSpecial
	p.pos, p.dst = pos, p.dst[:n]
	return ok
}

// leave adds the key that dst has at a position to the path of the error.
func (p *parser) leave(at int) {
	n := cstringLen(p.dst[at:])
	p.path = append(p.path, string(p.dst[at:at+max(n, 0)]))
}

// array reads the array at pos.
func (p *parser) array() bool {
	begin, start := p.pos, len(p.dst)
	if p.depth++; p.depth > MaxDepth {
		return p.fail(begin, problemDepth)
	}
	if !p.room(0) {
		return false
	}
	p.pos++
	p.dst = append(p.dst, 0, 0, 0, 0)
	if p.skip() == ']' {
		p.pos++
		return p.close(begin, start)
	}
	for i := 0; ; i++ {
		at := len(p.dst)
		p.index(i)
		t, ok := p.value()
		if !ok {
			p.leave(at + 1)
			return false
		}
		p.dst[at] = byte(t)
		if len(p.dst) > p.limit {
			return p.tooLarge()
		}
		if !p.room(0) {
			return false
		}
		switch p.skip() {
		case ',':
			p.pos++
			p.skip()
		case ']':
			p.pos++
			return p.close(begin, start)
		default:
			return p.expected("',' or ']'")
		}
	}
}

// close ends the document that begins at start in dst, and at begin in src.
func (p *parser) close(begin, start int) bool {
	p.depth--
	p.dst = append(p.dst, 0)
	return p.setLength(begin, start, len(p.dst)-start)
}

func (p *parser) setLength(begin, at, n int) bool {
	if n > math.MaxInt32 {
		return p.fail(begin, "value is longer than 2 GiB")
	}
	binary.LittleEndian.PutUint32(p.dst[at:], uint32(n))
	return true
}

// key reads a key and appends it as a cstring.
func (p *parser) key() bool {
	if p.pos >= len(p.src) || p.src[p.pos] != '"' {
		return p.expected("a key in double quotes")
	}
	begin := p.pos
	t, ok := p.token()
	if !ok {
		return false
	}
	return p.cstring(t, begin, "zero byte in a key")
}

// shortKey reads a key and the colon right behind it, if the key is ASCII without escapes and has
// less than eight bytes, or else nothing.
func (p *parser) shortKey() bool {
	start := p.pos + 1
	if start+8 >= len(p.src) || p.src[start-1] != '"' {
		return false
	}
	w := binary.LittleEndian.Uint64(p.src[start:])
	n := plainBytes(w)
	if n == 8 || byte(w>>(8*n)) != '"' || p.src[start+n+1] != ':' || !p.hasRoom(n) {
		return false
	}
	p.putBytes(w&(1<<(8*n)-1), n+1)
	p.pos = start + n + 2
	return true
}

// cstring appends the text of a token and a zero byte.
func (p *parser) cstring(t token, begin int, problem string) bool {
	if !p.room(t.end - t.start) {
		return false
	}
	if t.plain { // and so without zero bytes
		p.dst = append(p.dst, p.src[t.start:t.end]...)
		p.dst = append(p.dst, 0)
		return true
	}
	n := len(p.dst)
	var ok bool
	if p.dst, ok = p.unescape(p.dst, t); !ok {
		return false
	}
	if cstringLen(p.dst[n:]) >= 0 {
		return p.fail(begin, problem)
	}
	p.dst = append(p.dst, 0)
	return true
}

// text reads a string and appends it in the layout of BSON.
func (p *parser) text() bool {
	if n := p.plainString(); n >= 0 {
		return p.plainText(n)
	}
	begin, start := p.pos, len(p.dst)
	t, ok := p.token()
	if !ok || !p.room(t.end-t.start) {
		return false
	}
	p.dst = append(p.dst, 0, 0, 0, 0)
	if t.plain {
		p.dst = append(p.dst, p.src[t.start:t.end]...)
	} else if p.dst, ok = p.unescape(p.dst, t); !ok {
		return false
	}
	p.dst = append(p.dst, 0)
	return p.setLength(begin, start, len(p.dst)-start-4)
}

// plainText appends the string of n bytes at pos, which plainString has found.
func (p *parser) plainText(n int) bool {
	if !p.room(n) {
		return false
	}
	start := p.pos + 1
	p.pos = start + n + 1
	p.put32(uint32(n) + 1)
	if n < 8 { // plainString has seen that there are eight bytes
		p.putBytes(binary.LittleEndian.Uint64(p.src[start:])&(1<<(8*n)-1), n+1)
		return true
	}
	p.dst = append(p.dst, p.src[start:start+n]...)
	p.dst = append(p.dst, 0)
	return true
}

// number reads a JSON number: an int32 or int64 if it is an integer that fits,
// else a double.
func (p *parser) number() (bson.Type, bool) {
	begin := p.pos
	n, scale, end, kind := scanNumber(p.src, p.pos)
	p.pos = end
	switch {
	case kind == numberBad:
		return 0, p.expected("a digit")
	case kind == numberInt && n == int64(int32(n)):
		p.put32(uint32(n))
		return bson.TypeInt32, true
	case kind == numberInt:
		p.put64(uint64(n))
		return bson.TypeInt64, true
	case kind == numberDecimal:
		p.put64(math.Float64bits(float64(n) / powersOf10[scale]))
		return bson.TypeDouble, true
	}
	if end-begin > maxNumber {
		return 0, p.fail(begin, "number is too long")
	}
	f, err := strconv.ParseFloat(view(p.src[begin:end]), 64)
	if err != nil {
		return 0, p.fail(begin, "number is out of range")
	}
	p.put64(math.Float64bits(f))
	return bson.TypeDouble, true
}

// maxNumber is how long the text of a number may be: strconv copies what it
// refuses.
const maxNumber = 1024

// index appends the head of element n of an array: room for its type, and its key.
func (p *parser) index(n int) {
	if n < 10 {
		p.dst = append(p.dst, 0, '0'+byte(n), 0)
		return
	}
	p.dst = append(p.dst, 0)
	p.dst = strconv.AppendInt(p.dst, int64(n), 10)
	p.dst = append(p.dst, 0)
}

// put32 appends n. Here and elsewhere dst grows by append alone, in place: to store a whole slice
// costs a write barrier while the collector runs.
func (p *parser) put32(n uint32) {
	p.dst = append(p.dst, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
}

func (p *parser) put64(n uint64) {
	p.dst = append(p.dst, byte(n), byte(n>>8), byte(n>>16), byte(n>>24),
		byte(n>>32), byte(n>>40), byte(n>>48), byte(n>>56))
}

// putBytes appends the first n bytes of w.
func (p *parser) putBytes(w uint64, n int) {
	end := len(p.dst) + n
	p.put64(w)
	p.dst = p.dst[:end]
}

// view returns b as a string without a copy.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
