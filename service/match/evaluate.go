package match

import (
	"math"
	"slices"

	"github.com/mooringdb/mooring/core/bson"
)

// evaluation holds how much a decision may still look at. Once it is negative, what the methods
// return does not count.
type evaluation struct{ steps int }

// meets reports whether a document meets a condition.
func (e *evaluation) meets(d bson.Raw, c *condition) bool {
	if e.steps--; e.steps < 0 {
		return false
	}
	switch c.kind {
	case kindField:
		return e.allAt(d, c.path, c.operators)
	case kindAny, kindNone:
		for i := range c.of {
			if e.meets(d, &c.of[i]) {
				return c.kind == kindAny
			}
		}
		return c.kind == kindNone
	default:
		for i := range c.of {
			if !e.meets(d, &c.of[i]) {
				return false
			}
		}
		return true
	}
}

// allAt reports whether all operators hold of the field at a path.
func (e *evaluation) allAt(d bson.Raw, path []part, all []operator) bool {
	for i := range all {
		o := &all[i]
		holds := false
		if o.test != nil {
			holds = e.at(d, path, o.test)
		} else {
			e.steps--
			holds = e.allAt(d, path, o.group) != o.negated
		}
		if !holds {
			return false
		}
	}
	return true
}

// allOf reports whether all operators hold of one value.
func (e *evaluation) allOf(v bson.Value, all []operator) bool {
	for i := range all {
		o := &all[i]
		holds := false
		if o.test != nil {
			holds = e.holds(v, o.test)
		} else {
			e.steps--
			holds = e.allOf(v, o.group) != o.negated
		}
		if !holds {
			return false
		}
	}
	return true
}

// at reports whether a test holds of one of the values that a path leads to.
func (e *evaluation) at(d bson.Raw, path []part, t *test) bool {
	for i := range path {
		v := e.find(d, path[i].name)
		switch {
		case i == len(path)-1:
			return e.end(v, t)
		case v.Type == bson.TypeDocument:
			d = v.Data
		case v.Type == bson.TypeArray:
			return e.inArray(v.Data, path[i+1:], t)
		default:
			return e.holds(bson.Value{}, t)
		}
	}
	return false
}

// find returns the first value with a key, the zero Value if there is none.
func (e *evaluation) find(d bson.Raw, key string) bson.Value {
	for it := d.Iter(); it.Next(); {
		if e.steps--; e.steps < 0 {
			break
		}
		if it.Key() == key {
			return it.Value()
		}
	}
	return bson.Value{}
}

// end reports whether a test holds of the value at the end of a path, or of an item of it.
func (e *evaluation) end(v bson.Value, t *test) bool {
	if v.Type == bson.TypeArray && !t.whole() {
		for it := bson.Raw(v.Data).Iter(); it.Next(); {
			if e.holds(it.Value(), t) {
				return true
			}
		}
	}
	return e.holds(v, t)
}

// inArray follows a path from an array: into each document that is in it, and into the item with
// the number that the path goes on with.
func (e *evaluation) inArray(a bson.Raw, path []part, t *test) bool {
	i := 0
	for it := a.Iter(); it.Next(); i++ {
		if e.steps--; e.steps < 0 {
			return false
		}
		v := it.Value()
		if v.Type == bson.TypeDocument && e.at(v.Data, path, t) {
			return true
		}
		if path[0].index != i {
			continue
		}
		found := false
		switch {
		case len(path) == 1:
			found = e.holds(v, t) // not of an item of it
		case v.Type == bson.TypeDocument:
			found = e.at(v.Data, path[1:], t)
		case v.Type == bson.TypeArray:
			found = e.inArray(v.Data, path[1:], t)
		}
		if found {
			return true
		}
	}
	return false
}

// costly is how many bytes of a value are one step.
const costly = 64

