package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"github.com/mooringdb/mooring/internal/method"
	"github.com/mooringdb/mooring/service/spelling"
)

// mistake says what is wrong in a rule, and what to write.
type mistake struct {
	problem, hint string
	// word is the text of the rule that is wrong, as far as it is known.
	word string
}

func (m *mistake) Error() string { return m.problem + ": " + m.hint }

// mistakes returns what is wrong with a rule: names that do not exist, comparisons that are never
// true, and what else Cedar finds with the schema. A forbid with such a mistake would never apply.
func mistakes(p *ast.Policy) []*mistake {
	found := scopeMistakes(p)
	for _, condition := range p.Conditions {
		ast.Inspect(ast.NewNode(condition.Body), func(n ast.IsNode) bool {
			found = append(found, nodeMistakes(n)...)
			return true
		})
	}
	claims := claimsOf(p)
	if path := claims.conflict(); path != "" {
		found = append(found, &mistake{
			"principal." + path + " is used as values of two types",
			"write a rule for each type", path,
		})
	}
	if len(found) > 0 {
		return found
	}
	s, err := schemaOf(claims)
	if err != nil {
		return []*mistake{{"it has no schema", err.Error(), ""}}
	}
	v := validate.New(s)
	if err := v.Policy("", p); err != nil {
		return schemaMistakes(p, err)
	}
	if v.Policy("", probe(p)) == nil {
		return []*mistake{{
			"its conditions are true of no request, so that it never applies",
			"write conditions on what the actions have; docs/policy.md lists it", "",
		}}
	}
	return nil
}

// probe returns a rule in which Cedar finds a mistake, unless a condition of p is never true: what
// stands behind it is then not looked at.
func probe(p *ast.Policy) *ast.Policy {
	all := ast.True()
	for _, condition := range p.Conditions {
		body := ast.NewNode(condition.Body)
		if condition.Condition == ast.ConditionUnless {
			body = ast.Not(body)
		}
		all = all.And(body)
	}
	changed := *p
	all = all.And(ast.Principal().Access("no such attribute").Equal(ast.True()))
	changed.Conditions = []ast.ConditionType{
		{Condition: ast.ConditionWhen, Body: all.AsIsNode()},
	}
	return &changed
}

// scopeMistakes checks the entities in the head of a rule.
func scopeMistakes(p *ast.Policy) (found []*mistake) {
	check := func(uids ...cedar.EntityUID) {
		for _, uid := range uids {
			if m := entityMistake(uid); m != nil {
				found = append(found, m)
			}
		}
	}
	for _, scope := range []ast.IsScopeNode{p.Principal, p.Action, p.Resource} {
		switch scope := scope.(type) {
		case ast.ScopeTypeEq:
			check(scope.Entity)
			if m := groupMistake(scope.Entity); m != nil {
				found = append(found, m)
			}
		case ast.ScopeTypeIn:
			check(scope.Entity)
		case ast.ScopeTypeIsIn:
			check(scope.Entity)
		case ast.ScopeTypeInSet:
			check(scope.Entities...)
		}
	}
	if on, ok := p.Resource.(ast.ScopeTypeEq); ok && p.Effect == ast.EffectForbid &&
		(on.Entity.Type == "Database" || on.Entity.Type == "Deployment") && reaches(p.Action) {
		found = append(found, &mistake{
			"resource == " + on.Entity.String() + " does not forbid what is in it",
			"write resource in " + on.Entity.String() +
				", or name actions that do not work on collections", string(on.Entity.Type),
		})
	}
	return found
}

// namedIn returns the collections that a rule names, and one of each database that it names.
func namedIn(p *ast.Policy) (on []Resource) {
	add := func(uid cedar.EntityUID) {
		database, collection, _ := strings.Cut(string(uid.ID), ".")
		switch uid.Type {
		case "Collection":
			on = append(on, Resource{database, collection})
		case "Database":
			on = append(on, Resource{database, "any"})
		}
	}
	switch scope := p.Resource.(type) {
	case ast.ScopeTypeEq:
		add(scope.Entity)
	case ast.ScopeTypeIn:
		add(scope.Entity)
	case ast.ScopeTypeIsIn:
		add(scope.Entity)
	}
	for _, condition := range p.Conditions {
		ast.Inspect(ast.NewNode(condition.Body), func(n ast.IsNode) bool {
			for _, v := range values(n) {
				if uid, ok := v.(cedar.EntityUID); ok {
					add(uid)
				}
			}
			return true
		})
	}
	return on
}

