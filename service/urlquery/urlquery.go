// Package urlquery translates the query of a URL, such as
//
//	status=paid&total=gt.10&order=-placed&select=_id,total
//
// to what a find has: a filter, a sort and a projection. Every name that is not a parameter is the
// path of a field, and its value a condition. Nothing comes out that the JSON of a find could not
// say. The package is pure, and knows neither HTTP nor the API.
package urlquery

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/literal"
	"github.com/mooringdb/mooring/service/spelling"
)

const (
	// MaxConditions is the largest number of conditions.
	MaxConditions = 100
	// maxItems is the largest number of fields in order and select, and of values in a list.
	maxItems = 1000
	// fieldPrefix is in front of the name of a field that is a parameter's, too.
	fieldPrefix = "field."
)

// The parameters that package urlquery reads.
const (
	Order  = "order"
	Select = "select"
)

// Find holds what a query says of a find. What it does not say is nil.
type Find struct {
	Filter, Sort, Projection bson.Raw
}

// Error says what is wrong with a parameter.
type Error struct {
	Param   string
	Problem string
}

func (e *Error) Error() string { return e.Param + ": " + e.Problem }

// Parse translates a query. The parameters have a meaning of their own, which Parse leaves alone,
// but for Order and Select. Those of a body have none in a URL, and are refused. Its errors are
// *Error.
func Parse(query url.Values, parameters, ofBody []string) (Find, error) {
	p := parser{parameters: parameters, ofBody: ofBody}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		var err error
		switch values := query[name]; {
		case len(values) > 1 && slices.Contains(parameters, name):
			err = errors.New("is repeated")
		case name == Order:
			p.find.Sort, err = parseOrder(values[0])
		case name == Select:
			p.find.Projection, err = parseSelect(values[0])
		case slices.Contains(parameters, name):
		default:
			err = p.field(name, values)
		}
		if err != nil {
			return Find{}, &Error{Param: name, Problem: err.Error()}
		}
	}
	p.find.Filter = p.filter()
	return p.find, nil
}

// condition holds what one parameter says of a field: the text of an operator and its operand, as a
// document such as {$gt: 10}, or as the value alone.
type condition struct {
	path  string
	value bson.Value
	// operators are those of the value; "" stands for equality.
	operator string
}

type parser struct {
	parameters []string
	ofBody     []string
	find       Find
	conditions []condition
}

// field adds the conditions on a field.
func (p *parser) field(name string, values []string) error {
	path, isField := strings.CutPrefix(name, fieldPrefix)
	if !isField {
		if err := p.checkName(name); err != nil {
			return err
		}
	}
	path, form, err := literal.CutForm(path)
	if err != nil {
		return err
	}
	if err := checkPath(path); err != nil {
		return err
	}
	for _, value := range values {
		if len(p.conditions) == MaxConditions {
			return errors.New("the query has more than 100 conditions: send a filter by POST")
		}
		c, err := parseCondition(value, form)
		if err != nil {
			return err
		}
		c.path = path
		if err := p.checkAgain(c); err != nil {
			return err
		}
		p.conditions = append(p.conditions, c)
	}
	return nil
}

// checkAgain refuses a second condition of the same kind on a field, since what fits both is
// seldom what is meant.
func (p *parser) checkAgain(c condition) error {
	for _, other := range p.conditions {
		if other.path == c.path && other.operator == c.operator {
			return errors.New("is repeated: for any of several values, write in.(a,b)")
		}
	}
	return nil
}

// others are parameters of other products, and what they are here; "" is nothing.
var others = map[string]string{
	"_": "", "pretty": "", "callback": "", "access_token": "", "api_key": "", "apikey": "",
	"cursor": "the body of /v1/cursors:next",
	"offset": "skip", "page": "skip and limit", "per_page": "limit", "perPage": "limit",
	"pageSize": "limit", "page_size": "limit", "fields": Select, "where": "filter", "q": "filter",
	"query": "filter", "search": "filter", "orderBy": Order, "order_by": Order, "sortBy": Order,
	"sort_by": Order, "project": "projection", "meta": "count", "or": "filter", "and": "filter",
}

// checkName refuses the name of a field that may be meant for a parameter: a filter on a field that
// no document has gives nothing, and does not say why.
func (p *parser) checkName(name string) error {
	if strings.ContainsAny(name, "[]") {
		return errors.New("has brackets: write a comparison as name=gt.5, and a list as " +
			"name=in.(a,b). " + forField(name))
	}
	if slices.Contains(p.ofBody, name) {
		return errors.New("is not a parameter of a GET: send a POST. " + forField(name))
	}
	like, isOther := others[name]
	for _, parameter := range p.parameters {
		isSame := strings.EqualFold(strings.ReplaceAll(name, "_", ""), parameter)
		if isSame || !isOther && isTypo(name, parameter) {
			like, isOther = parameter, true
		}
	}
	switch {
	case !isOther:
		return nil
	case like == "":
		return errors.New("there is no such parameter. " + forField(name))
	}
	return errors.New("there is no such parameter: did you mean " + like + "? " + forField(name))
}

