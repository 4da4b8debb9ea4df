package schema

import (
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/bson"
)

// Parse returns the type of a collection's documents, which its validator describes, or nil if
// that has no $jsonSchema. It reads what can be said as a type: bsonType, type, enum, properties,
// required, items, additionalProperties, patternProperties, allOf, anyOf and oneOf. Other
// keywords, such as minimum, narrow values and not types. A schema with fields or items but
// without a type is one of documents, or of arrays.
func Parse(validator bson.Raw) (*Type, error) {
	var found *Type
	for key, v := range validator.All() {
		d, isDocument := v.Document()
		a, isArray := v.Array()
		switch {
		case key == "$jsonSchema" && isDocument:
			t, err := parse(d, 0)
			if err != nil {
				return nil, fmt.Errorf("$jsonSchema: %w", err)
			}
			found = either(found, t, intersect)
		case key == "$and" && isArray:
			for part := range a.Documents() {
				t, err := Parse(part)
				if err != nil {
					return nil, err
				}
				found = either(found, t, intersect)
			}
		}
	}
	if found == nil {
		return nil, nil
	}
	return found.only(Object), nil
}

// keywords reads the keywords of one schema into a type. The order of a schema's keywords means
// nothing.
type keywords struct {
	t       *Type
	typed   bool  // the schema says of which kinds its values are
	implied Kinds // the kinds that the schema describes, of which it may not say more
	depth   int
}

func parse(schema bson.Raw, depth int) (*Type, error) {
	if depth > maxDepth {
		return anything(), nil
	}
	k := keywords{t: anything(), depth: depth}
	for key, v := range schema.All() {
		if err := k.read(key, v); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	if required, ok := schema.Lookup("required"); ok {
		k.require(required)
	}
	if !k.typed && k.implied != 0 {
		return k.t.only(k.implied), nil
	}
	return k.t.only(Any), nil
}

// read reads a keyword. The others say nothing of types; required is read at last.
func (k *keywords) read(keyword string, v bson.Value) error {
	switch keyword {
	case "bsonType", "type":
		return k.kinds(v)
	case "enum":
		return k.enum(v)
	case "properties":
		return k.properties(v)
	case "additionalProperties":
		return k.additional(v)
	case "patternProperties":
		return k.patterns(v)
	case "items":
		return k.items(v)
	case "anyOf", "oneOf":
		return k.anyOf(v)
	case "allOf":
		return k.allOf(v)
	}
	return nil
}

func (k *keywords) kinds(v bson.Value) error {
	var kinds Kinds
	for name := range texts(v) {
		kind, ok := aliases[name]
		if !ok {
			return fmt.Errorf("%q is not a type", name)
		}
		kinds |= kind
	}
	k.t, k.typed = k.t.only(kinds), true
	return nil
}

// texts yields a string, or the strings of an array.
func texts(v bson.Value) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if s, ok := v.Str(); ok {
			yield(s)
		}
		if a, ok := v.Array(); ok {
			for _, v := range a.All() {
				if s, ok := v.Str(); ok && !yield(s) {
					return
				}
			}
		}
	}
}

// enum narrows a type to values. The server compares numbers by value, so that those of an enum
// may be of each kind.
func (k *keywords) enum(v bson.Value) error {
	values, ok := v.Array()
	if !ok {
		return errors.New("must be an array")
	}
	t := &Type{Strings: []string{}, Numbers: []float64{}}
	decimals := false
	for _, v := range values.All() {
		kind := ofBSON[v.Type]
		if kind&Number != 0 {
			kind = Number
		}
		t.Kinds |= kind
		if s, ok := v.Str(); ok {
			t.Strings = append(t.Strings, s)
		}
		if n, ok := v.AsDouble(); ok {
			t.Numbers = append(t.Numbers, n)
		}
		decimals = decimals || v.Type == bson.TypeDecimal128
	}
	if decimals {
		t.Numbers = nil
	}
	k.t, k.typed = intersect(k.t, t), true
	return nil
}

func (k *keywords) properties(v bson.Value) error {
	d, _ := v.Document()
	var fields []Field
	for name, v := range d.All() {
		schema, ok := v.Document()
		if !ok {
			return fmt.Errorf("%s: must be a document", name)
		}
		t, err := parse(schema, k.depth+1)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fields = append(fields, Field{
			Name: name, Doc: description(schema), Optional: true, Type: t,
		})
	}
	k.describe(Object, &Type{Fields: fields})
	return nil
}

// describe narrows the values of a kind, and no others.
func (k *keywords) describe(kind Kinds, t *Type) {
	t.Kinds = Any
	k.t, k.implied = intersect(k.t, t), k.implied|kind
}

// description returns what a schema says of itself.
func description(schema bson.Raw) string {
	for _, key := range []string{"description", "title"} {
		if v, ok := schema.Lookup(key); ok {
			if s, ok := v.Str(); ok {
				return s
			}
		}
	}
	return ""
}

// require makes fields required. One that has no property may be anything.
func (k *keywords) require(names bson.Value) {
	var fields []Field
	for name := range texts(names) {
		fields = append(fields, Field{Name: name, Type: anything()})
	}
	k.describe(Object, &Type{Fields: fields})
}

// schema reads a keyword whose value may be a schema; nil: it is none.
func (k *keywords) schema(v bson.Value) (*Type, error) {
	d, ok := v.Document()
	if !ok {
		return nil, nil
	}
	return parse(d, k.depth+1)
}

func (k *keywords) additional(v bson.Value) error {
	t, err := k.schema(v)
	if t != nil {
		k.describe(Object, &Type{Values: t})
	}
	return err
}

func (k *keywords) patterns(v bson.Value) error {
	d, _ := v.Document()
	var values *Type
	for _, v := range d.All() {
		t, err := k.schema(v)
		if err != nil {
			return err
		}
		if t != nil {
			values = either(values, t, union)
		}
	}
	if values != nil {
		k.describe(Object, &Type{Values: values})
	}
	return nil
}

// items reads the schema of elements, or those of the first elements, of which it makes a union.
func (k *keywords) items(v bson.Value) error {
	elements, err := k.schema(v)
	if a, ok := v.Array(); ok {
		elements, err = k.alternatives(a)
	}
	if err == nil && elements != nil {
		k.describe(Array, &Type{Elements: elements})
	}
	return err
}

// alternatives returns the union of schemas.
func (k *keywords) alternatives(a bson.Array) (*Type, error) {
	var t *Type
	for schema := range a.Documents() {
		alternative, err := parse(schema, k.depth+1)
		if err != nil {
			return nil, err
		}
		t = either(t, alternative, union)
	}
	return t, nil
}

func (k *keywords) anyOf(v bson.Value) error {
	a, _ := v.Array()
	t, err := k.alternatives(a)
	if err == nil && t != nil {
		k.t = intersect(k.t, t)
	}
	return err
}

func (k *keywords) allOf(v bson.Value) error {
	a, _ := v.Array()
	for schema := range a.Documents() {
		t, err := parse(schema, k.depth+1)
		if err != nil {
			return err
		}
		k.t = intersect(k.t, t)
	}
	return nil
}
