package schema

import (
	"cmp"

	"github.com/mooringdb/mooring/core/bson"
)

// A document with more fields than these over a sample has names that are data, such as ids.
const (
	maxNames    = 100  // of an embedded document
	maxTopNames = 1000 // of a document
)

// Sample learns the type of documents from some of them. The zero Sample has seen none.
type Sample struct{ top seen }

// Add learns from a document, and keeps none of its bytes.
func (s *Sample) Add(document bson.Raw) {
	s.top.add(bson.DocumentValue(document), maxTopNames, 0)
}

// Len returns how many documents were added.
func (s *Sample) Len() int { return s.top.documents }

// Type returns the type of the documents. A field is required if all documents have it.
func (s *Sample) Type() *Type {
	if s.top.documents == 0 {
		return anything().only(Object)
	}
	return s.top.typed()
}

// seen holds what was seen of the values at one place.
type seen struct {
	kinds     Kinds
	documents int // how many of the values were documents
	names     []string
	fields    map[string]*field
	values    *seen // of a document whose names are data
	elements  *seen
}

type field struct {
	seen
	in int // documents that have it
}

func (s *seen) add(v bson.Value, most, depth int) {
	s.kinds |= ofBSON[v.Type]
	if depth > maxDepth {
		return
	}
	if d, ok := v.Document(); ok {
		s.documents++
		for name, v := range d.All() {
			s.addField(name, v, most, depth+1)
		}
	}
	if a, ok := v.Array(); ok {
		for _, v := range a.All() {
			if s.elements == nil {
				s.elements = &seen{}
			}
			s.elements.add(v, maxNames, depth+1)
		}
	}
}

func (s *seen) addField(name string, v bson.Value, most, depth int) {
	if s.values != nil {
		s.values.add(v, maxNames, depth)
		return
	}
	f := s.fields[name]
	if f == nil {
		f = &field{}
		if s.fields == nil {
			s.fields = map[string]*field{}
		}
		s.fields[name], s.names = f, append(s.names, name)
	}
	f.in++
	f.add(v, maxNames, depth)
	if len(s.names) > most {
		s.collapse()
	}
}

// collapse makes one of all fields: their names are data.
func (s *seen) collapse() {
	if s.values == nil {
		s.values = &seen{}
	}
	for _, name := range s.names {
		s.values.join(&s.fields[name].seen)
	}
	s.names, s.fields = nil, nil
}

// join adds what other has seen, which is not used again.
func (s *seen) join(other *seen) {
	s.kinds |= other.kinds
	s.documents += other.documents
	s.elements = joined(s.elements, other.elements)
	s.values = joined(s.values, other.values)
	for _, name := range other.names {
		f := s.fields[name]
		if f == nil {
			f = &field{}
			if s.fields == nil {
				s.fields = map[string]*field{}
			}
			s.fields[name], s.names = f, append(s.names, name)
		}
		f.in += other.fields[name].in
		f.join(&other.fields[name].seen)
	}
	if len(s.names) > maxNames || s.values != nil && len(s.names) > 0 {
		s.collapse()
	}
}

func joined(a, b *seen) *seen {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	a.join(b)
	return a
}

func (s *seen) typed() *Type {
	t := &Type{Kinds: s.kinds}
	if s.values != nil {
		t.Values = s.values.typed()
	}
	for _, name := range s.names {
		f := s.fields[name]
		t.Fields = append(t.Fields, Field{
			Name: name, Optional: f.in < s.documents, Type: f.typed(),
		})
	}
	if s.elements != nil {
		t.Elements = s.elements.typed()
	}
	return t
}