// reaches reports whether one of the actions of a rule works on collections.
func reaches(scope ast.IsActionScopeNode) bool {
	for _, a := range method.All() {
		uid, group := uidOf(a), groupOf(a)
		named := false
		switch scope := scope.(type) {
		case ast.ScopeTypeAll:
			named = true
		case ast.ScopeTypeEq:
			named = scope.Entity == uid
		case ast.ScopeTypeIn:
			named = scope.Entity == uid || scope.Entity == group
		case ast.ScopeTypeInSet:
			named = slices.Contains(scope.Entities, uid) || slices.Contains(scope.Entities, group)
		}
		if named && slices.Contains(resourcesOf(a), "Collection") {
			return true
		}
	}
	return false
}

// nodeMistakes checks an expression of a condition, but not those in it.
func nodeMistakes(n ast.IsNode) (found []*mistake) {
	var operands []ast.IsNode
	switch n := n.(type) {
	case ast.NodeValue:
		if uid, ok := n.Value.(cedar.EntityUID); ok {
			if m := entityMistake(uid); m != nil {
				found = append(found, m)
			}
		}
	case ast.NodeTypeIsIn:
		return nodeMistakes(n.NodeTypeIs)
	case ast.NodeTypeIs:
		if _, known := attributes[string(n.EntityType)]; !known {
			found = append(found, typeMistake(n.EntityType))
		}
	case ast.NodeTypeEquals:
		operands = []ast.IsNode{n.Left, n.Right}
	case ast.NodeTypeNotEquals:
		operands = []ast.IsNode{n.Left, n.Right}
	case ast.NodeTypeContains:
		operands = []ast.IsNode{n.Left, n.Right}
	}
	for _, operand := range operands {
		for _, v := range values(operand) {
			if uid, ok := v.(cedar.EntityUID); ok && groupMistake(uid) != nil {
				found = append(found, groupMistake(uid))
			}
			if kind, ok := v.(cedar.String); ok && slices.ContainsFunc(operands, isKind) &&
				!slices.Contains(kinds, string(kind)) {
				found = append(found, &mistake{
					fmt.Sprintf("principal.kind is never %q", string(kind)),
					"write one of " + strings.Join(kinds, ", "), string(kind),
				})
			}
		}
	}
	return found
}

// kinds lists what principal.kind can be.
var kinds = []string{"key", "jwt", "cert", anonymous}

// isKind reports whether an expression is principal.kind.
func isKind(n ast.IsNode) bool {
	access, ok := n.(ast.NodeTypeAccess)
	if !ok || access.Value != "kind" {
		return false
	}
	v, ok := access.Arg.(ast.NodeTypeVariable)
	return ok && v.Name == "principal"
}

// values returns the value that an expression is, or those of a set.
func values(n ast.IsNode) (all []cedar.Value) {
	switch n := n.(type) {
	case ast.NodeValue:
		if set, ok := n.Value.(cedar.Set); ok {
			return set.Slice()
		}
		return []cedar.Value{n.Value}
	case ast.NodeTypeSet:
		for _, item := range n.Elements {
			all = append(all, values(item)...)
		}
	}
	return all
}

// entityMistake returns what is wrong with the name of an entity, which no request has.
func entityMistake(uid cedar.EntityUID) *mistake {
	id := string(uid.ID)
	wrong := func(hint string) *mistake {
		return &mistake{"there is no " + uid.String(), hint, id}
	}
	switch uid.Type {
	case "Principal", "Group":
		kind, name, _ := strings.Cut(id, ":")
		credential := kind == "key" || kind == "jwt" || kind == "cert"
		if name != "" && credential || uid.Type == "Principal" && id == anonymous {
			return nil
		}
		if !credential {
			name = id
		}
		return wrong(fmt.Sprintf("write %s::%q, or jwt: or cert: in place of key:",
			uid.Type, "key:"+name))
	case "Collection":
		database, collection, ok := strings.Cut(id, ".")
		if !ok || database == "" || collection == "" {
			return wrong(fmt.Sprintf("write Collection::%q", "DATABASE."+strings.Trim(id, ".")))
		}
	case "Database":
		if database, _, dotted := strings.Cut(id, "."); dotted {
			return wrong(fmt.Sprintf("write Database::%q, or Collection::%q", database, id))
		}
		if id == "" {
			return wrong("write the name of a database")
		}
	case "Deployment":
		if id != "deployment" {
			return wrong(`write Deployment::"deployment"`)
		}
	case "Action":
		return actionMistake(uid)
	default:
		return typeMistake(uid.Type)
	}
	if strings.Contains(id, "$") {
		return wrong("write a name without $")
	}
	return nil
}

