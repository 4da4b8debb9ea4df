// Package schema knows what the documents of a collection look like: from the $jsonSchema of its
// validator, or from a sample of documents. It does no I/O. Package declare writes declarations
// from its types.
package schema

import (
	"cmp"
	"slices"

	"github.com/mooringdb/mooring/core/bson"
)

// maxDepth bounds how deeply a Type nests. Documents and arrays that nest deeper are of any kind.
const maxDepth = 24

// Kinds represents a set of BSON types.
type Kinds uint32

// The kinds of values. Any is all of them: nothing is known of a value.
const (
	Double Kinds = 1 << iota
	String
	Object
	Array
	Binary
	Undefined
	ObjectID
	Bool
	Date
	Null
	Regex
	DBPointer
	JavaScript
	Symbol
	CodeWithScope
	Int
	Timestamp
	Long
	Decimal
	MinKey
	MaxKey
	end

	Any    = end - 1
	Number = Double | Int | Long | Decimal
)

// ofBSON has the kind of each BSON type.
var ofBSON = map[bson.Type]Kinds{
	bson.TypeDouble: Double, bson.TypeString: String, bson.TypeDocument: Object,
	bson.TypeArray: Array, bson.TypeBinary: Binary, bson.TypeUndefined: Undefined,
	bson.TypeObjectID: ObjectID, bson.TypeBool: Bool, bson.TypeDateTime: Date,
	bson.TypeNull: Null, bson.TypeRegex: Regex, bson.TypeDBPointer: DBPointer,
	bson.TypeJavaScript: JavaScript, bson.TypeSymbol: Symbol,
	bson.TypeCodeWithScope: CodeWithScope, bson.TypeInt32: Int,
	bson.TypeTimestamp: Timestamp, bson.TypeInt64: Long, bson.TypeDecimal128: Decimal,
	bson.TypeMinKey: MinKey, bson.TypeMaxKey: MaxKey,
}

// aliases has the names that the keywords bsonType and type give to kinds.
var aliases = map[string]Kinds{
	"double": Double, "string": String, "object": Object, "array": Array, "binData": Binary,
	"undefined": Undefined, "objectId": ObjectID, "bool": Bool, "boolean": Bool, "date": Date,
	"null": Null, "regex": Regex, "dbPointer": DBPointer, "javascript": JavaScript,
	"symbol": Symbol, "javascriptWithScope": CodeWithScope, "int": Int, "timestamp": Timestamp,
	"long": Long, "decimal": Decimal, "minKey": MinKey, "maxKey": MaxKey, "number": Number,
}

// Type describes what a value may be. It has at most one form for each kind: the documents of a
// union are one document that has the fields of all. A Type is not changed once it is made.
type Type struct {
	Kinds Kinds
	// Fields are those of a document. Without any, documents may have all fields.
	Fields []Field
	// Values describes the fields of a document whose names are data. Nil: it is not known.
	Values *Type
	// Elements describes the elements of an array. Nil: they may be anything.
	Elements *Type
	// Strings and Numbers are the values that are possible, if only some are.
	Strings []string
	Numbers []float64
}

// Field describes a field of a document.
type Field struct {
	Name     string
	Doc      string // its description
	Optional bool   // a document may be without it
	Type     *Type
}

// Is reports whether a value is of one of these kinds, whatever it is.
func (t *Type) Is(kinds Kinds) bool { return t.Kinds != 0 && t.Kinds&^kinds == 0 }

// May reports whether a value may be of one of these kinds.
func (t *Type) May(kinds Kinds) bool { return t.Kinds&kinds != 0 }

// Has reports whether documents have a field of this name, if it is known which they have.
func (t *Type) Has(name string) bool { return t.field(name) != nil }

// WithField returns a type that has one more field, as the first, in place of one with its name.
func (t *Type) WithField(f Field) *Type {
	with := *t
	with.Fields = []Field{f}
	for _, other := range t.Fields {
		if other.Name != f.Name {
			with.Fields = append(with.Fields, other)
		}
	}
	return &with
}

// Required returns a type whose field of this name, if it has one, is the first, and in every
// document.
func (t *Type) Required(name string) *Type {
	f := t.field(name)
	if f == nil {
		return t
	}
	first := *f
	first.Optional = false
	return t.WithField(first)
}

func (t *Type) field(name string) *Field {
	for i := range t.Fields {
		if t.Fields[i].Name == name {
			return &t.Fields[i]
		}
	}
	return nil
}

func anything() *Type { return &Type{Kinds: Any} }

