package policy

import (
	"math"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
)

// filter returns the client's filter, and-ed with that of the decision. nil stands for no filter.
// It fails if the client's filter does what the decision does not allow.
func (l *limits) filter(client bson.Raw) (bson.Raw, error) {
	if err := l.checkFilter(client); err != nil {
		return nil, err
	}
	return and(l.Filter, client), nil
}

// and returns a filter that matches what both match. nil matches everything. The conditions stand
// side by side if they can: some servers take the _id that an upsert inserts from there alone.
func and(rule, client bson.Raw) bson.Raw {
	switch {
	case rule == nil:
		return client
	case client.IsEmpty():
		return rule
	case demands(client, rule):
		return client
	}
	b := bson.NewBuilder(make([]byte, 0, len(rule)+len(client)+32))
	for key := range rule.All() {
		if client.Has(key) {
			return b.OpenArray("$and").Document("", rule).Document("", client).Close().Finish()
		}
	}
	return b.AppendElements(rule).AppendElements(client).Finish()
}

// unshared returns a filter that matches no document with an array at a path of the rule's filter,
// or on the way there: several callers may share it, and one value in place of the array would take
// it from the others.
func (l *limits) unshared(filter bson.Raw) bson.Raw {
	if l.Filter == nil {
		return filter
	}
	var paths []string
	for _, path := range fieldsOf(l.Filter) {
		for i := range len(path) + 1 {
			if i == len(path) || path[i] == '.' {
				paths = append(paths, path[:i])
			}
		}
	}
	slices.Sort(paths)
	b := bson.NewBuilder(make([]byte, 0, len(filter)+64)).OpenArray("$nor")
	for _, path := range slices.Compact(paths) {
		b.OpenDocument("").OpenDocument(path).String("$type", "array").Close().Close()
	}
	return and(filter, b.Close().Finish())
}

// demands reports whether a client's filter has each condition of a rule's filter as it is. Then
// nothing is added: an upsert fails if two conditions demand the same field's value.
func demands(client, rule bson.Raw) bool {
	for key, v := range rule.All() {
		if n := count(client, key); n != 1 {
			return false
		}
		if w, _ := client.Lookup(key); !w.Equal(v) {
			return false
		}
	}
	return true
}

// count returns how often a document has a key.
func count(d bson.Raw, key string) (n int) {
	for k := range d.All() {
		if k == key {
			n++
		}
	}
	return n
}

// checkFilter checks a client's filter.
func (l *limits) checkFilter(filter bson.Raw) error {
	for key, v := range filter.All() {
		if err := l.checkCondition(key, v); err != nil {
			return err
		}
	}
	return nil
}

func (l *limits) checkCondition(key string, v bson.Value) error {
	if err := l.work.Do(element); err != nil {
		return err
	}
	switch {
	case key == "$and" || key == "$or" || key == "$nor":
		list, _ := v.Array() // the server refuses what is not an array
		for sub := range list.Documents() {
			if err := l.checkFilter(sub); err != nil {
				return err
			}
		}
		return nil
	case key == "$comment":
		return nil
	case key == "$expr":
		if err := l.checkExpressions(v); err != nil {
			return err
		}
		return l.checkHarmless(v)
	case key == "$text" && len(l.Hidden) == 0, key == "$jsonSchema" && len(l.Hidden) == 0:
		return nil
	case isInternal(key):
		return errServers
	case strings.HasPrefix(key, "$"):
		if isScript(key) && (!l.script || l.Restricted()) {
			return errScript
		}
		if l.Restricted() {
			return problem("uses " + key + ", which is not possible with limits on documents " +
				"or fields")
		}
		return nil
	case touches(key, l.Hidden):
		return errHidden
	}
	if d, ok := v.Document(); ok {
		return deep(d, l.checkNested)
	}
	if a, ok := v.Array(); ok {
		return deepArray(a, l.checkNested)
	}
	return nil
}

// checkNested checks an element within the condition of a field. Such fields are in the condition's
// own. What belongs to the top level of a filter must not stand there.
func (l *limits) checkNested(key string, _ bson.Value) error {
	if err := l.work.Do(element); err != nil {
		return err
	}
	if !strings.HasPrefix(key, "$") {
		return nil
	}
	if isInternal(key) {
		return errServers
	}
	if isScript(key) && (!l.script || l.Restricted()) {
		return errScript
	}
	if (l.Restricted() || l.picked) && (key == "$expr" || key == "$jsonSchema" || key == "$text") {
		return problem("uses " + key + " within the condition of a field")
	}
	return nil
}

// checkFields checks a document whose keys are paths of fields, such as a sort.
func (l *limits) checkFields(d bson.Raw) error {
	for key := range d.All() {
		if err := l.work.Do(element); err != nil {
			return err
		}
		if touches(key, l.Hidden) {
			return errHidden
		}
	}
	return nil
}

// checkCollation refuses comparisons under which a text in the filter of a rule could match other
// texts.
func (l *limits) checkCollation(collation bson.Raw) error {
	if l.Filter == nil || collation.IsEmpty() {
		return nil
	}
	if locale, _ := collation.Lookup("locale"); !locale.Equal(bson.StringValue("simple")) {
		return problem("changes how texts are compared, which is not possible under a filter")
	}
	return nil
}

// projection returns the client's projection without the hidden fields. nil stands for none.
func (l *limits) projection(client bson.Raw) (bson.Raw, error) {
	if err := l.checkExpressions(bson.DocumentValue(client)); client != nil && err != nil {
		return nil, err
	}
	if len(l.Hidden) == 0 {
		return client, nil
	}
	if includes(client) {
		return client, l.checkFields(client)
	}
	b := bson.NewBuilder(make([]byte, 0, len(client)+64))
	var excluded []string
	for key, v := range client.All() {
		switch {
		case !touches(key, l.Hidden):
			b.Value(key, v)
		case !isZero(v):
			return nil, errHidden
		case !insideAny(key, l.Hidden): // it excludes more; in home.0, 0 is the name of a field
			excluded = append(excluded, key)
			b.Value(key, v)
		}
	}
	for _, path := range l.Hidden { // two exclusions may not overlap
		if !insideAny(path, excluded) {
			b.Int32(path, 0)
		}
	}
	return b.Finish(), nil
}

func insideAny(path string, paths []string) bool {
	for _, other := range paths {
		if within(path, other) {
			return true
		}
	}
	return false
}

// isZero reports whether a projection's value is sure to exclude the field.
func isZero(v bson.Value) bool {
	yes, isBool := v.Bool()
	n, isNumber := v.AsDouble()
	return isBool && !yes || isNumber && n == 0
}

// isOne reports whether a projection's value is sure to include the field.
func isOne(v bson.Value) bool {
	yes, isBool := v.Bool()
	n, isNumber := v.AsDouble()
	return isBool && yes || isNumber && math.Abs(n) >= 1 && !math.IsInf(n, 0)
}

// includes reports whether the server is sure to take a projection for a list of the fields to
// return. Others get the hidden fields as exclusions: if the server takes them for a list of
// fields after all, it refuses the mixture.
func includes(projection bson.Raw) bool {
	only := !projection.IsEmpty()
	for key, v := range projection.All() {
		if isOne(v) && key != "_id" {
			return true
		}
		only = only && isOne(v)
	}
	return only
}
