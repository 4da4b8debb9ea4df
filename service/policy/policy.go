// Package policy decides what a caller may do, by one file of rules in the Cedar language, and
// changes requests so that they do no more.
//
// Parse reads the rules: permits and forbids. A permit with @filter, @forced, @hidden or @readonly
// is a limit, since it permits only a part of documents or fields. Policy.Decide is a pure
// function: principal, action and resource in, a Decision out. An Enforcer applies decisions to the
// messages of calls: it combines the filter of a Decision with the client's by $and, keeps hidden
// fields out of projections and expressions, checks updates and inserted documents, and checks
// pipelines stage by stage. Only Enforcer, Call and Grounds hold state.
package policy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/match"
)

// Policy holds the rules of one file. It does not change.
type Policy struct {
	rules []*rule
	set   *cedar.PolicySet
	byID  map[cedar.PolicyID]*rule
	// named lists the collections that rules name, and one of each database that they name.
	named []Resource
	// claims has the names of the claims that conditions use.
	claims map[string]bool
	// sum is that of the file.
	sum [sha256.Size]byte
}

// rule holds one policy statement of the file, with its annotations.
type rule struct {
	id     string // of the annotation @id, else its line
	line   int    // 0: built in
	policy *cedar.Policy
	permit bool

	filter   *template // nil: none
	forced   *template // nil: none
	hidden   []string
	readonly []string
	commands []string
	options  []string
}

// restricts reports whether the rule permits only a part of documents or fields.
func (r *rule) restricts() bool {
	return r.filter != nil || r.forced != nil || len(r.hidden) > 0 || len(r.readonly) > 0
}

// ownRule lets clients use the cursors, sessions and transactions that they have opened. Their
// tokens are bound to the principal. A forbid of the file wins.
const ownRule = `@id("own handles")
permit(principal, action in Action::"own", resource);`

