package match

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
)

// compiler compiles one filter.
type compiler struct {
	at string // the path of the field whose condition it reads
	// size is how many bytes the filter takes so far, about, and most how many it may take.
	size, most int
}

// How many bytes the parts of a filter take, about, in slices that have grown.
const (
	conditionCost = 144
	partCost      = 40
	operatorCost  = 48
	testCost      = 256
	valueCost     = 48
)

func (c *compiler) refuse(problem string) error { return &Error{At: c.at, Problem: problem} }

// conditions compiles a filter, all of whose conditions a document has to meet.
func (c *compiler) conditions(filter bson.Raw, depth int) (condition, error) {
	all := condition{kind: kindAll}
	if depth > maxDepth {
		return all, c.refuse("it is nested too deeply")
	}
	it := filter.Iter()
	for it.Next() {
		one, err := c.condition(it.Key(), it.Value(), depth)
		if err != nil {
			return all, err
		}
		if it.Key() != "$comment" {
			c.size += conditionCost
			all.of = append(all.of, one)
		}
	}
	if it.Err() != nil {
		return all, c.refuse("it is malformed")
	}
	if len(all.of) == 1 {
		return all.of[0], nil
	}
	return all, nil
}

// joins lists the operators that join filters.
var joins = map[string]kind{"$and": kindAll, "$or": kindAny, "$nor": kindNone}

func (c *compiler) condition(key string, v bson.Value, depth int) (condition, error) {
	if k, ok := joins[key]; ok {
		return c.join(k, key, v, depth)
	}
	switch {
	case key == "$comment":
		return condition{}, nil
	case strings.HasPrefix(key, "$"):
		return condition{}, c.unknown(key)
	}
	before := c.at
	c.at = key
	defer func() { c.at = before }()
	operators, err := c.operand(v, depth)
	path := parts(key)
	c.size += partCost * len(path)
	return condition{kind: kindField, path: path, operators: operators}, err
}

func (c *compiler) unknown(operator string) error {
	return c.refuse(operator + " is not supported here")
}

func (c *compiler) join(k kind, key string, v bson.Value, depth int) (condition, error) {
	list, ok := v.Array()
	if !ok || list.IsEmpty() {
		return condition{}, c.refuse(key + " must be an array of filters that is not empty")
	}
	joined := condition{kind: k}
	for _, item := range list.All() {
		filter, ok := item.Document()
		if !ok {
			return joined, c.refuse(key + " has an item that is not a filter")
		}
		one, err := c.conditions(filter, depth+1)
		if err != nil {
			return joined, err
		}
		c.size += conditionCost
		joined.of = append(joined.of, one)
	}
	return joined, nil
}

// parts splits the path of a field.
func parts(path string) (all []part) {
	for name := range strings.SplitSeq(path, ".") {
		index, err := strconv.Atoi(name)
		if err != nil || index < 0 || strconv.Itoa(index) != name {
			index = -1
		}
		all = append(all, part{name, index})
	}
	return all
}

// operand compiles what a field has to be: a value, a regular expression or operators.
func (c *compiler) operand(v bson.Value, depth int) ([]operator, error) {
	if d, ok := v.Document(); ok && strings.HasPrefix(d.FirstKey(), "$") {
		return c.operators(d, depth)
	}
	if v.Type == bson.TypeRegex {
		return c.pattern(v, "")
	}
	return c.compare(testEqual, v)
}

