package policy

import (
	"bytes"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
)

// grant holds what one rule permits a principal, with its claims filled in.
type grant struct {
	*rule
	filter, forced bson.Raw
}

// combine returns the decision of the rules that permit an action. writing says that the action
// changes documents. What the decision allows of a field of a document, one of the rules alone
// allows:
//
//   - a rule that permits no more than another does not count;
//   - of rules with the same limits on fields, the filters are or-ed;
//   - of rules with the same filter and forced values, the limits on fields count that all have;
//   - other rules do not go together. No filter and list of fields says what each alone permits.
//
// A rule whose claims the principal does not have permits nothing.
func combine(who *Principal, permits []*rule, writing bool) Decision {
	d := Decision{narrow: true}
	var all []grant
	for _, r := range permits {
		filter, ok := r.filter.fill(who)
		forced, ok2 := r.forced.fill(who)
		if !ok || !ok2 {
			continue
		}
		all = append(all, grant{r, filter, forced})
		d.narrow = d.narrow && r.restricts()
		d.Commands = append(d.Commands, r.commands...)
		d.Options = append(d.Options, r.options...)
	}
	if len(all) == 0 {
		return Decision{Rule: NoRule}
	}
	left := uncovered(all, writing)
	var ids []string
	for _, g := range left {
		ids = append(ids, g.id)
	}
	d.Allowed, d.Rule = true, strings.Join(ids, ", ")
	d.Filter, d.Forced, d.Hidden = left[0].filter, left[0].forced, left[0].hidden
	d.ReadOnly = left[0].readonly
	switch {
	case len(left) == 1:
	case allLike(left, func(a, b *grant) bool { return a.sameFields(b, writing) }):
		d.Filter = or(left)
	case allLike(left, func(a, b *grant) bool { return a.sameDocuments(b, writing) }):
		d.Hidden, d.ReadOnly = fieldLimits(left)
	default:
		return Decision{Rule: d.Rule + conflicting, conflict: true}
	}
	return d
}

// conflicting is what Decision.Rule says of rules that do not go together.
const conflicting = " (together they would permit more than each alone)"

// uncovered returns the grants that permit something that no other does.
func uncovered(all []grant, writing bool) (left []grant) {
	for i := range all {
		covered := false
		for j := range all {
			covered = covered || i != j && all[j].covers(&all[i], writing) &&
				(j < i || !all[i].covers(&all[j], writing))
		}
		if !covered {
			left = append(left, all[i])
		}
	}
	return left
}

// covers reports whether a grant permits all that another permits.
func (g *grant) covers(other *grant, writing bool) bool {
	if g.filter != nil && !bytes.Equal(g.filter, other.filter) ||
		!allInside(g.hidden, other.hidden) {
		return false
	}
	if !writing {
		return true
	}
	for key, v := range g.forced.All() {
		if w, found := other.forced.Lookup(key); !found || !v.Equal(w) {
			return false
		}
	}
	return allInside(g.readonly, other.readonly)
}

// sameFields reports whether two grants have the same limits on fields.
func (g *grant) sameFields(other *grant, writing bool) bool {
	if !samePaths(g.hidden, other.hidden) {
		return false
	}
	return !writing ||
		samePaths(g.readonly, other.readonly) && bytes.Equal(g.forced, other.forced)
}

// sameDocuments reports whether two grants permit the same documents.
func (g *grant) sameDocuments(other *grant, writing bool) bool {
	return bytes.Equal(g.filter, other.filter) &&
		(!writing || bytes.Equal(g.forced, other.forced))
}

// allLike reports whether the first grant is like each other.
func allLike(all []grant, like func(a, b *grant) bool) bool {
	return !slices.ContainsFunc(all[1:], func(g grant) bool { return !like(&all[0], &g) })
}

// or returns the filter that matches what one of the grants' filters matches. All have one: a grant
// without covers those that have the same limits on fields.
func or(all []grant) bson.Raw {
	b := bson.NewBuilder(nil).OpenArray("$or")
	for _, g := range all {
		b.Document("", g.filter)
	}
	return b.Close().Finish()
}

// fieldLimits returns the paths that all grants hide, and those that none lets the caller write. A
// field that one grant hides and another has read-only is read-only.
func fieldLimits(all []grant) (hidden, readonly []string) {
	hidden, readonly = all[0].hidden, all[0].readonly
	unwritten := slices.Concat(all[0].hidden, all[0].readonly)
	for _, g := range all[1:] {
		hidden, readonly = common(hidden, g.hidden), common(readonly, g.readonly)
		unwritten = common(unwritten, slices.Concat(g.hidden, g.readonly))
	}
	for _, path := range unwritten {
		if !insideAny(path, hidden) && !insideAny(path, readonly) {
			readonly = append(readonly, path)
		}
	}
	return hidden, readonly
}

// common returns the paths that are in both lists, or within a path of the other.
func common(a, b []string) (both []string) {
	for _, path := range a {
		if insideAny(path, b) && !slices.Contains(both, path) {
			both = append(both, path)
		}
	}
	for _, path := range b {
		if insideAny(path, a) && !slices.Contains(both, path) {
			both = append(both, path)
		}
	}
	return both
}

// allInside reports whether each of the paths is one of the others, or within one.
func allInside(paths, others []string) bool {
	return !slices.ContainsFunc(paths, func(path string) bool { return !insideAny(path, others) })
}

// samePaths reports whether two lists of paths reach the same fields.
func samePaths(a, b []string) bool { return allInside(a, b) && allInside(b, a) }

// Conflict reports permits for the same action on the same resource whose limits cannot be
// combined, so that the action is refused.
type Conflict struct {
	// Rules has the ids of the permits, as one text.
	Rules  string
	Action string
	On     Resource
}

func (c *Conflict) String() string {
	return c.Action + " on " + c.On.String() + " is refused by " + c.Rules + ": give them the " +
		"same @filter and @forced, or the same @hidden and @readonly, or conditions that are " +
		"never true together"
}

// Conflicts returns the conflicts for a principal, each set of rules once. It looks at the
// resources in on and at those that rules name.
func (p *Policy) Conflicts(who *Principal, on []Resource) (found []*Conflict) {
	seen := map[string]bool{}
	for _, on := range slices.Concat(on, p.named) {
		for _, name := range documentActions {
			d := p.Decide(who, name, on)
			if d.conflict && !seen[d.Rule] {
				seen[d.Rule] = true
				found = append(found, &Conflict{strings.TrimSuffix(d.Rule, conflicting), name, on})
			}
		}
	}
	return found
}

// documentActions lists the actions that limits on documents and fields are for.
var documentActions = func() (names []string) {
	for _, a := range method.All() {
		if a.Scope == mooringv1.Method_SCOPE_DOCUMENTS {
			names = append(names, a.Action)
		}
	}
	slices.Sort(names)
	return names
}()
