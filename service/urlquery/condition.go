package urlquery

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/literal"
	"github.com/mooringdb/mooring/service/spelling"
)

// operators has what each operator makes of its operand: it adds a field such as $gt.
var operators = map[string]func(b *bson.Builder, operand string, form literal.Form) error{
	"eq": compare("$eq"), "ne": compare("$ne"), "gt": compare("$gt"), "gte": compare("$gte"),
	"lt": compare("$lt"), "lte": compare("$lte"), "in": list("$in"), "nin": list("$nin"),
	"exists": exists, "like": like,
}

// foreign are operators of other products, and what to write here.
var foreign = map[string]string{
	"neq": "ne", "is": "eq", "isnot": "ne", "null": "eq.null", "contains": "like.*…*",
	"startswith": "like.…*", "endswith": "like.*…", "between": "gte and lte", "notin": "nin",
	"match": "$regex in filter", "imatch": "$regex in filter", "regex": "$regex in filter",
	"ilike": "$regex in filter", "cs": "$all in filter", "fts": "$text in filter",
}

const negation = "not."

// parseCondition reads a value: an operator, a dot and its operand, or a value that a field has.
func parseCondition(text string, form literal.Form) (condition, error) {
	if text == "" {
		return condition{}, errors.New("has no value: write eq. for the empty string")
	}
	rest, negated := strings.CutPrefix(text, negation)
	name, operand, dotted := strings.Cut(rest, ".")
	operator, known := operators[name]
	switch {
	case dotted && known:
	case negated:
		return condition{}, noOperator(name, text)
	case dotted:
		if mistaken(name) {
			return condition{}, noOperator(name, text)
		}
		fallthrough
	default:
		known, name, operand = false, "eq", text
		operator = operators[name]
	}
	b := bson.NewBuilder(nil)
	if err := operator(b, operand, form); err != nil {
		return condition{}, explain(err, text, known)
	}
	if err := b.Err(); err != nil {
		return condition{}, err
	}
	doc := b.Finish()
	switch {
	case negated:
		doc = bson.NewBuilder(nil).Document("$not", doc).Finish()
		return condition{value: bson.DocumentValue(doc), operator: negation + name}, nil
	case name == "eq":
		if v, _ := doc.Lookup("$eq"); isPlain(v) {
			return condition{value: v, operator: name}, nil
		}
	}
	return condition{value: bson.DocumentValue(doc), operator: name}, nil
}

// isPlain reports whether a filter takes a value as itself, and not as operators or a pattern.
func isPlain(v bson.Value) bool {
	return v.Type != bson.TypeDocument && v.Type != bson.TypeArray && v.Type != bson.TypeRegex
}

// mistaken reports whether a text in front of a dot may be meant for an operator.
func mistaken(name string) bool {
	lower := strings.TrimLeft(strings.ToLower(name), "_$")
	if operators[lower] != nil || foreign[lower] != "" || lower+"." == negation {
		return true
	}
	for operator := range operators {
		if len(operator) > 1 && len(lower) > 1 && spelling.Distance(lower, operator) <= 1 {
			return true
		}
	}
	return false
}

// noOperator returns the error of a value that begins with what is not an operator.
func noOperator(name, text string) error {
	lower := strings.TrimLeft(strings.ToLower(name), "_$")
	like := foreign[lower]
	if operators[lower] != nil {
		like = lower
	}
	if like == "" {
		like = spelling.Nearest(lower, maps.Keys(operators))
	}
	help := "the operators are " + strings.Join(slices.Sorted(maps.Keys(operators)), ", ")
	if like != "" {
		help = "did you mean " + like + "?"
	}
	return errors.New("there is no operator " + quoted(name) + ": " + help +
		" For a string, write eq." + clip(text))
}

// explain adds to the error of a value that has no operator how to write a text.
func explain(err error, text string, isOperand bool) error {
	if isOperand {
		return err
	}
	return errors.New(err.Error() + " (" + clip(text) + " has no operator, which is eq.)")
}