// holds reports whether a test holds of a value.
func (e *evaluation) holds(v bson.Value, t *test) bool {
	if e.steps -= 1 + len(v.Data)/costly; e.steps < 0 {
		return false
	}
	switch t.kind {
	case testIn:
		return e.in(v, t)
	case testExists:
		return !v.IsZero()
	case testType:
		return slices.Contains(t.types, v.Type)
	case testMod:
		n, ok := whole(v)
		return ok && remainder(n, t.number) == t.remainder
	case testPattern:
		return e.follows(v, t.patterns[0])
	case testSize:
		list, ok := v.Array()
		return ok && int64(list.Len()) == t.number
	case testElement, testDocument:
		list, _ := v.Array()
		for it := bson.Raw(list).Iter(); it.Next(); {
			if e.steps--; e.steps < 0 {
				return false
			}
			if e.element(it.Value(), t) {
				return true
			}
		}
		return false
	default:
		return e.compares(v, t)
	}
}

// element reports whether an item of an array meets $elemMatch. An array in the array counts as a
// document whose keys are positions.
func (e *evaluation) element(v bson.Value, t *test) bool {
	if t.kind == testElement {
		return e.allOf(v, t.operators)
	}
	return (v.Type == bson.TypeDocument || v.Type == bson.TypeArray) && e.meets(v.Data, &t.filter)
}

func (e *evaluation) in(v bson.Value, t *test) bool {
	if v.IsZero() || v.Type == bson.TypeUndefined {
		return t.null
	}
	_, found := slices.BinarySearchFunc(t.list, v, func(item, v bson.Value) int {
		e.steps -= 1 + min(len(item.Data), len(v.Data))/costly
		return e.compare(item, v)
	})
	if found {
		return true
	}
	for _, p := range t.patterns {
		if e.follows(v, p) {
			return true
		}
	}
	return false
}

// follows reports whether a text follows a regular expression, or a value is the expression.
func (e *evaluation) follows(v bson.Value, p *pattern) bool {
	if v.Type == bson.TypeRegex {
		return e.compare(v, p.value) == 0
	}
	text, ok := v.Str()
	if !ok {
		text, ok = v.Symbol()
	}
	e.steps -= p.cost
	return ok && e.steps >= 0 && p.match(text)
}

// compares reports whether a comparison holds. Values of different classes do not compare, but null
// is equal to a missing field, and MinKey and MaxKey are below and above everything.
func (e *evaluation) compares(v bson.Value, t *test) bool {
	a, b := classOf(v.Type), classOf(t.operand.Type)
	if a != b {
		switch {
		case b == classNull && a == classMissing:
			return t.kind == testEqual || t.kind == testGreaterEqual || t.kind == testLessEqual
		case b == classMaxKey:
			return t.kind == testLess || t.kind == testLessEqual
		case b == classMinKey:
			return t.kind == testGreater || t.kind == testGreaterEqual
		}
		return false
	}
	if a == classNumber && (isNaN(v) || isNaN(t.operand)) {
		return t.kind != testGreater && t.kind != testLess && isNaN(v) && isNaN(t.operand)
	}
	order := e.compare(v, t.operand)
	switch t.kind {
	case testGreater:
		return order > 0
	case testGreaterEqual:
		return order >= 0
	case testLess:
		return order < 0
	case testLessEqual:
		return order <= 0
	default:
		return order == 0
	}
}

// whole returns the integer that a number becomes without its fraction. It reports false if there
// is none of 64 bits.
func whole(v bson.Value) (int64, bool) {
	switch v.Type {
	case bson.TypeInt32, bson.TypeInt64:
		return v.AsInt64()
	case bson.TypeDouble:
		f, _ := v.Double()
		f = math.Trunc(f)
		return int64(f), f >= -1<<63 && f < 1<<63
	case bson.TypeDecimal128:
		return exact(v).whole()
	default:
		return 0, false
	}
}

// remainder returns what is left of a division, 0 also where it overflows.
func remainder(n, by int64) int64 {
	if by == -1 {
		return 0
	}
	return n % by
}
