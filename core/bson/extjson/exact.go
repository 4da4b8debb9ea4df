package extjson

// ObjectIds and dates are read by their exact bytes, as drivers and this package spell them. Every
// other spelling, and what is wrong, is left to wrapper.

const (
	oidHead  = `{"$oid":"`
	oidText  = oidHead + `0123456789abcdef01234567"}`
	dateHead = `{"$date":"`
	dateText = dateHead + `2006-01-02T15:04:05Z"}`
)

// exactObjectID reads an ObjectId in its usual spelling, or nothing.
func (p *parser) exactObjectID() bool {
	src := p.src[p.pos:]
	if len(src) < len(oidText) || string(src[:len(oidHead)]) != oidHead ||
		src[len(oidText)-2] != '"' || src[len(oidText)-1] != '}' {
		return false
	}
	id, ok := unhex12(src[len(oidHead):])
	if ok {
		p.dst = append(p.dst, id[:]...)
		p.pos += len(oidText)
	}
	return ok
}

// exactDate reads a date in its usual spelling, in UTC, with milliseconds or without a fraction,
// or nothing.
func (p *parser) exactDate() bool {
	src := p.src[p.pos:]
	if len(src) < len(dateText) || string(src[:len(dateHead)]) != dateHead {
		return false
	}
	ms, n := readDate(src[len(dateHead):])
	end := len(dateHead) + n
	if n == 0 || len(src) < end+2 || src[end] != '"' || src[end+1] != '}' {
		return false
	}
	p.put64(uint64(ms))
	p.pos += end + 2
	return true
}
