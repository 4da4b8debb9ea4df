package policy

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/eval"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
)

// excepting returns a permit for what is done on a resource whose conditions could leave out a
// collection that this reaches: one in the resource in, that is on, its database or the deployment.
// It returns nil if some permit leaves out none, or if none is without limits.
func (p *Policy) excepting(who *Principal, a *method.Method, on, in Resource) (found *rule) {
	env := envOf(who, a, on)
	for _, r := range p.rules {
		if !r.permit || r.restricts() || !r.couldMatch(env) {
			continue
		}
		if !r.excepts(who, a, on, in) {
			return nil
		}
		if found == nil {
			found = r
		}
	}
	return found
}

// envOf returns what a rule sees of a request.
func envOf(who *Principal, a *method.Method, on Resource) eval.Env {
	w := &world{principal: who.entity(), resource: on.entities()}
	return eval.Env{
		Entities: w, Principal: w.principal.UID, Action: uidOf(a), Resource: w.resource[0].UID,
		Context: cedar.Record{},
	}
}

// excepts reports whether the conditions of a permit could leave out a collection in a resource. A
// head that names a database permits nothing elsewhere, and leaves out nothing. Conditions that
// are false of all databases but those that they name are like it.
func (r *rule) excepts(who *Principal, a *method.Method, on, in Resource) bool {
	head := (*ast.Policy)(r.policy.AST())
	if _, exact := head.Resource.(ast.ScopeTypeEq); exact {
		return false
	}
	env := envOf(who, a, on)
	env.Resource = eval.Variable(resourceVariable)
	rest, keep := eval.PartialPolicy(env, head)
	if !keep {
		return true
	}
	covers := func(database string) bool {
		only := ast.Permit()
		for _, c := range rest.Conditions {
			if !alike(c.Body, database, a.Scope == mooringv1.Method_SCOPE_COMMAND) {
				return false
			}
		}
		only.Conditions = rest.Conditions
		left, keep := eval.PartialPolicy(envOf(who, a, anyIn(database)), only)
		return keep && !fails(left)
	}
	if !covers(on.Database) {
		return true
	}
	return in != on && in.Database == "" && r.couldMatch(envOf(who, a, anyIn(""))) && !covers("")
}

// anyIn returns a collection of a database, or of one that no rule names.
func anyIn(database string) Resource {
	const nameless = "\x00"
	if database == "" {
		database = nameless
	}
	return Resource{database, nameless}
}

// alike reports whether a condition is the same for all collections of a database, or of all
// databases. own counts the server's own (system.…), too.
func alike(condition ast.IsNode, database string, own bool) bool {
	same := true
	tells := func(b ast.BinaryNode) bool {
		return !isResource(b.Left) || !tellsNone(b.Right, database, own)
	}
	ast.Inspect(ast.NewNode(condition), func(n ast.IsNode) bool {
		switch n := n.(type) {
		case ast.NodeTypeVariable:
			same = same && n.Name != resourceVariable
		case ast.NodeTypeHas:
			return !isResource(n.Arg)
		case ast.NodeTypeIs:
			return !isResource(n.Left)
		case ast.NodeTypeIn:
			return tells(n.BinaryNode)
		case ast.NodeTypeEquals:
			return tells(n.BinaryNode)
		case ast.NodeTypeNotEquals:
			return tells(n.BinaryNode)
		case ast.NodeTypeIsIn:
			same = same && (!isResource(n.Left) || tellsNone(n.Entity, database, own))
			return !isResource(n.Left)
		case ast.NodeTypeAccess:
			return !isResource(n.Arg) || n.Value != "database" || database == ""
		case ast.NodeTypeLike:
			access, ok := n.Arg.(ast.NodeTypeAccess)
			return !ok || own || !isResource(access.Arg) || access.Value != "collection" ||
				!isSystem(strings.Trim(string(n.Value.MarshalCedar()), `"`))
		}
		return true
	})
	return same
}

// isResource reports whether an expression is the resource.
func isResource(n ast.IsNode) bool {
	v, ok := n.(ast.NodeTypeVariable)
	return ok && v.Name == resourceVariable
}

// tellsNone reports whether each collection of a database, or of all, is in an entity, or none is.
func tellsNone(n ast.IsNode, database string, own bool) bool {
	list := values(n)
	return len(list) > 0 && !slices.ContainsFunc(list, func(v cedar.Value) bool {
		uid, ok := v.(cedar.EntityUID)
		in, collection, _ := strings.Cut(string(uid.ID), ".")
		switch {
		case !ok || uid.Type == "Database":
			return !ok || database == ""
		case uid.Type == "Collection":
			return (database == "" || in == database) && (own || !isSystem(collection))
		}
		return false
	})
}