// Parse reads the text of a policy file. Its error has a line for each mistake: the line of the
// file, the problem and what to write.
func Parse(text []byte) (*Policy, error) {
	list, err := cedar.NewPolicyListFromBytes("", text)
	if err != nil {
		return nil, fmt.Errorf("the policy is not valid Cedar: %w", err)
	}
	if len(list) == 0 {
		return nil, errors.New("line 1: the policy has no rule, so nothing would be allowed: " +
			"write a permit")
	}
	p := &Policy{
		set: cedar.NewPolicySet(), byID: map[cedar.PolicyID]*rule{}, sum: sha256.Sum256(text),
		claims: map[string]bool{},
	}
	var problems []error
	for i, one := range list {
		end := len(text)
		if i+1 < len(list) {
			end = list[i+1].Position().Offset
		}
		problems = append(problems, p.parseRule(one, string(text[one.Position().Offset:end]))...)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	var own cedar.Policy
	if err := own.UnmarshalCedar([]byte(ownRule)); err != nil {
		panic("bug: policy: " + err.Error())
	}
	if err := p.add(&rule{id: "own handles", policy: &own, permit: true}); err != nil {
		return nil, err
	}
	return p, nil
}

// parseRule adds a rule of the file, which has the text, and returns what is wrong with it.
func (p *Policy) parseRule(one *cedar.Policy, text string) (problems []error) {
	at := func(word string, err error) error {
		line := one.Position().Line
		place := regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`).FindStringIndex(text)
		if word != "" && place != nil {
			line += strings.Count(text[:place[0]], "\n")
		}
		return fmt.Errorf("line %d: %w", line, err)
	}
	r, err := newRule(one)
	if err == nil {
		err = p.add(r)
	}
	if err != nil {
		problems = append(problems, at("", err))
	}
	for _, m := range mistakes((*ast.Policy)(one.AST())) {
		problems = append(problems, at(m.word, m))
	}
	p.named = append(p.named, namedIn((*ast.Policy)(one.AST()))...)
	for name := range claimsOf((*ast.Policy)(one.AST())).fields {
		p.claims[string(name)] = true
	}
	return problems
}

func (p *Policy) add(r *rule) error {
	id := cedar.PolicyID(r.id)
	if p.byID[id] != nil {
		return fmt.Errorf("another rule has the id %q", r.id)
	}
	p.byID[id] = r
	p.set.Add(id, r.policy)
	p.rules = append(p.rules, r)
	return nil
}

// Len returns the number of rules in the file.
func (p *Policy) Len() int { return len(p.rules) - 1 }

// newRule reads the annotations of a rule.
func newRule(one *cedar.Policy) (*rule, error) {
	r := &rule{
		line: one.Position().Line, policy: one, permit: one.Effect() == cedar.Permit,
	}
	r.id = "line " + strconv.Itoa(r.line)
	if column := one.Position().Column; column > 1 {
		r.id += ":" + strconv.Itoa(column)
	}
	for name, text := range sorted(one.Annotations()) {
		if err := r.annotate(name, text); err != nil {
			return nil, fmt.Errorf("@%s: %w", name, err)
		}
	}
	switch {
	case !r.permit && (r.restricts() || r.commands != nil || r.options != nil):
		return nil, errors.New("a forbid has no annotations but @id and @description")
	case r.restricts() && (r.commands != nil || r.options != nil):
		return nil, errors.New("a rule with @filter, @hidden, @readonly or @forced allows no " +
			"@commands and no @options: they could do more than it permits")
	}
	return r, nil
}

func sorted(annotations cedar.Annotations) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		names := make([]string, 0, len(annotations))
		for name := range annotations {
			names = append(names, string(name))
		}
		slices.Sort(names)
		for _, name := range names {
			for key, text := range annotations {
				if string(key) == name && !yield(name, string(text)) {
					return
				}
			}
		}
	}
}

func (r *rule) annotate(name, text string) (err error) {
	switch name {
	case "id":
		if r.id = text; text == "" {
			return errors.New("is empty")
		}
	case "description":
	case "filter":
		r.filter, err = parseFilter(text)
	case "forced":
		r.forced, err = parseForced(text)
	case "hidden":
		r.hidden, err = parseHidden(text)
	case "readonly":
		r.readonly, err = parsePaths(text)
	case "commands":
		r.commands, err = parseNames(text)
	case "options":
		r.options, err = parseNames(text)
	default:
		return errors.New("is not known: there are id, description, filter, hidden, readonly, " +
			"forced, commands and options")
	}
	return err
}

func parseNames(text string) ([]string, error) {
	names := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	if len(names) == 0 {
		return nil, errors.New("is empty")
	}
	for _, name := range names {
		if strings.ContainsAny(name, "*$\"'") {
			return nil, fmt.Errorf("%q is not a name", name)
		}
	}
	return names, nil
}

// parseHidden refuses paths in _id, too: a list of the fields to return includes the whole _id
// unless the client leaves it out.
func parseHidden(text string) ([]string, error) {
	paths, err := parsePaths(text)
	for _, path := range paths {
		if within(path, "_id") {
			return nil, fmt.Errorf("%q cannot be hidden, since answers have a document's _id: "+
				"keep what is hidden in another field", path)
		}
	}
	return paths, err
}

func parsePaths(text string) ([]string, error) {
	paths, err := parseNames(text)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if normal(path) != path || path == "_id" {
			return nil, fmt.Errorf("%q cannot be such a field: it is a field's path, without "+
				"positions in arrays, and not _id", path)
		}
	}
	return outermost(paths), nil
}

// outermost returns the paths that are not within another one: servers refuse projections of both.
func outermost(paths []string) (outer []string) {
	for i, path := range paths {
		again := slices.Contains(paths[:i], path)
		if !again && !slices.ContainsFunc(paths, func(other string) bool {
			return path != other && within(path, other)
		}) {
			outer = append(outer, path)
		}
	}
	return outer
}

// Decision says whether a principal may do an action on a resource, and within which limits.
type Decision struct {
	Allowed bool
	// Rule has the ids of the rules that have decided, as one text; NoRule if none permits.
	Rule string
	// Filter must match each document that is read, changed or deleted; nil: any document does.
	Filter bson.Raw
	// Hidden lists the paths of fields that the client does not see.
	Hidden []string
	// ReadOnly lists the paths of fields that the client does not write.
	ReadOnly []string
	// Forced has the fields that each inserted document gets; nil: none.
	Forced bson.Raw
	// Commands and Options list the names that RunCommand and the field options may have.
	Commands, Options []string

	// narrow is true if none of the rules alone is without limits: what they permit together has
	// limits, even if it has neither a filter nor limits on fields.
	narrow bool
	// conflict is true if rules that permit the same do not go together.
	conflict bool
	// forbidden is true if a forbid refuses it.
	forbidden bool
	// perEvent is true if a forbid or a limit could be for some of the events that it allows.
	perEvent bool
	// excepts lists the actions for which a condition of what permits a list, or a drop of a
	// database, could leave out some of what is in it.
	excepts []string
	// sum and match are set by Enforcer. match is Filter, compiled.
	sum   Sum
	match *match.Filter
}

// Restricted reports whether the decision allows only a part of documents or fields.
func (d *Decision) Restricted() bool {
	return d.narrow || d.Filter != nil || d.Forced != nil || len(d.Hidden) > 0 ||
		len(d.ReadOnly) > 0
}

// NoRule is the Decision.Rule of what no rule permits.
const NoRule = "no rule"
