package bson

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

// Key returns the key of this element, a view; "" before the first and after the last.
func (it *Iter) Key() string { return it.key }

// Value returns the value of this element.
func (it *Iter) Value() Value { return it.value }

// Offset returns where this element begins in the document.
func (it *Iter) Offset() int { return it.start }

// Element returns this element's bytes: type, key and value.
func (it *Iter) Element() []byte { return it.doc[it.start:it.pos] }

// Err returns the error that ended the walk early, or nil.
func (it *Iter) Err() error {
	if !it.broken {
		return nil
	}
	if err := it.doc.Validate(); err != nil {
		return err
	}
	return &ValidationError{Offset: it.pos, Problem: "malformed element"}
}
