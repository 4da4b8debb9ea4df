// Package projection takes from documents the fields that a projection of MongoDB's query language
// names, as a server does. It knows lists of fields to have or to leave out. Compile refuses what
// computes a value, such as $slice, $elemMatch, the positional operator and expressions, and a
// projection without _id.
package projection

import (
	"strings"

	"github.com/mooringdb/mooring/core/bson"
)

// Projection holds a compiled projection. It is immutable; nil leaves documents as they are.
type Projection struct {
	// has says that the paths are what documents keep; otherwise they lose them.
	has   bool
	paths fields
}

// Error says which part of a projection is not evaluated here, or is none for a server either.
type Error struct {
	Path    string
	Problem string
}

func (e *Error) Error() string { return "projection: " + e.Path + ": " + e.Problem }

// fields holds what is named in a document, and within it; nil stands for all of a value.
type fields map[string]fields

// Compile compiles a projection. If it names nothing, Compile returns nil. Its errors are *Error.
func Compile(projection bson.Raw) (*Projection, error) {
	c := compiler{paths: fields{}}
	if err := c.document(projection, "", 0); err != nil {
		return nil, err
	}
	switch {
	case !c.decided && !c.id:
		return nil, nil //nolint:nilnil // see above
	case !c.decided:
		c.has = true // {_id: 1}
	}
	if c.has {
		c.paths[idField] = nil
	}
	return &Projection{has: c.has, paths: c.paths}, nil
}

const idField = "_id"

// maxDepth is how deep a path nests.
const maxDepth = 50

type compiler struct {
	// has is what all values are but that of _id, once one has decided it.
	has, decided bool
	id           bool
	paths        fields
}

// document reads the values of a projection, or of a document in it, whose path ends with a dot.
func (c *compiler) document(d bson.Raw, path string, depth int) error {
	it := d.Iter()
	for it.Next() {
		at := path + it.Key()
		switch nested, ok := it.Value().Document(); {
		case strings.HasPrefix(it.Key(), "$") || strings.Contains(at, ".$"):
			return &Error{at, "computes a value, which is not supported here"}
		case at == "" || strings.HasPrefix(at, ".") || strings.HasSuffix(at, ".") ||
			strings.Contains(at, ".."):
			return &Error{at, "has an empty name"}
		case !ok:
			if err := c.value(at, it.Value()); err != nil {
				return err
			}
		case nested.IsEmpty() || strings.HasPrefix(nested.FirstKey(), "$"):
			return &Error{at, "computes a value, which is not supported here"}
		case depth == maxDepth:
			return &Error{at, "is nested too deeply"}
		default:
			if err := c.document(nested, at+".", depth+1); err != nil {
				return err
			}
		}
	}
	if it.Err() != nil {
		return &Error{path, "is malformed"}
	}
	return nil
}

// value reads what the projection says of one path.
func (c *compiler) value(path string, v bson.Value) error {
	has, isBool := v.Bool()
	if n, isNumber := v.AsDouble(); isNumber {
		has = n != 0
	} else if !isBool {
		return &Error{path, "computes a value, which is not supported here"}
	}
	first, _, within := strings.Cut(path, ".")
	switch {
	case first == idField && (within || !has):
		return &Error{path, "must not leave out _id, by which documents are told apart"}
	case first == idField:
		c.id = true
		return nil
	case c.decided && c.has != has:
		return &Error{path, "mixes fields to include with fields to leave out"}
	case strings.Count(path, ".") >= maxDepth:
		return &Error{path, "is nested too deeply"}
	}
	c.has, c.decided = has, true
	if !c.paths.add(strings.Split(path, ".")) {
		return &Error{path, "overlaps with another path"}
	}
	return nil
}

// add adds a path, and reports whether it is neither within another one nor around it.
func (f fields) add(path []string) bool {
	within, named := f[path[0]]
	switch {
	case named:
		return within != nil && len(path) > 1 && within.add(path[1:])
	case len(path) == 1:
		f[path[0]] = nil
		return true
	}
	f[path[0]] = fields{}
	return f[path[0]].add(path[1:])
}

// Apply returns a document with what the projection leaves of it, in the document's order. If that
// is everything, it is the document itself.
func (p *Projection) Apply(d bson.Raw) bson.Raw {
	if p == nil {
		return d
	}
	b := bson.NewBuilder(make([]byte, 0, len(d)))
	p.fields(b, d, p.paths)
	return b.Finish()
}

func (p *Projection) fields(b *bson.Builder, d bson.Raw, of fields) {
	for key, v := range d.All() {
		inner, named := of[key]
		switch {
		case named && inner != nil:
			p.value(b, key, v, inner)
		case named == p.has:
			b.Value(key, v)
		}
	}
}

// value adds what paths leave of a value. A server looks into all documents of an array, and of
// those in it.
func (p *Projection) value(b *bson.Builder, key string, v bson.Value, of fields) {
	if d, ok := v.Document(); ok {
		b.OpenDocument(key)
		p.fields(b, d, of)
		b.Close()
		return
	}
	list, ok := v.Array()
	switch {
	case ok:
		b.OpenArray(key)
		for _, item := range list.All() {
			p.value(b, "", item, of)
		}
		b.Close()
	case !p.has:
		b.Value(key, v)
	}
}
