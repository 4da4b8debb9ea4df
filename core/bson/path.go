package bson

import "github.com/mooringdb/mooring/core/bson/internal/path"

// PathAt returns the path, such as "a.b.3", of the element that holds the byte at offset. In a
// malformed document the path ends where the lengths no longer lead further.
func PathAt(d Raw, offset int) string {
	var keys []string
	base, body := 0, []byte(d)
	for len(body) >= minDocument {
		key, at, t, ok := elementAt(body, offset-base)
		if !ok {
			break
		}
		keys = append(keys, key)
		at, ok = nested(t, body, at)
		if !ok || offset-base < at+4 {
			break
		}
		body, base = body[at:], base+at
		if n := len(body); n >= 4 && readInt32(body) >= 0 && readInt32(body) < n {
			body = body[:readInt32(body)]
		}
		if offset-base >= len(body) {
			break
		}
	}
	return path.Join(keys)
}

// elementAt finds the element of body that holds the byte at offset, and returns
// where its value begins.
func elementAt(body []byte, offset int) (key string, at int, t Type, ok bool) {
	pos := 4
	for pos < len(body) && body[pos] != 0 {
		t = Type(body[pos])
		n := cstringLen(body[pos+1:])
		if n < 0 {
			return "", 0, 0, false
		}
		at = pos + n + 2
		size := valueLen(t, body[at:])
		if size < 0 || offset < at+size {
			return string(body[pos+1 : pos+1+n]), at, t, true
		}
		pos = at + size
	}
	return "", 0, 0, false
}

// nested returns where the document inside a value begins.
func nested(t Type, body []byte, at int) (int, bool) {
	if t == TypeDocument || t == TypeArray {
		return at, true
	}
	if t != TypeCodeWithScope || at+8 > len(body) {
		return 0, false
	}
	n := readInt32(body[at+4:])
	if n < 0 || n > len(body)-at-8 {
		return 0, false
	}
	return at + 8 + n, true
}
