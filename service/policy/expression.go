package policy

import (
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/admission"
)

// problem says which part of a request a decision does not allow. It names no rule.
type problem string

func (p problem) Error() string { return string(p) }

const (
	errScript  problem = "runs JavaScript, which is off"
	errHidden  problem = "names a field that the caller may not use"
	errServers problem = "uses an operator $_internal…, which is used between servers"
)

// limits holds a decision, and what holds for all callers.
type limits struct {
	Decision
	// script is true if requests may run JavaScript.
	script bool
	// picked says that what is found is looked through afterwards, so that a filter meets what the
	// caller does not see.
	picked bool
	// work stops the check when the call has ended, and charges it; nil: nothing does.
	work *admission.Work
}

// isScript reports whether a key is an operator that runs JavaScript.
func isScript(key string) bool {
	return key == "$where" || key == "$function" || key == "$accumulator"
}

// isInternal reports whether a key is an operator that servers use among themselves. Some take the
// path of a field without $, some run JavaScript.
func isInternal(key string) bool { return strings.HasPrefix(key, "$_") }

// deep calls visit for each element of a document, at all depths, until it returns an error.
func deep(d bson.Raw, visit func(key string, v bson.Value) error) error {
	for key, v := range d.All() {
		if err := visit(key, v); err != nil {
			return err
		}
		var err error
		if sub, ok := v.Document(); ok {
			err = deep(sub, visit)
		} else if list, ok := v.Array(); ok {
			err = deepArray(list, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deepArray does what deep does for the items of an array. Their keys are empty.
func deepArray(a bson.Array, visit func(key string, v bson.Value) error) error {
	for _, v := range a.All() {
		if err := visit("", v); err != nil {
			return err
		}
		var err error
		if sub, ok := v.Document(); ok {
			err = deep(sub, visit)
		} else if list, ok := v.Array(); ok {
			err = deepArray(list, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkExpressions checks a value that has expressions in it, anywhere: it runs no JavaScript, and
// names no hidden field. A text that only looks like an expression is taken for one.
func (l *limits) checkExpressions(v bson.Value) error {
	if d, ok := v.Document(); ok {
		return deep(d, l.checkPart)
	}
	if a, ok := v.Array(); ok {
		return deepArray(a, l.checkPart)
	}
	return l.checkPart("", v)
}

func (l *limits) checkPart(key string, v bson.Value) error {
	if err := l.work.Do(element); err != nil {
		return err
	}
	if isInternal(key) {
		return errServers
	}
	if isScript(key) && (!l.script || l.Restricted()) {
		return errScript
	}
	if len(l.Hidden) == 0 {
		return nil
	}
	if key == "$getField" || key == "$setField" || key == "$unsetField" {
		return errHidden
	}
	text, _ := v.Str()
	if key == "$meta" && !plainMeta[text] {
		return errHidden
	}
	if l.readsHidden(text) {
		return errHidden
	}
	return nil
}

// plainMeta lists what $meta returns that has no values of fields. The key of an index has them.
var plainMeta = map[string]bool{
	"textScore": true, "searchScore": true, "vectorSearchScore": true, "geoNearDistance": true,
	"randVal": true, "recordId": true,
}

// readsHidden reports whether a text is an expression that reads a hidden field, or the whole
// document, which has them.
func (l *limits) readsHidden(text string) bool {
	if variable, ok := strings.CutPrefix(text, "$$"); ok {
		name, path, _ := strings.Cut(variable, ".")
		return (name == "ROOT" || name == "CURRENT") && touches(path, l.Hidden)
	}
	path, ok := strings.CutPrefix(text, "$")
	return ok && path != "" && touches(path, l.Hidden)
}

// harmless lists the operators of $expr that do not fail, whatever the document has. Others could
// tell by their errors what is in documents that the caller's filter does not match: the server may
// evaluate the caller's part of a filter first.
var harmless = []string{
	"$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$cmp", "$and", "$or", "$not", "$ifNull", "$cond",
	"$literal",
}

func (l *limits) checkHarmless(v bson.Value) error {
	why := "under a filter"
	switch {
	case l.picked:
		why = "where a rule leaves out some of a list"
	case l.Filter == nil:
		return nil
	}
	visit := func(key string, _ bson.Value) error {
		if err := l.work.Do(element); err != nil {
			return err
		}
		if strings.HasPrefix(key, "$") && !slices.Contains(harmless, key) {
			return problem("uses " + key + " in $expr, which is not possible " + why)
		}
		return nil
	}
	if d, ok := v.Document(); ok {
		return deep(d, visit)
	}
	if a, ok := v.Array(); ok {
		return deepArray(a, visit)
	}
	return nil
}