// forField says how to write a condition on a field of a name that is refused.
func forField(name string) string {
	return "For a field of this name, write " + fieldPrefix + clip(name)
}

// minTypo is the length of the shortest parameter for which another name is taken to be mistyped.
const minTypo = 4

// isTypo reports whether a name is a parameter's but for one letter, or two that are exchanged.
func isTypo(name, parameter string) bool {
	if len(parameter) < minTypo || len(name) > len(parameter)+1 {
		return false
	}
	a, b := strings.ToLower(name), strings.ToLower(parameter)
	if spelling.Distance(a, b) <= 1 {
		return true
	}
	for i := 0; i+1 < len(a) && len(a) == len(b); i++ {
		if a[:i] == b[:i] && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:] {
			return true
		}
	}
	return false
}

func checkPath(path string) error {
	switch {
	case path == "", strings.HasPrefix(path, "."), strings.HasSuffix(path, "."),
		strings.Contains(path, ".."):
		return errors.New("is not the path of a field: a name between dots is empty")
	case strings.HasPrefix(path, "$"), strings.Contains(path, ".$"):
		return errors.New("begins with $: fields cannot, and operators of a filter go in the " +
			"parameter filter")
	case strings.ContainsRune(path, 0):
		return errors.New("has a zero byte in its name")
	}
	return nil
}

// filter returns the filter of all conditions. A field that has several is in an $and.
func (p *parser) filter() bson.Raw {
	if len(p.conditions) == 0 {
		return nil
	}
	count := map[string]int{}
	for _, c := range p.conditions {
		count[c.path]++
	}
	b := bson.NewBuilder(nil)
	for _, c := range p.conditions {
		if count[c.path] == 1 {
			b.Value(c.path, c.value)
		}
	}
	if len(count) < len(p.conditions) {
		b.OpenArray("$and")
		for _, c := range p.conditions {
			if count[c.path] > 1 {
				b.OpenDocument("").Value(c.path, c.value).Close()
			}
		}
		b.Close()
	}
	return b.Finish()
}

// parseOrder reads a list of fields, each ascending unless - is in front, or .desc behind it.
func parseOrder(text string) (bson.Raw, error) {
	b, seen := bson.NewBuilder(nil), map[string]bool{}
	for path := range strings.SplitSeq(text, ",") {
		direction := int32(1)
		if rest, ok := strings.CutPrefix(path, "-"); ok {
			path, direction = rest, -1
		} else if rest, ok := strings.CutSuffix(path, ".desc"); ok {
			path, direction = rest, -1
		} else {
			path = strings.TrimSuffix(path, ".asc")
		}
		if err := checkListed(path, seen); err != nil {
			return nil, err
		}
		b.Int32(path, direction)
	}
	return b.Finish(), nil
}

// parseSelect reads a list of the fields that documents have, or, each with a - in front, of those
// that they lose. _id is there only if it is listed.
func parseSelect(text string) (bson.Raw, error) {
	if text == "*" {
		return nil, nil
	}
	b, seen := bson.NewBuilder(nil), map[string]bool{}
	leave := strings.HasPrefix(text, "-")
	for path := range strings.SplitSeq(text, ",") {
		rest, isOut := strings.CutPrefix(path, "-")
		if isOut != leave {
			return nil, errors.New("mixes fields to include with fields to leave out (-" +
				clip(rest) + ")")
		}
		if err := checkListed(rest, seen); err != nil {
			return nil, err
		}
		if leave {
			b.Int32(rest, 0)
		} else {
			b.Int32(rest, 1)
		}
	}
	if !leave && !seen[idField] {
		b.Int32(idField, 0)
	}
	return b.Finish(), nil
}

const idField = "_id"

// checkListed checks a path in a list, which has those before.
func checkListed(path string, seen map[string]bool) error {
	switch err := checkPath(path); {
	case strings.TrimSpace(path) != path:
		return errors.New(quoted(path) + " begins or ends with a space: in a URL, + is one")
	case err != nil:
		return errors.New(quoted(path) + " " + err.Error())
	case seen[path]:
		return errors.New(quoted(path) + " is listed twice")
	case len(seen) == maxItems:
		return errors.New("lists more than 1000 fields")
	}
	seen[path] = true
	return nil
}
