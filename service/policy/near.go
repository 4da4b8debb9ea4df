package policy

import (
	"fmt"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
)

// Near names a permit that does not allow a request, but would if one thing were different.
type Near struct {
	Rule string // the rule's id
	If   string // what would have to hold, such as `principal in Group::"key:readers"`
}

// The variables of a rule.
const (
	principalVariable = "principal"
	actionVariable    = "action"
	resourceVariable  = "resource"
)

// NearPermits returns the permits that would allow a request, which no rule permits now, if one of
// principal, action and resource were different. They are in the order of the file.
func (p *Policy) NearPermits(who *Principal, action string, on Resource) (near []Near) {
	a := method.OfAction(action)
	if a == nil || strings.Contains(on.String(), "$") {
		return nil
	}
	env := envOf(who, a, on)
	for _, r := range p.rules {
		if !r.permit || r.line == 0 {
			continue
		}
		_, filtered := r.filter.fill(who)
		_, forced := r.forced.fill(who)
		of, change := r.oneChange(env)
		switch hasClaims := filtered && forced; {
		case change == "" || !hasClaims && of != principalVariable:
		case !hasClaims && change == conditions+of:
			near = append(near, Near{r.id, "the principal had the claims that it names"})
		default:
			near = append(near, Near{r.id, change})
		}
	}
	return near
}

// conditions begins what would have to be so of a variable that only conditions exclude.
const conditions = "its conditions held for the "

// oneChange returns a variable, and what would have to be so of it; empty: one is not enough.
func (r *rule) oneChange(env eval.Env) (variable, change string) {
	head := (*ast.Policy)(r.policy.AST())
	for _, v := range []struct {
		name  string
		scope ast.IsScopeNode
		free  func(*eval.Env)
		only  func(*ast.Policy)
	}{
		{
			principalVariable, head.Principal,
			func(e *eval.Env) { e.Principal = eval.Variable(principalVariable) },
			func(p *ast.Policy) { p.Principal = head.Principal },
		},
		{
			actionVariable, head.Action,
			func(e *eval.Env) { e.Action = eval.Variable(actionVariable) },
			func(p *ast.Policy) { p.Action = head.Action },
		},
		{
			resourceVariable, head.Resource,
			func(e *eval.Env) { e.Resource = eval.Variable(resourceVariable) },
			func(p *ast.Policy) { p.Resource = head.Resource },
		},
	} {
		free := env
		v.free(&free)
		if !r.couldMatch(free) {
			continue
		}
		scope := ast.Permit()
		v.only(scope)
		if _, fits := eval.PartialPolicy(env, scope); fits {
			return v.name, conditions + v.name
		}
		return v.name, scopeText(v.name, v.scope)
	}
	return "", ""
}

// couldMatch reports whether the rule matches, or could, whatever the free variables are.
func (r *rule) couldMatch(env eval.Env) bool {
	rest, keep := eval.PartialPolicy(env, (*ast.Policy)(r.policy.AST()))
	return keep && !fails(rest)
}

// scopeText returns what the head of a rule demands of a variable, in Cedar.
func scopeText(variable string, scope ast.IsScopeNode) string {
	switch s := scope.(type) {
	case ast.ScopeTypeEq:
		return fmt.Sprintf("%s == %s", variable, s.Entity)
	case ast.ScopeTypeIn:
		return fmt.Sprintf("%s in %s", variable, s.Entity)
	case ast.ScopeTypeInSet:
		names := make([]string, len(s.Entities))
		for i, e := range s.Entities {
			names[i] = e.String()
		}
		return fmt.Sprintf("%s in [%s]", variable, strings.Join(names, ", "))
	case ast.ScopeTypeIs:
		return fmt.Sprintf("%s is %s", variable, s.Type)
	case ast.ScopeTypeIsIn:
		return fmt.Sprintf("%s is %s in %s", variable, s.Type, s.Entity)
	}
	return variable
}

// PermitFor returns the text of a permit, without conditions, that allows this principal this
// action on this resource and nothing else. It returns "" if no such rule does: one for RunCommand
// would have to name the commands in @commands.
func PermitFor(who *Principal, action string, on Resource) string {
	text := fmt.Sprintf("permit (principal == %s, action == %s, resource == %s);",
		who.entity().UID, cedar.NewEntityUID("Action", cedar.String(action)), on.entities()[0].UID)
	p, err := Parse([]byte(text))
	if err != nil || method.OfAction(action).Group == mooringv1.Method_GROUP_COMMAND ||
		!p.Decide(who, action, on).Allowed {
		return ""
	}
	return text
}
