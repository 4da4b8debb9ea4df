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

// excepting returns a permit for what is done on a resource whose conditions could leave out, for
// one of the names of actions, a collection that this reaches: one in the resource in, that is on,
// its database or the deployment. For lists and drops, it also returns those of the names. It
// returns nil if some permit leaves out none, or if none is without limits. Of commands, it looks
// at the permits that list some, and also returns those that are listed by one that leaves out
// none.
func (p *Policy) excepting(
	who *Principal, a *method.Method, names []string, on, in Resource,
) (found *rule, of, commands []string) {
	env, command := envOf(who, a, on), a.Scope == mooringv1.Method_SCOPE_COMMAND
	for _, r := range p.rules {
		if !r.permit || r.restricts() || command && r.commands == nil || !r.couldMatch(env) {
			continue
		}
		excepted := r.excepts(who, a, names, on, in)
		switch {
		case excepted == nil && !command:
			return nil, nil, nil
		case excepted == nil:
			commands = append(commands, r.commands...)
		case found == nil:
			found = r
		}
		of = append(of, excepted...)
	}
	if commands != nil {
		found = nil
	}
	return found, of, commands
}

// envOf returns what a rule sees of a request.
func envOf(who *Principal, a *method.Method, on Resource) eval.Env {
	w := &world{principal: who.entity(), resource: on.entities()}
	return eval.Env{
		Entities: w, Principal: w.principal.UID, Action: uidOf(a), Resource: w.resource[0].UID,
		Context: cedar.Record{},
	}
}

// excepts returns the names for which the conditions of a permit could leave out a collection in a
// resource, or the first of them: only lists and drops need all. A head that names a database or
// other actions permits nothing else, and leaves out nothing. Conditions that are false of all
// databases but those that they name are like it.
func (r *rule) excepts(
	who *Principal, a *method.Method, names []string, on, in Resource,
) (of []string) {
	head := (*ast.Policy)(r.policy.AST())
	if _, exact := head.Resource.(ast.ScopeTypeEq); exact || len(head.Conditions) == 0 {
		return nil
	}
	here, there := envOf(who, a, anyIn(on.Database)), envOf(who, a, anyIn(""))
	elsewhere := in != on && in.Database == "" && (r.couldMatch(there) ||
		r.couldMatch(envOf(who, a, Resource{nameless, on.Collection})))
	// Commands and collections of the server's own tell of all others.
	own := on.Collection != "" || a.Scope == mooringv1.Method_SCOPE_COMMAND
	for _, name := range names {
		free := here
		free.Action, free.Resource = uidOf(method.OfAction(name)), eval.Variable(resourceVariable)
		rest, keep := eval.PartialPolicy(free, head)
		covers := func(env eval.Env, database string) bool {
			only := ast.Permit()
			for _, c := range rest.Conditions {
				if !alike(c.Body, database, own) {
					return false
				}
			}
			only.Conditions, env.Action = rest.Conditions, free.Action
			left, keep := eval.PartialPolicy(env, only)
			return keep && !fails(left)
		}
		excepted := name == a.Action
		if keep {
			excepted = !covers(here, on.Database) || elsewhere && !covers(there, "")
		}
		if excepted {
			of = append(of, name)
		}
		if of != nil && listed[a.Action] == nil {
			break
		}
	}
	return of
}

// nameless is the name of a database or a collection that no rule names.
const nameless = "\x00"

// anyIn returns a collection of a database, or of one that no rule names.
func anyIn(database string) Resource {
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
