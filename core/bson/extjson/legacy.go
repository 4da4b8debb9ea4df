package extjson

// The forms that Parser.Legacy adds.

// legacyDate reads a number of milliseconds, or nothing.
func (p *parser) legacyDate() bool {
	if p.pos >= len(p.src) || p.src[p.pos] != '-' && p.src[p.pos]-'0' > 9 {
		return false
	}
	ms, _, end, kind := scanNumber(p.src, p.pos)
	if kind != numberInt {
		return false
	}
	p.pos = end
	p.put64(uint64(ms))
	return true
}

// legacyBinary reads what follows {"$binary": in {"$binary": "AQID", "$type": "00"}, up to the
// brace: the base64 and the subtype.
func (s *scanner) legacyBinary() (values [2]token, ok bool) {
	begin := s.pos
	if values[0], ok = s.token(); !ok {
		return values, false
	}
	if s.skip() != ',' {
		return values, s.fail(begin, "$binary must be an object, or have $type behind it")
	}
	key, ok := s.member(false)
	if !ok {
		return values, false
	}
	if string(key) != "$type" {
		return values, s.fail(begin, "$binary must be an object, or have $type behind it")
	}
	values[1], ok = s.stringToken(kindBinary)
	return values, ok
}
