package deployment

import (
	"math/rand/v2"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// scope holds what a command says about all its filters and expressions.
type scope struct {
	let  bson.Raw // the variables and their values
	fold bool     // texts compare without their case
}

// newScope returns the scope of a command: of its let, and of a collation, which may be that of a
// statement.
func newScope(cmd, collation bson.Raw) (scope, error) {
	var s scope
	for key, v := range collation.All() {
		strength, isNumber := v.AsInt64()
		switch {
		case key == "locale":
		case key == "strength" && isNumber:
			s.fold = strength < 3
		default:
			return s, failure.BadValue.Errorf(
				"collations only have a locale and a strength here, no %s",
				key)
		}
	}
	variables := new(bson.Builder)
	for name, v := range document(cmd, "let").All() {
		value, err := s.evaluate(v, nil)
		if err != nil {
			return s, err
		}
		if !value.IsZero() {
			variables.Value(name, value)
		}
	}
	s.let = variables.Finish()
	return s, nil
}

// evaluate returns the value of an expression about a document. The zero Value stands for a field
// that is missing.
func (s scope) evaluate(expression bson.Value, doc bson.Raw) (bson.Value, error) {
	if name, ok := expression.Str(); ok {
		return s.reference(name, expression, doc)
	}
	if d, ok := expression.Document(); ok {
		if operator := d.FirstKey(); strings.HasPrefix(operator, "$") {
			return s.operate(operator, d, doc)
		}
		b := new(bson.Builder)
		for key, v := range d.All() {
			value, err := s.evaluate(v, doc)
			if err != nil {
				return bson.Value{}, err
			}
			if !value.IsZero() {
				b.Value(key, value)
			}
		}
		return bson.DocumentValue(b.Finish()), nil
	}
	return expression, nil
}

// reference returns the value of a text: of a variable, of a field, or itself.
func (s scope) reference(name string, text bson.Value, doc bson.Raw) (bson.Value, error) {
	variable, isVariable := strings.CutPrefix(name, "$$")
	path, isPath := strings.CutPrefix(name, "$")
	switch {
	case variable == "ROOT":
		return bson.DocumentValue(doc), nil
	case isVariable && !s.let.Has(variable):
		return bson.Value{}, failure.UndefinedVariable.Errorf(
			"Use of undefined variable: %s", variable)
	case isVariable:
		return field(s.let, variable), nil
	case isPath:
		return field(doc, strings.Split(path, ".")...), nil
	}
	return text, nil
}

func (s scope) operate(operator string, expression, doc bson.Raw) (bson.Value, error) {
	switch operator {
	case "$literal":
		return field(expression, operator), nil
	case "$rand":
		return bson.DoubleValue(rand.Float64()), nil
	case "$eq":
		return s.sameValues(field(expression, operator), doc)
	case "$setField":
		return s.setField(document(expression, operator), doc)
	}
	return bson.Value{}, failure.BadValue.Errorf("Unrecognized expression '%s'", operator)
}

func (s scope) sameValues(argument bson.Value, doc bson.Raw) (bson.Value, error) {
	pair, _ := argument.Array()
	if pair.Len() != 2 {
		return bson.Value{}, failure.BadValue.Errorf("$eq takes exactly 2 arguments")
	}
	var values [2]bson.Value
	for i, v := range pair.All() {
		value, err := s.evaluate(v, doc)
		if err != nil {
			return bson.Value{}, err
		}
		values[i] = value
	}
	return bson.BoolValue(s.equal(values[0], values[1])), nil
}

func (s scope) setField(argument, doc bson.Raw) (bson.Value, error) {
	var values [3]bson.Value
	for i, key := range []string{"field", "input", "value"} {
		value, err := s.evaluate(field(argument, key), doc)
		if err != nil {
			return bson.Value{}, err
		}
		values[i] = value
	}
	name, isName := values[0].Str()
	input, isDocument := values[1].Document()
	if !isName || !isDocument || values[2].IsZero() {
		return bson.Value{}, failure.BadValue.Errorf(
			"$setField needs a field, an input and a value here")
	}
	return bson.DocumentValue(bson.With(input, name, values[2])), nil
}
