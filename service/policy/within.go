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

// within returns a decision that allows what is done on a resource. If it reaches documents of
// other collections, a forbid or a limit of one of these counts, too, and so does a condition of
// the permits that leaves one out.
func (p *Policy) within(who *Principal, name string, on Resource, d Decision) Decision {
	a, in, names := method.OfAction(name), on, []string{name}
	switch {
	case isSystem(on.Collection), on.Collection != "" && ofServers(on.Database):
		if d.Restricted() {
			return Decision{Rule: d.Rule + " (a collection of the server's own)"}
		}
		if of, ok := strings.CutPrefix(on.Collection, buckets); ok {
			other := p.decide(who, name, Resource{on.Database, of})
			if !other.Allowed || other.limits() {
				return Decision{Rule: other.Rule + " (it has the documents of another)"}
			}
			return d
		}
		in = Resource{Database: on.Database}
		if ofServers(on.Database) {
			in = Resource{}
		}
		names = collectionActions
	case on.Collection == "" && slices.Contains(resourcesOf(a), "Collection"):
	case a.Scope == mooringv1.Method_SCOPE_COMMAND:
		in, names = Resource{}, append(names, collectionActions...)
	case listed[name] != nil:
		names = listed[name]
	default:
		return d
	}
	var rule *rule
	var of, commands []string
	why := matching
	// Of commands and lists, a forbid or a limit counts later: see Commandless and Inside.
	if a.Scope != mooringv1.Method_SCOPE_COMMAND && listed[name] == nil {
		rule = p.limiting(who, names, in)
	}
	if rule == nil {
		why = leavingOut
		rule, of, commands = p.excepting(who, a, names, on, in)
	}
	switch {
	case rule == nil:
		if a.Scope == mooringv1.Method_SCOPE_COMMAND {
			d.Commands = commands
		}
		return d
	case name == watchAction:
		d.perEvent = true
		return d
	case listed[name] != nil:
		d.excepts = of
		return d
	}
	return Decision{Rule: rule.id + why}
}

// ofServers reports whether a database is the server's own. Its collections can have documents of
// all databases in them, as the oplog has.
func ofServers(database string) bool { return database == "local" || database == "config" }

// buckets begins the name of the collection with the documents of a time series.
const buckets = "system.buckets."

// matching is what Decision.Rule says of a forbid or a limit that could match a collection in what
// the request is about.
const matching = " (it could match a collection within)"

// leavingOut is what it says of a permit whose conditions could leave one out.
const leavingOut = " (its conditions could leave out a collection within)"

// limits reports whether a decision is made by a forbid, or has limits.
func (d *Decision) limits() bool { return d.forbidden || d.conflict || d.Restricted() }

// collectionActions lists the actions that change or tell of collections and what is in them.
var collectionActions = func() (names []string) {
	groups := []mooringv1.Method_Group{
		mooringv1.Method_GROUP_READ, mooringv1.Method_GROUP_WRITE, mooringv1.Method_GROUP_WATCH,
		mooringv1.Method_GROUP_DESCRIBE, mooringv1.Method_GROUP_MANAGE,
	}
	for _, a := range method.All() {
		if slices.Contains(groups, a.Group) && resourcesOf(a) != nil {
			names = append(names, a.Action)
		}
	}
	return names
}()

// onCollections lists those of them that are done on one collection.
var onCollections = slices.DeleteFunc(slices.Clone(collectionActions), func(name string) bool {
	return !slices.Contains(resourcesOf(method.OfAction(name)), "Collection")
})

// commandActions lists the actions that run a command on a database.
var commandActions = func() (names []string) {
	for _, a := range method.All() {
		if a.Scope == mooringv1.Method_SCOPE_COMMAND {
			names = append(names, a.Action)
		}
	}
	return names
}()

// Commandless returns the id of a rule that keeps the principal from running commands: a forbid or
// a limit that could match some collection, since commands reach all collections. It returns "" if
// there is none.
func (p *Policy) Commandless(who *Principal) string {
	if r := p.limiting(who, collectionActions, Resource{}); r != nil {
		return r.id
	}
	return ""
}

// limiting returns a forbid, or a rule with limits, that could match one of the actions on
// something in a resource; nil: none can. A condition on the resource counts as one that matches.
func (p *Policy) limiting(who *Principal, names []string, in Resource) *rule {
	for _, r := range p.rules {
		if r.permit && !r.restricts() || !in.meets(r.policy) {
			continue
		}
		if slices.ContainsFunc(names, func(name string) bool {
			return p.matches(r, who, cedar.NewEntityUID("Action", cedar.String(name)))
		}) {
			return r
		}
	}
	return nil
}

// RestrictedSomewhere reports whether a limit could apply to the principal, for any action on any
// resource. It is true if that cannot be excluded.
func (p *Policy) RestrictedSomewhere(who *Principal) bool {
	return slices.ContainsFunc(p.rules, func(r *rule) bool {
		return r.permit && r.restricts() && p.matches(r, who, eval.Variable("action"))
	})
}

// matches reports whether a rule could match an action of a principal on some resource. A permit
// that cannot be evaluated matches nothing, and such a forbid matches.
func (p *Policy) matches(r *rule, who *Principal, action cedar.Value) bool {
	if _, ok := r.filter.fill(who); !ok {
		return false
	}
	if _, ok := r.forced.fill(who); !ok {
		return false
	}
	w := &world{principal: who.entity()}
	rest, keep := eval.PartialPolicy(eval.Env{
		Entities: w, Principal: w.principal.UID, Action: action,
		Resource: eval.Variable("resource"), Context: cedar.Record{},
	}, (*ast.Policy)(r.policy.AST()))
	return keep && !(r.permit && fails(rest))
}

// fails reports whether what is left of a rule is an error for every action and resource.
func fails(rest *ast.Policy) bool {
	return slices.ContainsFunc(rest.Conditions, func(c ast.ConditionType) bool {
		_, failed := eval.ToPartialError(c.Body)
		return failed
	})
}

// meets reports whether the head of a rule names something in a resource, or what it is in.
func (r Resource) meets(p *cedar.Policy) bool {
	var uid cedar.EntityUID
	switch scope := (*ast.Policy)(p.AST()).Resource.(type) {
	case ast.ScopeTypeEq:
		uid = scope.Entity
	case ast.ScopeTypeIn:
		uid = scope.Entity
	case ast.ScopeTypeIsIn:
		uid = scope.Entity
	default:
		return true
	}
	database, _, _ := strings.Cut(string(uid.ID), ".")
	return r.Database == "" || uid.Type == "Deployment" || database == r.Database
}