// typeMistake returns what is wrong with a type of entities that does not exist.
func typeMistake(name cedar.EntityType) *mistake {
	names := slices.Sorted(maps.Keys(attributes))
	return &mistake{
		"there is no type " + string(name), "write " + nearest(string(name), names), string(name),
	}
}

// actionMistake returns what is wrong with the name of an action or a group of actions.
func actionMistake(uid cedar.EntityUID) *mistake {
	id := string(uid.ID)
	a := method.OfAction(id)
	switch {
	case a != nil && resourcesOf(a) == nil:
		return &mistake{
			id + " is decided as each call or write in it, not itself",
			"write the actions that it has in it, such as InsertOne", id,
		}
	case a != nil || actionEntities[uid].UID == uid:
		return nil
	}
	names := []string{}
	for known := range maps.Keys(actionEntities) {
		names = append(names, string(known.ID))
	}
	slices.Sort(names)
	help := "write " + unlisted
	if like := nearest(id, names); like != unlisted {
		help = fmt.Sprintf("write Action::%q", like)
	}
	return &mistake{"there is no " + uid.String(), help, id}
}

// groupMistake returns what is wrong with a comparison with a group of actions: no action is equal
// to one.
func groupMistake(uid cedar.EntityUID) *mistake {
	if uid.Type != "Action" || IsAction(string(uid.ID)) || actionEntities[uid].UID != uid {
		return nil
	}
	return &mistake{
		uid.String() + " is a group of actions, which no action is equal to",
		"write action in " + uid.String(), string(uid.ID),
	}
}

// schemaMistakes returns what Cedar has found, each with what to write.
func schemaMistakes(p *ast.Policy, err error) (found []*mistake) {
	if err == nil {
		return nil
	}
	list := []error{err}
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		list = joined.Unwrap()
	}
	for _, err := range list {
		m := &mistake{problem: err.Error(), hint: hintOf(p, err.Error()), word: quoted(err.Error())}
		if !slices.ContainsFunc(found, func(other *mistake) bool {
			return other.hint == m.hint && other.word == m.word
		}) {
			found = append(found, m)
		}
	}
	return found
}

// quoted returns the last name of the first path that a text has between back quotes.
func quoted(text string) string {
	_, rest, _ := strings.Cut(text, "`")
	path, _, _ := strings.Cut(rest, "`")
	return path[strings.LastIndexByte(path, '.')+1:]
}

// hintOf returns what to write in place of something in which Cedar has found a problem.
func hintOf(p *ast.Policy, problem string) string {
	_, rest, _ := strings.Cut(problem, "`")
	path, rest, _ := strings.Cut(rest, "`")
	of := quoted(rest)
	switch {
	case strings.HasPrefix(problem, "unable to find an applicable action"):
		return "write an action that works on this resource for a principal: " +
			applicable(p.Action)
	case strings.HasPrefix(problem, "unable to guarantee safety"):
		return "write principal has " + path + " && before it"
	case strings.Contains(problem, "not found") && path == "collection":
		return "write resource has collection && before it"
	case strings.Contains(problem, "not found"):
		return "write " + nearest(path, attributes[of])
	}
	return "write values of one type on both sides; docs/policy.md lists the types"
}

// attributes lists the attributes that the entities have.
var attributes = map[string][]string{
	"Principal": {"kind", "name", "claims"}, "Group": nil, "Action": nil,
	"Collection": {"database", "collection"}, "Database": {"database"}, "Deployment": nil,
}

// applicable says which resources the actions of a rule work on.
func applicable(scope ast.IsActionScopeNode) string {
	eq, ok := scope.(ast.ScopeTypeEq)
	if !ok || !IsAction(string(eq.Entity.ID)) {
		return "docs/policy.md lists them"
	}
	on := resourcesOf(method.OfAction(string(eq.Entity.ID)))
	names := make([]string, len(on))
	for i, name := range on {
		names[i] = string(name)
	}
	return string(eq.Entity.ID) + " works on a " + strings.Join(names, " or a ")
}

// unlisted is what to write instead of a name that is like none.
const unlisted = "one of the names that docs/policy.md lists"

// nearest returns the name that is most like another; unlisted if none is like it.
func nearest(name string, names []string) string {
	best, least := unlisted, 1+len(name)/2
	for _, other := range names {
		if d := spelling.Distance(strings.ToLower(name), strings.ToLower(other)); d < least {
			best, least = other, d
		}
	}
	return best
}
