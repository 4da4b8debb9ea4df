package bson

import (
	"errors"
	"iter"
)

// DBRef refers to a document in a collection, by the convention {$ref, $id, $db?, …}. A DBRef is
// converted to or from a document only on request.
type DBRef struct {
	Collection  string
	ID          Value // of any type
	Database    string
	HasDatabase bool
	extra       Raw // the document that further fields are in
}

// ErrDBRef says that a document lacks $ref or $id, or has them of a wrong type.
var ErrDBRef = errors.New("bson: document is not a DBRef")

// DBRef reads a document as a DBRef, whatever the order of its fields. Its error is ErrDBRef.
func (d Raw) DBRef() (DBRef, error) {
	r := DBRef{extra: d}
	hasRef := false
	for key, v := range d.All() {
		ok := true
		switch key {
		case "$ref":
			r.Collection, ok = v.Str()
			hasRef = ok
		case "$id":
			r.ID = v
		case "$db":
			r.Database, ok = v.Str()
			r.HasDatabase = ok
		}
		if !ok {
			return DBRef{}, ErrDBRef
		}
	}
	if !hasRef || r.ID.IsZero() {
		return DBRef{}, ErrDBRef
	}
	return r, nil
}

// Extra yields the fields beside $ref, $id and $db, in their order.
func (r DBRef) Extra() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for key, v := range r.extra.All() {
			if key != "$ref" && key != "$id" && key != "$db" && !yield(key, v) {
				return
			}
		}
	}
}

// WithExtra returns r with the fields of d as its further fields.
func (r DBRef) WithExtra(d Raw) DBRef {
	r.extra = d
	return r
}

// Document returns a document of $ref, $id, $db if there is one, and the fields of Extra. If ID is
// the zero Value, $id is null.
func (r DBRef) Document() Raw {
	id := r.ID
	if id.IsZero() {
		id = NullValue()
	}
	b := NewBuilder(nil).String("$ref", r.Collection).Value("$id", id)
	if r.HasDatabase || r.Database != "" {
		b.String("$db", r.Database)
	}
	for key, v := range r.Extra() {
		b.Value(key, v)
	}
	return b.Finish()
}