// only returns t with no more than these kinds.
func (t *Type) only(kinds Kinds) *Type {
	narrow := *t
	narrow.Kinds &= kinds
	if narrow.Strings != nil && len(narrow.Strings) == 0 {
		narrow.Kinds &^= String
	}
	if narrow.Numbers != nil && len(narrow.Numbers) == 0 {
		narrow.Kinds &^= Number
	}
	if !narrow.May(Object) {
		narrow.Fields, narrow.Values = nil, nil
	}
	if !narrow.May(Array) {
		narrow.Elements = nil
	}
	if !narrow.May(String) {
		narrow.Strings = nil
	}
	if !narrow.May(Number) {
		narrow.Numbers = nil
	}
	return &narrow
}

// intersect returns the values that are of both types. A field that one type lacks is as the other
// has it.
func intersect(a, b *Type) *Type {
	t := &Type{
		Kinds:    a.Kinds & b.Kinds,
		Fields:   intersectFields(a, b),
		Values:   either(a.Values, b.Values, intersect),
		Elements: either(a.Elements, b.Elements, intersect),
		Strings:  common(a.Strings, b.Strings),
		Numbers:  common(a.Numbers, b.Numbers),
	}
	return t.only(Any)
}

// union returns the values that are of one of the types, or of both. A field that one type lacks
// is optional.
func union(a, b *Type) *Type {
	if a.Kinds == 0 {
		return b
	}
	if b.Kinds == 0 {
		return a
	}
	t := &Type{Kinds: a.Kinds | b.Kinds}
	t.Fields = unionFields(a, b)
	t.Values = both(a, b, a.Values, b.Values, Object)
	t.Elements = both(a, b, a.Elements, b.Elements, Array)
	t.Strings = all(a, b, a.Strings, b.Strings, String)
	t.Numbers = all(a, b, a.Numbers, b.Numbers, Number)
	return t
}

// intersectFields returns the fields of both types, in the order of a and then of b.
func intersectFields(a, b *Type) []Field {
	fields := slices.Clone(a.Fields)
	for i := range fields {
		if f, g := &fields[i], b.field(fields[i].Name); g != nil {
			f.Optional = f.Optional && g.Optional
			f.Type = intersect(f.Type, g.Type)
			f.Doc = cmp.Or(f.Doc, g.Doc)
		}
	}
	for _, g := range b.Fields {
		if a.field(g.Name) == nil {
			fields = append(fields, g)
		}
	}
	return fields
}

// unionFields returns the fields of both types, in the order of a and then of b. If documents of
// one may have any fields, so may those of the union.
func unionFields(a, b *Type) []Field {
	switch {
	case !a.May(Object):
		return b.Fields
	case !b.May(Object):
		return a.Fields
	case len(a.Fields) == 0 || len(b.Fields) == 0:
		return nil
	}
	fields := slices.Clone(a.Fields)
	for i := range fields {
		f, g := &fields[i], b.field(fields[i].Name)
		if g == nil {
			f.Optional = true
			continue
		}
		f.Optional = f.Optional || g.Optional
		f.Type = union(f.Type, g.Type)
		f.Doc = cmp.Or(f.Doc, g.Doc)
	}
	for _, g := range b.Fields {
		if a.field(g.Name) == nil {
			g.Optional = true
			fields = append(fields, g)
		}
	}
	return fields
}

// either merges two types of which nil is all values.
func either(a, b *Type, merge func(a, b *Type) *Type) *Type {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return merge(a, b)
}

// both returns the union of parts of two types: of the type that may be of a kind, or of both.
func both(a, b, ofA, ofB *Type, kind Kinds) *Type {
	switch {
	case !a.May(kind):
		return ofB
	case !b.May(kind):
		return ofA
	case ofA == nil || ofB == nil:
		return nil
	}
	return union(ofA, ofB)
}

// common returns the values that are in both lists, of which nil is all values.
func common[V comparable](a, b []V) []V {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	values := []V{}
	for _, v := range a {
		if slices.Contains(b, v) {
			values = append(values, v)
		}
	}
	return values
}

// all returns the values that are in one of the lists, of which nil is all values of a kind.
func all[V comparable](a, b *Type, ofA, ofB []V, kind Kinds) []V {
	switch {
	case !a.May(kind):
		return ofB
	case !b.May(kind):
		return ofA
	case ofA == nil || ofB == nil:
		return nil
	}
	values := slices.Clone(ofA)
	for _, v := range ofB {
		if !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}
