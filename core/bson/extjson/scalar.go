package extjson

import (
	"errors"
	"math"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
)

// The wrappers of one key with a string or a number.

func (p *parser) objectID() bool {
	begin := p.pos
	s, ok := p.argument(kindOID)
	if !ok {
		return false
	}
	if len(s) != 24 {
		return p.fail(begin, "$oid must have 24 hexadecimal digits")
	}
	id, ok := unhex12(s)
	if !ok {
		return p.fail(begin, "$oid must have 24 hexadecimal digits")
	}
	p.dst = append(p.dst, id[:]...)
	return true
}

func (p *parser) wrappedInt(k kind, size int) bool {
	begin := p.pos
	n, ok := p.quotedInt()
	if !ok {
		s, read := p.argument(k)
		if !read {
			return false
		}
		n, ok = parseInt(s)
	}
	switch {
	case !ok || size == 32 && n != int64(int32(n)):
		return p.fail(begin, k.String()+" must be an integer of its size")
	case size == 32:
		p.put32(uint32(n))
	default:
		p.put64(uint64(n))
	}
	return true
}

// quotedInt reads a string of [-]digits that an int64 surely holds, or else nothing.
func (s *scanner) quotedInt() (n int64, ok bool) {
	src := s.src[s.pos:]
	i := 1
	negative := len(src) > 2 && src[1] == '-'
	if negative {
		i = 2
	}
	start := i
	for ; i < len(src) && src[i]-'0' < 10; i++ {
		n = n*10 + int64(src[i]-'0') // wraps only after 18 digits
	}
	digits := i - start
	if digits == 0 || digits > 18 || src[0] != '"' || i >= len(src) || src[i] != '"' {
		return 0, false
	}
	s.pos += i + 1
	if negative {
		n = -n
	}
	return n, true
}

// parseInt reads [-]digits.
func parseInt(s []byte) (int64, bool) {
	if len(s) == 0 || len(s) > maxNumber || s[0] == '+' {
		return 0, false
	}
	if len(s) > 18 {
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
	p.put64(math.Float64bits(f))
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
	if len(s) > maxNumber {
		return 0, false
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
	p.put64(d.L)
	p.put64(d.H)
	return true
}

func (p *parser) date() bool {
	if p.pos < len(p.src) && p.src[p.pos] == '{' {
		return p.dateLong()
	}
	begin := p.pos
	if begin >= len(p.src) || p.src[begin] != '"' {
		return p.legacy && p.legacyDate() ||
			p.fail(begin, `$date must be a string or {"$numberLong": …}`)
	}
	s, ok := p.argument(kindDate)
	if !ok {
		return false
	}
	ms, ok := parseDate(s, p.legacy)
	if !ok {
		return p.fail(begin, "$date must be as in RFC 3339, with a zone")
	}
	p.put64(uint64(ms))
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

// one reads the number 1.
func (s *scanner) one(k kind) bool {
	begin := s.pos
	if begin < len(s.src) && s.src[begin] == '1' {
		n, _, end, kind := scanNumber(s.src, begin)
		s.pos = end
		if kind == numberInt && n == 1 {
			return true
		}
	}
	return s.fail(begin, k.String()+" must be 1")
}
