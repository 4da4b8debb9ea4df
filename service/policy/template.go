package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// template holds a document of an annotation. {"$claim": "a.b"} in it stands for the value of a
// claim. A nil template is not a document.
type template struct {
	doc bson.Raw
	// constant is true if there is no claim in it.
	constant bool
}

const claimKey = "$claim"

// parseTemplate reads an annotation: Extended JSON, in which ' may stand for ", since Cedar writes
// " within its texts as \".
func parseTemplate(text string) (*template, error) {
	doc, err := extjson.Parse(nil, []byte(strings.ReplaceAll(text, "'", `"`)))
	if err != nil {
		return nil, err
	}
	if bson.Raw(doc).IsEmpty() {
		return nil, errors.New("is empty")
	}
	return &template{doc: doc, constant: !strings.Contains(text, claimKey)}, nil
}

// parseFilter reads @filter. It takes operators whose meaning this package knows.
func parseFilter(text string) (*template, error) {
	t, err := parseTemplate(text)
	if err != nil {
		return nil, err
	}
	return t, checkTemplate(t.doc)
}

func checkTemplate(filter bson.Raw) error {
	for key, v := range filter.All() {
		var err error
		switch {
		case key == "$and" || key == "$or":
			list, ok := v.Array()
			if !ok || list.IsEmpty() {
				return fmt.Errorf("%s must be an array of filters that is not empty", key)
			}
			for _, item := range list.All() {
				sub, ok := item.Document()
				if !ok || sub.IsEmpty() {
					return fmt.Errorf("%s has an item that is not a filter", key)
				}
				if err := checkTemplate(sub); err != nil {
					return err
				}
			}
		case key != normal(key) || strings.Contains(key, "$"):
			return fmt.Errorf("%q is not the path of a field, $and or $or", key)
		default:
			err = checkCondition(v)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// checkCondition checks what a filter of a rule demands of a field.
func checkCondition(v bson.Value) error {
	condition, isDocument := v.Document()
	if !isDocument || isClaim(condition) {
		return checkOperand(v)
	}
	if condition.IsEmpty() {
		return errors.New("a condition must not be an empty document")
	}
	for operator, operand := range condition.All() {
		switch operator {
		case "$eq", "$ne", "$gt", "$gte", "$lt", "$lte":
			if err := checkOperand(operand); err != nil {
				return err
			}
		case "$in", "$nin":
			if err := checkOperands(operand); err != nil {
				return err
			}
		case "$exists":
			if _, ok := operand.Bool(); !ok {
				return errors.New("$exists must be true or false")
			}
		default:
			return fmt.Errorf("the operator %q is not one of $eq, $ne, $gt, $gte, $lt, $lte, "+
				"$in, $nin and $exists", operator)
		}
	}
	return nil
}

func checkOperands(v bson.Value) error {
	list, isList := v.Array()
	if !isList {
		if claim, ok := v.Document(); ok && isClaim(claim) {
			return nil
		}
		return errors.New("$in and $nin must be an array or a claim")
	}
	for _, item := range list.All() {
		if err := checkOperand(item); err != nil {
			return err
		}
	}
	return nil
}

func checkOperand(v bson.Value) error {
	if d, ok := v.Document(); ok && isClaim(d) {
		return nil
	}
	if !isScalar(v) {
		return fmt.Errorf("a value of the type %s is not allowed here: write a string, a number, "+
			"a boolean, a date, an ObjectID, null or {'$claim': 'name'}", v.Type)
	}
	return nil
}

// parseForced reads @forced: fields of the top level with their values.
func parseForced(text string) (*template, error) {
	t, err := parseTemplate(text)
	if err != nil {
		return nil, err
	}
	for key, v := range t.doc.All() {
		if key == "_id" || key != normal(key) || strings.ContainsAny(key, ".$") {
			return nil, fmt.Errorf("%q cannot be forced: name a top-level field other than "+
				"_id", key)
		}
		if err := checkOperand(v); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return t, nil
}

func isClaim(d bson.Raw) bool {
	v, ok := d.Lookup(claimKey)
	_, isText := v.Str()
	return ok && isText && d.Len() == 1
}

// fill returns the document with the principal's claims. It reports false if the principal lacks
// one, or if its value cannot stand there.
func (t *template) fill(who *Principal) (bson.Raw, bool) {
	switch {
	case t == nil:
		return nil, true
	case t.constant:
		return t.doc, true
	}
	return fillDocument(t.doc, who)
}

func fillDocument(d bson.Raw, who *Principal) (bson.Raw, bool) {
	b := bson.NewBuilder(nil)
	for key, v := range d.All() {
		filled, ok := fillValue(v, who, key == "$in" || key == "$nin")
		if !ok {
			return nil, false
		}
		b.Value(key, filled)
	}
	return b.Finish(), true
}

// fillValue returns a value with the principal's claims. list says that a claim here is an array.
func fillValue(v bson.Value, who *Principal, list bool) (bson.Value, bool) {
	if a, ok := v.Array(); ok {
		b := bson.NewBuilder(nil).OpenArray("a")
		for _, item := range a.All() {
			filled, ok := fillValue(item, who, false)
			if !ok {
				return bson.Value{}, false
			}
			b.Value("", filled)
		}
		v, _ := b.Close().Finish().Lookup("a")
		return v, true
	}
	d, ok := v.Document()
	switch {
	case !ok:
		return v, true
	case !isClaim(d):
		filled, ok := fillDocument(d, who)
		return bson.DocumentValue(filled), ok
	}
	path, _ := d.Lookup(claimKey)
	name, _ := path.Str()
	claim, ok := who.claim(name)
	switch {
	case !ok:
		return bson.Value{}, false
	case list:
		return claimArray(claim)
	}
	return claimValue(claim)
}

// claim returns the claim with the name, or, if there is none, the one at the path of names.
func (p *Principal) claim(name string) (any, bool) {
	if v, ok := p.Claims[name]; ok {
		return v, true
	}
	var at any = p.Claims
	for part := range strings.SplitSeq(name, ".") {
		m, ok := at.(map[string]any)
		if !ok {
			return nil, false
		}
		if at, ok = m[part]; !ok {
			return nil, false
		}
	}
	return at, true
}

// claimValue returns the value of a claim. Null and objects have none: null would match documents
// without the field, and an object could be an operator.
func claimValue(claim any) (bson.Value, bool) {
	switch v := claim.(type) {
	case string:
		return bson.StringValue(v), true
	case bool:
		return bson.BoolValue(v), true
	case float64:
		if n, ok := integer(v); ok {
			return bson.Int64Value(n), true
		}
		return bson.DoubleValue(v), !math.IsNaN(v)
	}
	n, ok := integer(claim)
	return bson.Int64Value(n), ok
}

func claimArray(claim any) (bson.Value, bool) {
	items, ok := claim.([]any)
	if !ok {
		return bson.Value{}, false
	}
	values := make([]bson.Value, len(items))
	for i, item := range items {
		if values[i], ok = claimValue(item); !ok {
			return bson.Value{}, false
		}
	}
	// It stands for a set: issuers promise no order.
	slices.SortFunc(values, func(a, b bson.Value) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), bytes.Compare(a.Data, b.Data))
	})
	b := bson.NewBuilder(nil).OpenArray("a")
	for _, v := range slices.CompactFunc(values, bson.Value.Equal) {
		b.Value("", v)
	}
	v, _ := b.Close().Finish().Lookup("a")
	return v, true
}

// exact is the limit below which each integer is a float64 of its own.
const exact = 1 << 53

// integer returns a number of encoding/json or YAML that is an integer.
func integer(number any) (int64, bool) {
	switch n := number.(type) {
	case int:
		return int64(n), true
	case int64:
		return n, true
	case float64:
		return int64(n), n == math.Trunc(n) && math.Abs(n) < exact
	}
	return 0, false
}
