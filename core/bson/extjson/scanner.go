package extjson

import (
	"encoding/binary"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/mooringdb/mooring/core/bson/internal/path"
)

// scanner reads the text in src from pos on: its tokens, and the members of wrappers. It knows no
// BSON. Its methods report whether they went well; after the first that did not, offset and problem
// say why, and path collects keys on the way out.
type scanner struct {
	src     []byte
	pos     int
	scratch []byte // for strings with escapes in wrappers
	offset  int
	problem string
	large   bool     // the problem is the parser's limit
	path    []string // innermost key first
}

func (s *scanner) fail(offset int, problem string) bool {
	s.offset, s.problem = offset, problem
	return false
}

func (s *scanner) syntaxError() error {
	slices.Reverse(s.path)
	return &SyntaxError{
		Path: path.Join(s.path), Offset: s.offset, Problem: s.problem,
		TooLarge: s.large, InvalidUTF8: s.problem == problemUTF8,
	}
}

func (s *scanner) tooLarge() bool {
	s.large = true
	return s.fail(s.pos, "too large as BSON")
}

// skip goes to the next byte that is not white space and returns it, 0 at the end.
func (s *scanner) skip() byte {
	if s.pos < len(s.src) && s.src[s.pos] > ' ' {
		return s.src[s.pos]
	}
	return s.skipSpace()
}

// skipSpace does what skip does where white space is likely.
func (s *scanner) skipSpace() byte {
	const indent = 0x2020202020202020
	for s.pos < len(s.src) {
		if s.pos+8 <= len(s.src) && binary.LittleEndian.Uint64(s.src[s.pos:]) == indent {
			s.pos += 8
			continue
		}
		c := s.src[s.pos]
		if c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
		s.pos++
	}
	return 0
}

// maxPlain is the length of the longest string that plainString looks at.
const maxPlain = 64 << 10

// plainString returns the length of the string whose opening quote is at pos, if it is ASCII
// without escapes, and -1 if it is not, or if the text ends too soon to look at eight bytes
// together.
func (s *scanner) plainString() int {
	rest := s.src[s.pos+1:]
	rest = rest[:min(len(rest), maxPlain)]
	for i := 0; i+8 <= len(rest); i += 8 {
		n := plainBytes(binary.LittleEndian.Uint64(rest[i:]))
		if n == 8 {
			continue
		}
		if rest[i+n] == '"' {
			return i + n
		}
		break
	}
	return -1
}

// aValue is what expected names where any value may stand.
const aValue = "a value"

// expected fails at pos, where something else should stand.
func (s *scanner) expected(what string) bool {
	if s.pos >= len(s.src) {
		return s.fail(s.pos, "unexpected end, expected "+what)
	}
	if s.src[s.pos] == '\'' && what == aValue {
		what += ", with double quotes if it is a string"
	}
	return s.fail(s.pos, "unexpected "+strconv.QuoteRuneToASCII(s.rune())+", expected "+what)
}

func (s *scanner) rune() rune {
	r, _ := utf8.DecodeRune(s.src[s.pos:])
	return r
}

func (s *scanner) atEnd() bool {
	s.skip()
	if s.pos < len(s.src) {
		return s.fail(s.pos, "bytes after the value")
	}
	return true
}

func (s *scanner) literal(word string) bool {
	if len(s.src)-s.pos < len(word) || string(s.src[s.pos:s.pos+len(word)]) != word {
		return s.expected(aValue)
	}
	s.pos += len(word)
	return true
}

func (s *scanner) colon() bool {
	if s.skip() != ':' {
		return s.expected("':'")
	}
	s.pos++
	s.skip()
	return true
}

// stringOf checks that a string begins at pos.
func (s *scanner) stringOf(k kind) bool {
	if s.pos >= len(s.src) || s.src[s.pos] != '"' {
		return s.fail(s.pos, k.String()+" must be a string")
	}
	return true
}

// objectOf checks that an object begins at pos.
func (s *scanner) objectOf(k kind) bool {
	if s.pos >= len(s.src) || s.src[s.pos] != '{' {
		return s.fail(s.pos, k.String()+" must be an object")
	}
	return true
}

// stringToken reads a string that is the value of a wrapper's inner key.
func (s *scanner) stringToken(k kind) (token, bool) {
	if s.pos >= len(s.src) || s.src[s.pos] != '"' {
		return token{}, s.fail(s.pos, "the values in "+k.String()+" must be strings")
	}
	return s.token()
}

// argument reads the string that is the value of a wrapper.
func (s *scanner) argument(k kind) ([]byte, bool) {
	if !s.stringOf(k) {
		return nil, false
	}
	t, ok := s.token()
	if !ok {
		return nil, false
	}
	return s.bytes(t)
}

// member goes to the first or the next member of the object at pos, reads its
// key and stops before its value. The key is valid until the next token; nil at
// the object's end.
func (s *scanner) member(first bool) (key []byte, ok bool) {
	if first {
		s.pos++ // the brace
	}
	c := s.skip()
	if c == '}' {
		s.pos++
		return nil, true
	}
	if !first {
		if c != ',' {
			return nil, s.expected("',' or '}'")
		}
		s.pos++
		c = s.skip()
	}
	if c != '"' {
		return nil, s.expected("a key in double quotes")
	}
	t, ok := s.token()
	if !ok {
		return nil, false
	}
	if key, ok = s.bytes(t); !ok {
		return nil, false
	}
	return key[:len(key):len(key)], s.colon()
}

// end reads the brace that ends an object.
func (s *scanner) end(k kind) bool {
	if s.skip() != '}' {
		return s.expected("'}' after " + k.String())
	}
	s.pos++
	return true
}

// pair reads an object of exactly two members with string values.
func (s *scanner) pair(k kind, name0, name1 string) (values [2]token, ok bool) {
	begin := s.pos
	if !s.objectOf(k) {
		return values, false
	}
	var seen [2]bool
	for i := range 3 {
		key, ok := s.member(i == 0)
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
			return values, s.fail(begin, k.String()+" must have the keys "+name0+" and "+name1)
		}
		if seen[n] {
			problem := k.String() + " must have the keys " + name0 + " and " + name1 + " once"
			return values, s.fail(begin, problem)
		}
		seen[n] = true
		if values[n], ok = s.stringToken(k); !ok {
			return values, false
		}
	}
	if !seen[0] || !seen[1] {
		return values, s.fail(begin, k.String()+" must have the keys "+name0+" and "+name1)
	}
	return values, true
}