// operators compiles a document of operators, all of which must hold.
func (c *compiler) operators(d bson.Raw, depth int) (all []operator, err error) {
	if depth > maxDepth {
		return nil, c.refuse("it is nested too deeply")
	}
	it := d.Iter()
	for it.Next() {
		some, err := c.operator(it.Key(), it.Value(), d, depth)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	if it.Err() != nil {
		return nil, c.refuse("it is malformed")
	}
	return all, nil
}

var comparisons = map[string]testKind{
	"$eq": testEqual, "$gt": testGreater, "$gte": testGreaterEqual, "$lt": testLess,
	"$lte": testLessEqual,
}

func (c *compiler) operator(key string, v bson.Value, in bson.Raw, depth int) ([]operator, error) {
	if kind, ok := comparisons[key]; ok {
		if v.Type == bson.TypeRegex && kind != testEqual {
			return nil, c.refuse(key + " does not take a regular expression")
		}
		return c.compare(kind, v)
	}
	switch key {
	case "$ne":
		if v.Type == bson.TypeRegex {
			return nil, c.refuse("$ne does not take a regular expression")
		}
		return c.negate(c.compare(testEqual, v))
	case "$in":
		return c.in(key, v)
	case "$nin":
		return c.negate(c.in(key, v))
	case "$exists":
		if isFalse(v) {
			return c.negate(c.one(test{kind: testExists}), nil)
		}
		return c.one(test{kind: testExists}), nil
	case "$type":
		return c.types(v)
	case "$mod":
		return c.mod(v)
	case "$size":
		n, ok := v.AsInt64()
		if !ok || n < 0 {
			return nil, c.refuse("$size must be an integer that is not negative")
		}
		return c.one(test{kind: testSize, number: n}), nil
	case "$all":
		return c.all(v, depth)
	case "$elemMatch":
		return c.element(v, depth)
	case "$not":
		return c.not(v, depth)
	case "$regex":
		options, _ := in.Lookup("$options")
		text, ok := options.Str()
		if !ok && !options.IsZero() {
			return nil, c.refuse("$options must be a string")
		}
		return c.pattern(v, text)
	case "$options":
		if in.Has("$regex") {
			return nil, nil
		}
	}
	return nil, c.unknown(key)
}

func (c *compiler) one(t test) []operator {
	c.size += testCost + operatorCost
	return []operator{{test: &t}}
}

func (c *compiler) negate(group []operator, err error) ([]operator, error) {
	c.size += operatorCost
	return []operator{{group: group, negated: true}}, err
}

func (c *compiler) compare(kind testKind, v bson.Value) ([]operator, error) {
	if v.Type == bson.TypeUndefined {
		return nil, c.refuse("undefined cannot be compared")
	}
	return c.one(test{kind: kind, operand: v}), nil
}

// isFalse reports whether $exists takes a value for false.
func isFalse(v bson.Value) bool {
	yes, isBool := v.Bool()
	switch v.Type {
	case bson.TypeNull, bson.TypeUndefined:
		return true
	case bson.TypeBool:
		return isBool && !yes
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return exact(v).isZero()
	default:
		return false
	}
}

func (c *compiler) in(key string, v bson.Value) ([]operator, error) {
	list, ok := v.Array()
	if !ok {
		return nil, c.refuse(key + " must be an array")
	}
	t := test{kind: testIn}
	for _, item := range list.All() {
		if item.Type == bson.TypeRegex {
			p, err := c.compilePattern(item, "")
			if err != nil {
				return nil, err
			}
			t.patterns = append(t.patterns, p)
			continue
		}
		if d, ok := item.Document(); ok && strings.HasPrefix(d.FirstKey(), "$") {
			return nil, c.refuse(key + " must not have an operator in its array")
		}
		if item.Type == bson.TypeUndefined {
			return nil, c.refuse("undefined cannot be compared")
		}
		c.size += valueCost
		t.null = t.null || item.IsNull()
		t.list = append(t.list, item)
	}
	slices.SortFunc(t.list, Compare)
	return c.one(t), nil
}

// all compiles $all: each of its items is a condition of its own, and without any nothing matches.
func (c *compiler) all(v bson.Value, depth int) ([]operator, error) {
	list, ok := v.Array()
	switch {
	case !ok:
		return nil, c.refuse("$all must be an array")
	case list.IsEmpty():
		return c.negate(nil, nil)
	}
	var all []operator
	elements := 0
	for _, item := range list.All() {
		d, _ := item.Document()
		var some []operator
		var err error
		switch {
		case d.FirstKey() == "$elemMatch" && d.Len() == 1:
			elements++
			inner, _ := d.Lookup("$elemMatch")
			some, err = c.element(inner, depth)
		case strings.HasPrefix(d.FirstKey(), "$"):
			err = c.refuse("$all must not have an operator in its array")
		default:
			some, err = c.operand(item, depth)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	if elements > 0 && elements < list.Len() {
		return nil, c.refuse("$all must not have both $elemMatch and values")
	}
	return all, nil
}

// element compiles $elemMatch: operators are about each item itself, and a filter about documents.
func (c *compiler) element(v bson.Value, depth int) ([]operator, error) {
	d, ok := v.Document()
	if !ok {
		return nil, c.refuse("$elemMatch must be a document")
	}
	first := d.FirstKey()
	if _, joins := joins[first]; strings.HasPrefix(first, "$") && !joins && first != "$comment" {
		operators, err := c.operators(d, depth+1)
		return c.one(test{kind: testElement, operators: operators}), err
	}
	filter, err := c.conditions(d, depth+1)
	return c.one(test{kind: testDocument, filter: filter}), err
}

func (c *compiler) not(v bson.Value, depth int) ([]operator, error) {
	if v.Type == bson.TypeRegex {
		return c.negate(c.pattern(v, ""))
	}
	d, ok := v.Document()
	if !ok || !strings.HasPrefix(d.FirstKey(), "$") {
		return nil, c.refuse("$not must have operators or a regular expression")
	}
	return c.negate(c.operators(d, depth+1))
}

func (c *compiler) pattern(v bson.Value, options string) ([]operator, error) {
	p, err := c.compilePattern(v, options)
	return c.one(test{kind: testPattern, patterns: []*pattern{p}}), err
}

func (c *compiler) compilePattern(v bson.Value, options string) (*pattern, error) {
	text, isText := v.Str()
	expression, own, isRegex := v.Regex()
	switch {
	case isRegex && own != "" && options != "":
		return nil, c.refuse("the regular expression has options twice")
	case isRegex:
		text, options = expression, own+options
	case !isText:
		return nil, c.refuse("$regex must be a regular expression or a string")
	}
	p, problem := compilePattern(text, options, c.most-c.size)
	if p == nil {
		return nil, c.refuse(problem)
	}
	c.size += p.size
	return p, nil
}

func (c *compiler) mod(v bson.Value) ([]operator, error) {
	list, ok := v.Array()
	if !ok || list.Len() != 2 {
		return nil, c.refuse("$mod must be an array of two numbers")
	}
	var numbers [2]int64
	for i, item := range list.All() {
		n, ok := whole(item)
		if !ok || item.Type == bson.TypeDecimal128 || i == 0 && n == 0 {
			return nil, c.refuse("$mod must be an array of two numbers, the first of which " +
				"is not 0")
		}
		numbers[i] = n
	}
	return c.one(test{kind: testMod, number: numbers[0], remainder: numbers[1]}), nil
}

// typeNames lists the types by the names that $type knows.
var typeNames = map[string]bson.Type{
	"double": bson.TypeDouble, "string": bson.TypeString, "object": bson.TypeDocument,
	"array": bson.TypeArray, "binData": bson.TypeBinary, "undefined": bson.TypeUndefined,
	"objectId": bson.TypeObjectID, "bool": bson.TypeBool, "date": bson.TypeDateTime,
	"null": bson.TypeNull, "regex": bson.TypeRegex, "dbPointer": bson.TypeDBPointer,
	"javascript": bson.TypeJavaScript, "symbol": bson.TypeSymbol,
	"javascriptWithScope": bson.TypeCodeWithScope, "int": bson.TypeInt32,
	"timestamp": bson.TypeTimestamp, "long": bson.TypeInt64, "decimal": bson.TypeDecimal128,
	"minKey": bson.TypeMinKey, "maxKey": bson.TypeMaxKey,
}

var numberTypes = []bson.Type{
	bson.TypeDouble, bson.TypeInt32, bson.TypeInt64, bson.TypeDecimal128,
}

func (c *compiler) types(v bson.Value) ([]operator, error) {
	t := test{kind: testType}
	list, isList := v.Array()
	if !isList {
		list = bson.Array(bson.NewBuilder(nil).Value("0", v).Finish())
	}
	for _, item := range list.All() {
		found, ok := typesOf(item)
		if !ok {
			return nil, c.refuse("$type has an unknown type")
		}
		for _, of := range found {
			if !slices.Contains(t.types, of) {
				t.types = append(t.types, of)
			}
		}
	}
	if len(t.types) == 0 {
		return nil, c.refuse("$type must have at least one type")
	}
	return c.one(t), nil
}

func typesOf(v bson.Value) ([]bson.Type, bool) {
	if name, ok := v.Str(); ok {
		if name == "number" {
			return numberTypes, true
		}
		t, ok := typeNames[name]
		return []bson.Type{t}, ok
	}
	n, ok := v.AsInt64()
	if ok && n == -1 {
		return []bson.Type{bson.TypeMinKey}, true
	}
	if !ok || n < 1 || n > math.MaxInt8 || !bson.Type(n).IsValid() {
		return nil, false
	}
	return []bson.Type{bson.Type(n)}, true
}
