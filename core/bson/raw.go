package bson

import (
	"iter"
	"strings"
)

// Raw is one BSON document as bytes. It is a view: it is never copied, and
// nobody changes the bytes under it. The zero value reads as an empty document.
type Raw []byte

// Array is one BSON array as bytes: a document whose keys do not matter.
type Array []byte

// Read takes the document that b begins with, and the bytes after it. It checks
// the outermost frame only, its length and its terminator; see Validate.
func Read(b []byte) (doc Raw, rest []byte, err error) {
	if len(b) < minDocument {
		return nil, b, &ValidationError{Problem: "document is shorter than 5 bytes"}
	}
	n := readInt32(b)
	switch {
	case n < minDocument:
		return nil, b, &ValidationError{Problem: "document length is below 5"}
	case n > len(b):
		return nil, b, &ValidationError{Problem: "document is longer than its bytes"}
	case b[n-1] != 0:
		return nil, b, &ValidationError{Offset: n - 1, Problem: "document does not end with a zero byte"}
	}
	return Raw(b[:n:n]), b[n:], nil
}

// All yields the elements of d in order. Keys are views. It stops at malformed
// bytes without a word; Iter says why.
func (d Raw) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for it := d.Iter(); it.Next(); {
			if !yield(it.Key(), it.Value()) {
				return
			}
		}
	}
}

// Lookup finds the value at path, one key for each level; an array's elements
// have their index as key. Where a key occurs twice, the first counts.
func (d Raw) Lookup(path ...string) (Value, bool) {
	if len(path) == 0 {
		return Value{}, false
	}
	for i, key := range path {
		v, ok := d.find(key)
		if !ok || i == len(path)-1 {
			return v, ok
		}
		if v.Type != TypeDocument && v.Type != TypeArray {
			return Value{}, false
		}
		d = v.Data
	}
	return Value{}, false
}

func (d Raw) find(key string) (Value, bool) {
	for it := d.Iter(); it.Next(); {
		if it.Key() == key {
			return it.Value(), true
		}
	}
	return Value{}, false
}

// Has reports whether there is a value at path.
func (d Raw) Has(path ...string) bool {
	_, ok := d.Lookup(path...)
	return ok
}

// Len is the number of elements, which it counts.
func (d Raw) Len() int {
	n := 0
	for it := d.Iter(); it.Next(); {
		n++
	}
	return n
}

// IsEmpty reports whether d has no elements.
func (d Raw) IsEmpty() bool { return len(d) <= minDocument }

// FirstKey is the key of the first element: the name of a command. It is "" when
// there is none.
func (d Raw) FirstKey() string {
	it := d.Iter()
	it.Next()
	return it.Key()
}

// Clone is a copy of d that shares no bytes with it.
func (d Raw) Clone() Raw { return append(Raw(nil), d...) }

// All yields the array's values with their position; the keys are ignored.
func (a Array) All() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		i := 0
		for it := Raw(a).Iter(); it.Next(); i++ {
			if !yield(i, it.Value()) {
				return
			}
		}
	}
}

// Documents yields those elements that are documents.
func (a Array) Documents() iter.Seq[Raw] {
	return func(yield func(Raw) bool) {
		for it := Raw(a).Iter(); it.Next(); {
			if it.Value().Type == TypeDocument && !yield(it.Value().Data) {
				return
			}
		}
	}
}

// Len is the number of elements, which it counts.
func (a Array) Len() int { return Raw(a).Len() }

// IsEmpty reports whether a has no elements.
func (a Array) IsEmpty() bool { return len(a) <= minDocument }

// Validate is Raw.Validate for an array.
func (a Array) Validate() error { return Raw(a).Validate() }

// Iter walks the elements of a document:
//
//	for it := doc.Iter(); it.Next(); { … it.Key(), it.Value() … }
//
// It allocates nothing.
type Iter struct {
	doc    Raw
	pos    int // of the next element
	end    int // of the terminator
	key    string
	value  Value
	start  int // of this element
	broken bool
}

// Iter begins a walk over d.
func (d Raw) Iter() Iter {
	it := Iter{doc: d, pos: 4, end: len(d) - 1}
	if len(d) == 0 {
		it.end = 4
	} else if len(d) < minDocument || readInt32(d) != len(d) || d[len(d)-1] != 0 {
		it.broken, it.pos = true, 0
	}
	return it
}

// Next goes to the next element, and reports whether there is one.
func (it *Iter) Next() bool {
	it.key, it.value = "", Value{}
	if it.broken || it.pos >= it.end {
		return false
	}
	it.start = it.pos
	t := Type(it.doc[it.pos])
	body := it.doc[it.pos+1 : it.end]
	n := cstringLen(body)
	if n < 0 {
		it.broken = true
		return false
	}
	data := body[n+1:]
	size := valueLen(t, data)
	if size < 0 {
		it.broken = true
		return false
	}
	it.key = view(body[:n])
	it.value = Value{Type: t, Data: data[:size:size]}
	it.pos += n + 2 + size
	return true
}

// Key is the key of this element, a view; "" before the first and after the last.
func (it *Iter) Key() string { return it.key }

// Value is the value of this element.
func (it *Iter) Value() Value { return it.value }

// Offset is where this element begins in the document.
func (it *Iter) Offset() int { return it.start }

// Element is this element's bytes: type, key and value.
func (it *Iter) Element() []byte { return it.doc[it.start:it.pos] }

// Err says why the walk ended before the document did; nil when it did not.
func (it *Iter) Err() error {
	if !it.broken {
		return nil
	}
	if err := it.doc.Validate(); err != nil {
		return err
	}
	return &ValidationError{Offset: it.pos, Problem: "malformed element"}
}

// PathAt names the element that holds the byte at offset, as "a.b.3". It works
// on malformed documents as far as their frames can be followed: errors use it.
func PathAt(d Raw, offset int) string {
	var path []string
	base, body := 0, []byte(d)
	for len(body) >= minDocument {
		key, at, t, ok := elementAt(body, offset-base)
		if !ok {
			break
		}
		path = append(path, strings.ToValidUTF8(key, "\uFFFD"))
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
	return strings.Join(path, ".")
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
