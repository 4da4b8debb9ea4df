// Package match decides whether a document matches a filter of MongoDB's query language, as a
// server does that compares texts by their bytes. It knows the everyday part of the language:
// comparisons, $in, $nin, $exists, $type, $mod, $size, $all, $elemMatch, $not, $and, $or, $nor, and
// regular expressions that begin with ^ and have a bound. Compile refuses everything else.
//
// It decodes nothing: a filter is compiled once, and looks at the bytes of documents. It does no
// I/O, and the result depends on nothing but filter and document.
package match

import "github.com/mooringdb/mooring/core/bson"

// Filter holds a compiled filter. It is immutable.
type Filter struct {
	root condition
	size int
}

// Answer says what a filter makes of a document.
type Answer uint8

// The answers.
const (
	// Unknown: a decision takes more than MaxSteps.
	Unknown Answer = iota
	No
	Yes
)

// MaxSteps is how many elements of a document a decision looks at, about; what takes longer than a
// look, such as a comparison with a Decimal128, is more of them. Few documents need more than a
// thousand; this many take about a millisecond, and with Decimal128s a few.
const MaxSteps = 1 << 17

// The bounds of a filter.
const (
	maxDepth = 50
	// maxSize is how many bytes it takes at most when it is compiled, and maxGrowth how many more
	// for each of its own.
	maxSize   = 512 << 10
	maxGrowth = 32
)

// Error says which part of a filter is not evaluated here, or is not a filter for a server either.
type Error struct {
	// At is the path of the field whose condition it is; empty: none.
	At      string
	Problem string
}

func (e *Error) Error() string {
	if e.At == "" {
		return "filter: " + e.Problem
	}
	return "filter: " + e.At + ": " + e.Problem
}

// Compile compiles a filter, which it copies. Its errors are *Error.
func Compile(filter bson.Raw) (*Filter, error) {
	c := compiler{size: len(filter), most: maxSize + maxGrowth*len(filter)}
	root, err := c.conditions(filter.Clone(), 0)
	switch {
	case err != nil:
		return nil, err
	case c.size > c.most:
		return nil, c.refuse("it has too many conditions")
	}
	return &Filter{root, c.size}, nil
}

// Size returns how many bytes of memory the filter takes, about.
func (f *Filter) Size() int { return f.size }

// Match decides about a document. It allocates nothing, unless it follows a regular expression.
func (f *Filter) Match(document bson.Raw) Answer {
	answer, _ := f.MatchWithin(document, MaxSteps)
	return answer
}

// MatchWithin does what Match does, with another bound than MaxSteps. It returns how many steps the
// decision takes, more than the bound if it is Unknown.
func (f *Filter) MatchWithin(document bson.Raw, most int) (answer Answer, steps int) {
	e := evaluation{steps: most}
	matches := e.meets(document, &f.root)
	switch steps = most - e.steps; {
	case e.steps < 0:
		return Unknown, steps
	case matches:
		return Yes, steps
	}
	return No, steps
}

// condition holds what a document has to meet.
type condition struct {
	kind kind
	of   []condition // of kindAll, kindAny and kindNone
	// path and operators are those of kindField.
	path      []part
	operators []operator
}

type kind uint8

const (
	kindAll kind = iota
	kindAny
	kindNone
	kindField
)

// part holds one name of a path. index is its number where it may be a position in an array, and -1
// otherwise.
type part struct {
	name  string
	index int
}

// operator holds a test, or a group whose operators must all hold, or the negation of a group.
type operator struct {
	test    *test // nil: a group
	group   []operator
	negated bool
}

// test holds what one value has to meet. A field that is missing is the zero Value.
type test struct {
	kind testKind
	// operand is that of comparisons.
	operand bson.Value
	// list has the values of $in in their order, and null says that null is among them.
	list     []bson.Value
	null     bool
	patterns []*pattern // of $in, $regex
	types    []bson.Type
	// number is the size, or the divisor of $mod.
	number, remainder int64
	// operators and filter are of $elemMatch: what a value has to meet, or a document.
	operators []operator
	filter    condition
}

type testKind uint8

const (
	testEqual testKind = iota
	testGreater
	testGreaterEqual
	testLess
	testLessEqual
	testIn
	testExists
	testType
	testMod
	testPattern
	testSize
	testElement  // $elemMatch of values
	testDocument // $elemMatch of documents
)

// whole reports whether a test looks at an array as a whole, and not at what is in it.
func (t *test) whole() bool { return t.kind >= testSize }
