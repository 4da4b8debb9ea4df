package policy

import (
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/match"
)

const (
	errReadOnly problem = "writes a field that the caller may not write"
	errFiltered problem = "writes a document that the caller's filter would not match"
)

// insert returns a document that may be inserted, with the forced values.
func (l *limits) insert(doc bson.Raw) (bson.Raw, error) {
	doc = force(doc, l.Forced)
	for _, path := range l.ReadOnly {
		if writes(doc, strings.Split(path, ".")) && !l.Forced.Has(path) {
			return nil, errReadOnly
		}
	}
	if l.Filter != nil && !(l.matches(doc) && isPlain(l.Filter, doc)) {
		return nil, errFiltered
	}
	return doc, nil
}

// force returns the document with the fields in place of its own.
func force(doc, fields bson.Raw) bson.Raw {
	if fields.IsEmpty() {
		return doc
	}
	b := bson.NewBuilder(make([]byte, 0, len(doc)+len(fields)))
	for key, v := range doc.All() {
		if !fields.Has(key) {
			b.Value(key, v)
		}
	}
	return b.AppendElements(fields).Finish()
}

// writes reports whether a document has a value at a path, also one within an array.
func writes(doc bson.Raw, path []string) bool {
	for key, v := range doc.All() {
		if key == path[0] && (len(path) == 1 || writesIn(v, path[1:])) {
			return true
		}
	}
	return false
}

func writesIn(v bson.Value, path []string) bool {
	if sub, ok := v.Document(); ok {
		return writes(sub, path)
	}
	list, _ := v.Array()
	for _, item := range list.All() {
		if writesIn(item, path) {
			return true
		}
	}
	return false
}

// matches reports whether a document matches the filter of the decision, as the server compares
// where texts compare by their bytes. What is not sure does not match.
func (d *Decision) matches(doc bson.Raw) bool {
	return d.match != nil && d.match.Match(doc) == match.Yes
}

// isPlain reports whether each path of a filter leads to one scalar in a document, or to nothing:
// no array or document is there, and no key is there twice. A document with an array could match
// the filters of several callers.
func isPlain(filter, doc bson.Raw) bool {
	return !slices.ContainsFunc(fieldsOf(filter), func(path string) bool {
		return !leadsToScalar(doc, path)
	})
}

func leadsToScalar(doc bson.Raw, path string) bool {
	name, rest, more := strings.Cut(path, ".")
	if count(doc, name) > 1 {
		return false
	}
	v, found := doc.Lookup(name)
	if sub, ok := v.Document(); ok && more {
		return leadsToScalar(sub, rest)
	}
	return !found || isScalar(v)
}

// replacement returns a document that may replace another, with the forced values.
func (l *limits) replacement(doc bson.Raw) (bson.Raw, error) {
	if len(l.Hidden)+len(l.ReadOnly) > 0 {
		return nil, problem("replaces a document that has fields which the caller may not write")
	}
	doc, err := l.insert(doc)
	if err != nil || l.Filter == nil {
		return doc, err
	}
	if _, ok := pinned(l.Filter); !ok {
		return nil, problem("replaces a document, which is possible only if the filter demands " +
			"one value of each field")
	}
	return doc, nil
}

// kept returns the paths that an update must not write: those that the filter looks at, those that
// may not be written and those that are hidden, whose values the count of changes would tell.
func (l *limits) kept() []string {
	paths := fieldsOf(l.Filter)
	paths = append(paths, l.ReadOnly...)
	return append(paths, l.Hidden...)
}

// fieldsInKeys lists the update operators whose operand has the paths of fields as keys.
var fieldsInKeys = map[string]bool{
	"$set": true, "$unset": true, "$inc": true, "$mul": true, "$min": true, "$max": true,
	"$currentDate": true, "$setOnInsert": true, "$push": true, "$pull": true, "$pullAll": true,
	"$addToSet": true, "$pop": true, "$bit": true, "$rename": true,
}

// operators returns update operators that may be applied. upsert says that a document may be
// inserted.
func (l *limits) operators(update bson.Raw, upsert bool) (bson.Raw, error) {
	kept := l.kept()
	if upsert {
		kept = append(kept, fieldsOf(l.Forced)...)
	}
	for operator, operand := range update.All() {
		fields, isDocument := operand.Document()
		if l.Restricted() && count(update, operator) > 1 {
			return nil, problem("has an operator twice")
		}
		if !fieldsInKeys[operator] || !isDocument {
			if l.Restricted() {
				return nil, problem("has the update operator " + operator + ", which the policy " +
					"does not know")
			}
			continue
		}
		for path, v := range fields.All() {
			if err := l.work.Do(element); err != nil {
				return nil, err
			}
			to, _ := v.Str()
			if touches(path, kept) || operator == "$rename" && touches(to, kept) {
				return nil, errReadOnly
			}
		}
	}
	if !upsert {
		return update, nil
	}
	values, err := l.onInsert()
	if err != nil || values.IsEmpty() {
		return update, err
	}
	if err := l.work.Copy(len(update) + len(values)); err != nil {
		return nil, err
	}
	return setOnInsert(update, values), nil
}

