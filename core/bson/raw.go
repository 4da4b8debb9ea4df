package bson

import "iter"

// Raw holds one BSON document as bytes. It is a view: it is not copied, and its bytes must not be
// changed. The zero value reads as an empty document.
type Raw []byte

// Array holds one BSON array as bytes: a document whose keys do not matter.
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
		problem := "document does not end with a zero byte"
		return nil, b, &ValidationError{Offset: n - 1, Problem: problem}
	}
	return Raw(b[:n:n]), b[n:], nil
}

// All yields the elements of d in order. Keys are views. It stops at malformed
// bytes and reports no error; Iter has the error.
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

// find returns the first value with a key. It does not use an Iter, because replies are read by
// key often.
func (d Raw) find(key string) (Value, bool) {
	if len(d) < minDocument || readInt32(d) != len(d) || d[len(d)-1] != 0 {
		return Value{}, false
	}
	b := d[4 : len(d)-1]
	for len(b) > 0 {
		t := Type(b[0])
		n := cstringLen(b[1:])
		if n < 0 {
			break
		}
		data := b[n+2:]
		size := valueLen(t, data)
		if size < 0 {
			break
		}
		if string(b[1:n+1]) == key {
			return Value{Type: t, Data: data[:size:size]}, true
		}
		b = data[size:]
	}
	return Value{}, false
}

// Has reports whether there is a value at path.
func (d Raw) Has(path ...string) bool {
	_, ok := d.Lookup(path...)
	return ok
}

// Len returns the number of elements, which it counts.
func (d Raw) Len() int {
	n := 0
	for it := d.Iter(); it.Next(); {
		n++
	}
	return n
}

// IsEmpty reports whether d has no elements.
func (d Raw) IsEmpty() bool { return len(d) <= minDocument }

// FirstKey returns the key of the first element: the name of a command. It is "" when
// there is none.
func (d Raw) FirstKey() string {
	it := d.Iter()
	it.Next()
	return it.Key()
}

// Clone returns a copy of d that shares no bytes with it.
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

// Len returns the number of elements, which it counts.
func (a Array) Len() int { return Raw(a).Len() }

// IsEmpty reports whether a has no elements.
func (a Array) IsEmpty() bool { return len(a) <= minDocument }

// Validate checks an array as Raw.Validate checks a document.
func (a Array) Validate() error { return Raw(a).Validate() }
