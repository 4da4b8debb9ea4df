package extjson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// token locates a JSON string in src, without its quotes.
type token struct {
	start, end int
	plain      bool // no escapes: the text is src[start:end]
}

// token reads the string whose opening quote is at pos. Control characters and
// invalid UTF-8 are errors; escapes are left to unescape.
func (s *scanner) token() (token, bool) {
	t := token{start: s.pos + 1, plain: true}
	src := s.src
	var high uint64 // any byte's high bit
	i := t.start
	for {
		var c byte
		if i+8 <= len(src) {
			w := binary.LittleEndian.Uint64(src[i:])
			m := special(w)
			if m == 0 {
				high |= w
				i += 8
				continue
			}
			k := bits.TrailingZeros64(m) &^ 7
			high |= w & (1<<k - 1)
			i += k >> 3
			c = src[i]
		} else {
			if i >= len(src) {
				s.pos = len(src)
				return t, s.fail(t.start-1, "string is not terminated")
			}
			if c = src[i]; !isSpecial(c) {
				high |= uint64(c)
				i++
				continue
			}
		}
		if c == '"' {
			break
		}
		if c != '\\' {
			return t, s.fail(i, "control character in a string")
		}
		t.plain = false
		i += 2
	}
	t.end, s.pos = i, i+1
	if high&highBits != 0 && !utf8.Valid(src[t.start:t.end]) {
		return t, s.fail(t.start+validLen(src[t.start:t.end]), problemUTF8)
	}
	return t, true
}

func validLen(s []byte) int {
	n := 0
	for n < len(s) {
		r, size := utf8.DecodeRune(s[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	return n
}

// bytes returns the text of a token, which is valid until the next call.
func (s *scanner) bytes(t token) ([]byte, bool) {
	if t.plain {
		return s.src[t.start:t.end], true
	}
	var ok bool
	s.scratch, ok = s.unescape(s.scratch[:0], t)
	return s.scratch, ok
}

// unescape appends the text of a token.
func (s *scanner) unescape(dst []byte, t token) ([]byte, bool) {
	for pos := t.start; ; {
		n := unescapedLen(s.src[pos:t.end])
		dst = append(dst, s.src[pos:pos+n]...)
		pos += n
		if pos >= t.end {
			return dst, true
		}
		c := s.src[pos+1] // token has seen that there is one
		if c == 'u' {
			r, size := s.unicode(pos, t.end)
			if size == 0 {
				return dst, false
			}
			dst = utf8.AppendRune(dst, r)
			pos += size
			continue
		}
		plain := escapes[c]
		if plain == 0 {
			return dst, s.fail(pos, "invalid escape in a string")
		}
		dst = append(dst, plain)
		pos += 2
	}
}

var escapes = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// unicode reads the escape \uXXXX at pos, two of them if they are a surrogate
// pair, and returns how long it was; 0 is an error.
func (s *scanner) unicode(pos, end int) (r rune, size int) {
	r, ok := hex4(s.src[pos+2 : end])
	if !ok {
		s.fail(pos, "invalid escape in a string")
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if end-pos >= 12 && s.src[pos+6] == '\\' && s.src[pos+7] == 'u' {
		low, ok := hex4(s.src[pos+8 : end])
		if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
			return r, 12
		}
	}
	s.fail(pos, "lone surrogate in a string")
	return 0, 0
}

func hex4(s []byte) (r rune, ok bool) {
	if len(s) < 4 {
		return 0, false
	}
	for _, c := range s[:4] {
		d := unhex(c)
		if d > 15 {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

// unhex returns the value of a hexadecimal digit, above 15 if c is none.
func unhex(c byte) byte { return hexValues[c] }

var hexValues = func() (v [256]byte) {
	for i := range v {
		switch c := byte(i); {
		case c-'0' < 10:
			v[i] = c - '0'
		case c|0x20-'a' < 6:
			v[i] = c | 0x20 - 'a' + 10
		default:
			v[i] = 0xFF
		}
	}
	return v
}()

// unhex12 reads the 24 hexadecimal digits that s begins with.
func unhex12(s []byte) (id [12]byte, ok bool) {
	s = s[:24]
	var all byte
	for i := range id {
		high, low := unhex(s[2*i]), unhex(s[2*i+1])
		all |= high | low
		id[i] = high<<4 | low
	}
	return id, all <= 15
}
