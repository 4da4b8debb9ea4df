package extjson

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/internal/path"
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
	p := l.parser(withRoom(dst, len(json)), json)
	if !p.top() || !p.atEnd() {
		return dst, p.syntaxError()
	}
	return p.dst, nil
}

// ParseValue does what the function ParseValue does, within the limit.
func (l Limit) ParseValue(dst, json []byte) (bson.Value, []byte, error) {
	p := l.parser(dst, json)
	t, ok := p.alone()
	if !ok || !p.atEnd() {
		return bson.Value{}, dst, p.syntaxError()
	}
	return bson.Value{Type: t, Data: p.dst[len(dst):]}, p.dst, nil
}

// ParsePrefix does what the function ParsePrefix does, within the limit.
func (l Limit) ParsePrefix(dst, json []byte) (out []byte, n int, err error) {
	p := l.parser(dst, json)
	if !p.top() {
		return dst, 0, p.syntaxError()
	}
	return p.dst, p.pos, nil
}

// ParseValuePrefix does what the function ParseValuePrefix does, within the limit.
func (l Limit) ParseValuePrefix(dst, json []byte) (v bson.Value, out []byte, n int, err error) {
	p := l.parser(dst, json)
	t, ok := p.alone()
	if !ok {
		return bson.Value{}, dst, 0, p.syntaxError()
	}
	return bson.Value{Type: t, Data: p.dst[len(dst):]}, p.dst, p.pos, nil
}

func (l Limit) parser(dst, json []byte) parser {
	limit := int(l)
	if limit < math.MaxInt-len(dst) {
		limit += len(dst)
	}
	return parser{src: json, dst: dst, limit: limit}
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

// parser reads src from pos on and appends to dst. Its methods report whether
// they went well; after the first that did not, offset and problem say why, and
// path collects keys on the way out.
type parser struct {
	src     []byte
	pos     int
	dst     []byte
	limit   int    // the longest that dst may be
	depth   int    // of objects and arrays that are open and no wrappers
	scratch []byte // for strings with escapes in wrappers
	offset  int
	problem string
	large   bool     // the problem is the limit
	path    []string // innermost key first
}

func (p *parser) fail(offset int, problem string) bool {
	p.offset, p.problem = offset, problem
	return false
}

func (p *parser) syntaxError() error {
	slices.Reverse(p.path)
	return &SyntaxError{
		Path: path.Join(p.path), Offset: p.offset, Problem: p.problem,
		TooLarge: p.large, InvalidUTF8: p.problem == problemUTF8,
	}
}

func (p *parser) tooLarge() bool {
	p.large = true
	return p.fail(p.pos, "too large as BSON")
}

// skip goes to the next byte that is no white space and returns it, 0 at the end.
func (p *parser) skip() byte {
	for p.pos < len(p.src) {
		c := p.src[p.pos]
		if c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
		p.pos++
	}
	return 0
}

// aValue is what expected names where any value may stand.
const aValue = "a value"

// expected fails at pos, where something else should stand.
func (p *parser) expected(what string) bool {
	if p.pos >= len(p.src) {
		return p.fail(p.pos, "unexpected end, expected "+what)
	}
	if p.src[p.pos] == '\'' && what == aValue {
		what += ", with double quotes if it is a string"
	}
	return p.fail(p.pos, "unexpected "+strconv.QuoteRuneToASCII(p.rune())+", expected "+what)
}

func (p *parser) rune() rune {
	r, _ := utf8.DecodeRune(p.src[p.pos:])
	return r
}

func (p *parser) atEnd() bool {
	p.skip()
	if p.pos < len(p.src) {
		return p.fail(p.pos, "bytes after the value")
	}
	return true
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

func (p *parser) literal(word string) bool {
	if len(p.src)-p.pos < len(word) || string(p.src[p.pos:p.pos+len(word)]) != word {
		return p.expected(aValue)
	}
	p.pos += len(word)
	return true
}

// object reads the object at pos: a document, or what a type wrapper stands for.
// Plain objects, such as the outermost one, are never wrappers.
func (p *parser) object(plain bool) (bson.Type, bool) {
	begin, start := p.pos, len(p.dst)
	if !plain && begin+2 < len(p.src) && p.src[begin+2] == '$' {
		if kind, n := wrapperAt(p.src[begin:]); kind != notSpecial {
			p.pos += n
			return p.wrapper(kind)
		}
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
		if !p.key() {
			return 0, false
		}
		if p.dst[at+1] == '$' && !plain {
			if kind := specialKey(p.dst[at+1 : len(p.dst)-1]); kind != notSpecial {
				if !first {
					return 0, p.fail(keyPos, kind.String()+" beside other keys")
				}
				p.dst = p.dst[:start]
				p.depth--
				return p.wrapper(kind)
			}
		}
		if p.skip() != ':' {
			return 0, p.expected("':'")
		}
		p.pos++
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

// cstring appends the text of a token and a zero byte.
func (p *parser) cstring(t token, begin int, problem string) bool {
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
	begin, start := p.pos, len(p.dst)
	t, ok := p.token()
	if !ok {
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

// number reads a JSON number: an int32 or int64 if it is an integer that fits,
// else a double.
func (p *parser) number() (bson.Type, bool) {
	begin := p.pos
	n, end, kind := scanNumber(p.src, p.pos)
	p.pos = end
	if kind == numberBad {
		return 0, p.expected("a digit")
	}
	if kind == numberInt {
		if n == int64(int32(n)) {
			p.put32(uint32(n))
			return bson.TypeInt32, true
		}
		p.put64(uint64(n))
		return bson.TypeInt64, true
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

type numberKind uint8

const (
	numberBad   numberKind = iota
	numberInt              // an integer of 64 bits
	numberFloat            // anything else
)

// scanNumber reads a number as the JSON grammar has it.
func scanNumber(src []byte, pos int) (n int64, end int, kind numberKind) {
	negative := src[pos] == '-'
	if negative {
		pos++
	}
	start := pos
	var u uint64
	for ; pos < len(src) && src[pos]-'0' < 10; pos++ {
		u = u*10 + uint64(src[pos]-'0') // wraps only after 19 digits; see below
	}
	digits := pos - start
	if digits == 0 || digits > 1 && src[start] == '0' {
		return 0, start + min(digits, 1), numberBad
	}
	kind = numberInt
	if pos < len(src) && src[pos] == '.' {
		kind = numberFloat
		if pos, digits = scanDigits(src, pos+1); digits == 0 {
			return 0, pos, numberBad
		}
	}
	if pos < len(src) && src[pos]|0x20 == 'e' {
		kind = numberFloat
		pos++
		if pos < len(src) && (src[pos] == '+' || src[pos] == '-') {
			pos++
		}
		if pos, digits = scanDigits(src, pos); digits == 0 {
			return 0, pos, numberBad
		}
	}
	switch {
	case kind == numberFloat || digits > 19:
		return 0, pos, numberFloat
	case negative && u <= 1<<63:
		return -int64(u), pos, numberInt
	case !negative && u < 1<<63:
		return int64(u), pos, numberInt
	}
	return 0, pos, numberFloat
}

func scanDigits(src []byte, pos int) (end, n int) {
	start := pos
	for ; pos < len(src) && src[pos]-'0' < 10; pos++ {
	}
	return pos, pos - start
}

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

// view returns b as a string without a copy.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