// checkUpsert refuses the filter of an upsert that has a field which may not be written: the server
// inserts the values that the filter demands. Fields that onInsert sets are not the filter's.
func (l *limits) checkUpsert(filter bson.Raw) error {
	ours := append(fieldsOf(l.Filter), fieldsOf(l.Forced)...)
	kept := slices.DeleteFunc(slices.Clone(l.ReadOnly), func(path string) bool {
		return slices.Contains(ours, path)
	})
	for _, path := range fieldsOf(filter) {
		if touches(path, kept) {
			return errReadOnly
		}
	}
	return nil
}

// onInsert returns the fields of a document that an upsert inserts: the values that the filter
// demands, which the server may not take from a filter of several parts, and the forced ones.
func (l *limits) onInsert() (bson.Raw, error) {
	if l.Filter == nil {
		return l.Forced, nil
	}
	values, ok := pinned(l.Filter)
	if !ok {
		return nil, problem("can insert a document, which is possible only if the filter demands " +
			"one value of each field")
	}
	b := bson.NewBuilder(nil).AppendElements(values)
	for key, v := range l.Forced.All() {
		w, found := values.Lookup(key)
		if found && !w.Equal(v) {
			return nil, errFiltered
		}
		if !found {
			b.Value(key, v)
		}
	}
	return b.Finish(), nil
}

// setOnInsert adds fields to the operator of this name.
func setOnInsert(update, fields bson.Raw) bson.Raw {
	const operator = "$setOnInsert"
	b := bson.NewBuilder(make([]byte, 0, len(update)+len(fields)+32))
	for key, v := range update.All() {
		if key != operator {
			b.Value(key, v)
		}
	}
	present, _ := update.Lookup(operator)
	client, _ := present.Document()
	return b.OpenDocument(operator).AppendElements(client).AppendElements(fields).Close().Finish()
}

// changes returns an update's pipeline that may be applied.
func (l *limits) changes(stages []bson.Raw, upsert bool) ([]bson.Raw, error) {
	kept := l.kept()
	for _, stage := range stages {
		for name, v := range stage.All() {
			if err := l.checkExpressions(v); err != nil {
				return nil, err
			}
			if !l.Restricted() {
				continue
			}
			if err := checkChange(name, v, kept); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case !l.Restricted():
		return stages, nil
	case len(l.Hidden) > 0:
		return nil, problem("is a pipeline, which is not possible with hidden fields")
	case upsert:
		values, err := l.onInsert()
		if err != nil || values.IsEmpty() {
			return stages, err
		}
		if demanded, _ := pinned(l.Filter); demanded.Len() < values.Len() {
			return nil, problem("is a pipeline that can insert, which is not possible with " +
				"forced values that the filter does not demand")
		}
		b := bson.NewBuilder(nil).OpenDocument("$set")
		for key, v := range values.All() {
			b.OpenDocument(key).Value("$literal", v).Close()
		}
		// Documents that exist have these values.
		return append(slices.Clone(stages), b.Close().Finish()), nil
	}
	return stages, nil
}

// checkChange checks a stage of an update's pipeline: which fields it writes.
func checkChange(name string, v bson.Value, kept []string) error {
	switch name {
	case "$set", "$addFields":
		fields, _ := v.Document()
		for path := range fields.All() {
			if touches(path, kept) {
				return errReadOnly
			}
		}
		return nil
	case "$unset":
		paths := []string{}
		if one, ok := v.Str(); ok {
			paths = append(paths, one)
		}
		list, _ := v.Array()
		for _, item := range list.All() {
			path, _ := item.Str()
			paths = append(paths, path)
		}
		for _, path := range paths {
			if touches(path, kept) {
				return errReadOnly
			}
		}
		return nil
	}
	if len(kept) > 0 {
		return problem("has the stage " + name + ", which can change any field")
	}
	return nil
}

// checkArrayFilters refuses conditions on array items that could look at hidden fields.
func (l *limits) checkArrayFilters(filters []bson.Raw) error {
	for _, f := range filters {
		for _, path := range l.Hidden {
			if strings.Contains(path, ".") {
				return problem("has conditions on array items, which is not possible with a " +
					"hidden field in a document")
			}
		}
		if err := deep(f, l.checkNested); err != nil {
			return err
		}
	}
	return nil
}