// add adds one value. Extended JSON in a URL is short.
func add(b *bson.Builder, key, text string, form literal.Form) error {
	return form.Add(b, key, text, extjson.Parser{Limit: bson.MaxDocumentSize})
}

func compare(operator string) func(*bson.Builder, string, literal.Form) error {
	return func(b *bson.Builder, operand string, form literal.Form) error {
		return add(b, operator, operand, form)
	}
}

// list returns an operator with a list of values: (a,b,"c,d"). A value in quotes that has no other
// form is text.
func list(operator string) func(*bson.Builder, string, literal.Form) error {
	return func(b *bson.Builder, operand string, form literal.Form) error {
		inner, begins := strings.CutPrefix(operand, "(")
		inner, ends := strings.CutSuffix(inner, ")")
		if !begins || !ends {
			return errors.New(quoted(operand) + " is not a list: write (a,b)")
		}
		b.OpenArray(operator)
		for n := 0; inner != "" || n > 0; n++ {
			if n == maxItems {
				return errors.New("lists more than 1000 values")
			}
			item, isText, rest, more, err := cutItem(inner)
			if err != nil {
				return err
			}
			if isText && form.IsAuto() {
				b.String("", item)
			} else if err := add(b, "", item, form); err != nil {
				return err
			}
			if inner = rest; !more {
				break
			}
		}
		b.Close()
		return nil
	}
}

// cutItem cuts the first item off a list. isText says that it was in quotes, and more that a comma
// follows it.
func cutItem(text string) (item string, isText bool, rest string, more bool, err error) {
	if !strings.HasPrefix(text, `"`) {
		item, rest, more = strings.Cut(text, ",")
		return item, false, rest, more, nil
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case c == '"':
			rest = text[i+1:]
			if rest != "" && rest[0] != ',' {
				return "", false, "", false,
					errors.New("expected a comma after the item " + quoted(b.String()))
			}
			return b.String(), true, strings.TrimPrefix(rest, ","), rest != "", nil
		default:
			b.WriteByte(c)
		}
	}
	return "", false, "", false, errors.New("a quote in the list is not closed")
}

func exists(b *bson.Builder, operand string, _ literal.Form) error {
	is, err := strconv.ParseBool(operand)
	if err != nil || operand != "true" && operand != "false" {
		return errors.New(quoted(operand) + " is neither true nor false")
	}
	b.Bool("$exists", is)
	return nil
}

// end is the end of a text in a pattern. Before a line feed at the end, $ would match, too.
const end = `\z`

// like matches a text as a whole. * stands for any characters, and a backslash takes the meaning
// from the character after it. A pattern whose beginning is known can use an index.
func like(b *bson.Builder, operand string, form literal.Form) error {
	if !form.IsAuto() && form.String() != "string()" {
		return errors.New("like is for strings, not for " + form.String())
	}
	pattern, text := "^", []byte(nil)
	flush := func() {
		pattern += regexp.QuoteMeta(string(text))
		text = text[:0]
	}
	for i := 0; i < len(operand); i++ {
		switch c := operand[i]; {
		case c == '\\' && i+1 < len(operand):
			i++
			text = append(text, operand[i])
		case c == '*':
			flush()
			pattern += ".*"
		default:
			text = append(text, c)
		}
	}
	flush()
	pattern += end
	if anchored, ok := strings.CutSuffix(pattern, ".*"+end); ok {
		pattern = anchored
	}
	if open, ok := strings.CutPrefix(pattern, "^.*"); ok {
		pattern = open
	}
	if pattern == "" || pattern == "^" {
		return errors.New("matches every string: write exists.true")
	}
	b.String("$regex", pattern).String("$options", "s")
	return nil
}

// maxClip is how many bytes of a text an error repeats.
const maxClip = 40

func clip(text string) string {
	if len(text) > maxClip {
		text = strings.ToValidUTF8(text[:maxClip], "") + "…"
	}
	return text
}

func quoted(text string) string { return strconv.Quote(clip(text)) }
