package bson

import (
	"encoding/binary"
	"slices"
)

// PrependID returns a copy of d with an element in front. It does not look for key in d.
func PrependID(d Raw, key string, v Value) Raw {
	b := NewBuilder(make([]byte, 0, max(len(d), minDocument)+len(key)+len(v.Data)+2))
	return b.Value(key, v).AppendElements(d).Finish()
}

// With returns a copy of d with v for key, in the place of the first element with that key, or at
// the end.
func With(d Raw, key string, v Value) Raw {
	b := NewBuilder(make([]byte, 0, max(len(d), minDocument)+len(key)+len(v.Data)+2))
	set := false
	for it := d.Iter(); it.Next(); {
		if it.Key() != key || set {
			b.element1(it.Element())
			continue
		}
		b.Value(key, v)
		set = true
	}
	if !set {
		b.Value(key, v)
	}
	return b.Finish()
}

// Without returns d without the elements with these keys. It returns d itself if there are none.
func Without(d Raw, keys ...string) Raw {
	found := false
	for it := d.Iter(); it.Next() && !found; {
		found = slices.Contains(keys, it.Key())
	}
	if !found {
		return d
	}
	b := NewBuilder(make([]byte, 0, len(d)))
	for it := d.Iter(); it.Next(); {
		if !slices.Contains(keys, it.Key()) {
			b.element1(it.Element())
		}
	}
	return b.Finish()
}

// element1 appends an element as it is.
func (b *Builder) element1(e []byte) {
	b.begin()
	b.buf = append(b.buf, e...)
}

// Concat returns one document with the elements of all docs, including duplicate keys.
func Concat(docs ...Raw) Raw {
	n := minDocument
	for _, d := range docs {
		n += len(d)
	}
	b := NewBuilder(make([]byte, 0, n))
	for _, d := range docs {
		b.AppendElements(d)
	}
	return b.Finish()
}

// AppendNormal appends d to dst with the keys of arrays ascending from "0" and the options of
// regular expressions sorted. The BSON specification asks that of writers; readers, such as
// Validate, accept any keys and order. d must be valid.
func AppendNormal(dst []byte, d Raw) []byte { return appendNormal(dst, d, false) }

func appendNormal(dst []byte, d []byte, array bool) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	i := 0
	for it := Raw(d).Iter(); it.Next(); i++ {
		v := it.Value()
		dst = append(dst, byte(v.Type))
		if array {
			dst = appendIndex(dst, i)
		} else {
			dst = append(dst, it.Key()...)
		}
		dst = append(dst, 0)
		switch v.Type {
		case TypeDocument, TypeArray:
			dst = appendNormal(dst, v.Data, v.Type == TypeArray)
		case TypeRegex:
			pattern, options, _ := v.Regex()
			dst, _ = appendRegex(dst, pattern, options) // cstrings have no zero bytes
		case TypeCodeWithScope:
			code, scope, _ := v.CodeWithScope()
			at := len(dst)
			dst = append(dst, 0, 0, 0, 0)
			dst = appendString(dst, code)
			dst = appendNormal(dst, scope, false)
			binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at))
		default:
			dst = append(dst, v.Data...)
		}
	}
	dst = append(dst, 0)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}
