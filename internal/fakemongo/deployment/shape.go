package deployment

import (
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// within adds find's min and max, bounds of an index's key, to a filter.
func within(filter, lower, upper bson.Raw) bson.Raw {
	b := bson.NewBuilder(nil).AppendElements(filter)
	for key, v := range lower.All() {
		b.OpenDocument(key).Value("$gte", v).Close()
	}
	for key, v := range upper.All() {
		b.OpenDocument(key).Value("$lt", v).Close()
	}
	return b.Finish()
}

// indexed is what returnKey leaves of a document here, where _id has the only index.
var indexed = bson.NewBuilder(nil).Int32("_id", 1).Finish()

// projection returns which fields find leaves of documents; nil: all.
func projection(find bson.Raw) (bson.Raw, error) {
	key, _ := field(find, "returnKey").Bool()
	record, _ := field(find, "showRecordId").Bool()
	switch {
	case key:
		return indexed, nil
	case record:
		return nil, failure.BadValue.Errorf("documents have no record id here")
	}
	return document(find, "projection"), nil
}

// project returns a new list of documents, with the fields that a projection says. They keep their
// _id unless it is excluded.
func (s scope) project(docs []bson.Raw, projection bson.Raw) ([]bson.Raw, error) {
	if projection.IsEmpty() {
		return docs, nil
	}
	excluded := exclusion(projection)
	for name, v := range projection.All() {
		if name != "_id" && !isExpression(v) && !v.Truthy() && excluded == nil ||
			!isExpression(v) && strings.Contains(name, ".") {
			return nil, failure.BadValue.Errorf(
				"a projection has fields of one kind here: %s", name)
		}
	}
	if _, err := s.projectOne(nil, projection); err != nil { // without documents, too
		return nil, err
	}
	out := make([]bson.Raw, len(docs))
	for i, doc := range docs {
		var err error
		if out[i], err = s.projectOne(doc, projection); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// isExpression reports whether a field of a projection is computed, and not kept or left out.
func isExpression(v bson.Value) bool { return !isNumber(v) && v.Type != bson.TypeBool }

// exclusion returns the fields that a projection leaves out; nil: it is not a list of such fields.
func exclusion(projection bson.Raw) (names []string) {
	for name, v := range projection.All() {
		if isExpression(v) || v.Truthy() {
			return nil
		}
		names = append(names, name)
	}
	return names
}

func (s scope) projectOne(doc, projection bson.Raw) (bson.Raw, error) {
	if excluded := exclusion(projection); excluded != nil {
		return bson.Without(doc, excluded...), nil
	}
	b := new(bson.Builder)
	for key, v := range doc.All() {
		asked := field(projection, key)
		if asked.IsZero() && key == "_id" || !asked.IsZero() && !isExpression(asked) &&
			asked.Truthy() {
			b.Value(key, v)
		}
	}
	for key, v := range projection.All() {
		if !isExpression(v) {
			continue
		}
		value, err := s.evaluate(v, doc)
		if err != nil {
			return nil, err
		}
		if value.IsZero() {
			continue
		}
		path := strings.Split(key, ".")
		for _, outer := range path[:len(path)-1] {
			b.OpenDocument(outer)
		}
		b.Value(path[len(path)-1], value)
		for range path[1:] {
			b.Close()
		}
	}
	return b.Finish(), nil
}

// documentStages are the stages of pipelines that change one document at a time. Updates know them
// as well.
var documentStages = map[string]func(s scope, doc bson.Raw, argument bson.Value) (bson.Raw, error){
	"$set":         scope.addFields,
	"$addFields":   scope.addFields,
	"$replaceWith": scope.replaceRoot,
	"$replaceRoot": func(s scope, doc bson.Raw, argument bson.Value) (bson.Raw, error) {
		d, _ := argument.Document()
		return s.replaceRoot(doc, field(d, "newRoot"))
	},
	"$unset": func(_ scope, doc bson.Raw, argument bson.Value) (bson.Raw, error) {
		names, _ := texts(argument)
		if name, ok := argument.Str(); ok {
			names = []string{name}
		}
		return bson.Without(doc, names...), nil
	},
	"$project": func(s scope, doc bson.Raw, argument bson.Value) (bson.Raw, error) {
		d, _ := argument.Document()
		out, err := s.project([]bson.Raw{doc}, d)
		if err != nil {
			return nil, err
		}
		return out[0], nil
	},
}

func (s scope) addFields(doc bson.Raw, argument bson.Value) (bson.Raw, error) {
	added, _ := argument.Document()
	out := doc
	for key, v := range added.All() {
		value, err := s.evaluate(v, doc)
		if err != nil {
			return nil, err
		}
		if !value.IsZero() {
			out = bson.With(out, key, value)
		}
	}
	return out, nil
}

func (s scope) replaceRoot(doc bson.Raw, argument bson.Value) (bson.Raw, error) {
	value, err := s.evaluate(argument, doc)
	if err != nil {
		return nil, err
	}
	root, ok := value.Document()
	if !ok {
		return nil, failure.BadValue.Errorf("the new root is not a document")
	}
	return root, nil
}
