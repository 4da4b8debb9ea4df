package policy

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
)

// Principal says who calls.
type Principal struct {
	// Name is the principal's name, such as key:shop; empty: the client is not authenticated.
	Name string
	// Groups lists the groups that the principal is in. Each begins with the kind of the
	// credential, as the name does.
	Groups []string
	// Claims has what the credential says of the client: the claims of a token, or the names in a
	// certificate. The values are those of encoding/json.
	Claims map[string]any
}

// anonymous is the Cedar id and the kind of a client that is not authenticated.
const anonymous = "anonymous"

// kind returns the kind of the principal's credential: key, jwt or cert.
func (p *Principal) kind() string {
	kind, _, ok := strings.Cut(p.Name, ":")
	if !ok {
		return anonymous
	}
	return kind
}

func (p *Principal) entity() cedar.Entity {
	id := p.Name
	if id == "" {
		id = anonymous
	}
	groups := make([]cedar.EntityUID, len(p.Groups))
	for i, g := range p.Groups {
		groups[i] = cedar.NewEntityUID("Group", cedar.String(g))
	}
	_, name, _ := strings.Cut(p.Name, ":")
	return cedar.Entity{
		UID:     cedar.NewEntityUID("Principal", cedar.String(id)),
		Parents: cedar.NewEntityUIDSet(groups...),
		Attributes: cedar.NewRecord(cedar.RecordMap{
			"kind": cedar.String(p.kind()), "name": cedar.String(name),
			"claims": cedarRecord(p.Claims),
		}),
	}
}

func cedarRecord(claims map[string]any) cedar.Record {
	record := cedar.RecordMap{}
	for name, claim := range claims {
		if v, ok := cedarValue(claim); ok {
			record[cedar.String(name)] = v
		}
	}
	return cedar.NewRecord(record)
}

// cedarValue returns a claim as Cedar has it. Null and numbers that are not integers have no form
// there.
func cedarValue(claim any) (cedar.Value, bool) {
	switch v := claim.(type) {
	case string:
		return cedar.String(v), true
	case bool:
		return cedar.Boolean(v), true
	case map[string]any:
		return cedarRecord(v), true
	case []any:
		var items []cedar.Value
		for _, item := range v {
			if value, ok := cedarValue(item); ok {
				items = append(items, value)
			}
		}
		return cedar.NewSet(items...), true
	}
	if n, ok := integer(claim); ok {
		return cedar.Long(n), true
	}
	return nil, false
}

// Resource says what a call works on: a collection, a database if Collection is empty, or the
// deployment if both are.
type Resource struct{ Database, Collection string }

// String returns database.collection, the database, or "deployment".
func (r Resource) String() string {
	switch {
	case r.Database == "":
		return "deployment"
	case r.Collection == "":
		return r.Database
	}
	return r.Database + "." + r.Collection
}

// entities returns the entity of the resource, and those that it is in.
func (r Resource) entities() []cedar.Entity {
	all := cedar.Entity{UID: cedar.NewEntityUID("Deployment", "deployment")}
	if r.Database == "" {
		return []cedar.Entity{all}
	}
	name := cedar.String(r.Database)
	db := cedar.Entity{
		UID: cedar.NewEntityUID("Database", name), Parents: cedar.NewEntityUIDSet(all.UID),
		Attributes: cedar.NewRecord(cedar.RecordMap{"database": name}),
	}
	if r.Collection == "" {
		return []cedar.Entity{db, all}
	}
	collection := cedar.Entity{
		UID:     cedar.NewEntityUID("Collection", cedar.String(r.String())),
		Parents: cedar.NewEntityUIDSet(db.UID),
		Attributes: cedar.NewRecord(cedar.RecordMap{
			"database": name, "collection": cedar.String(r.Collection),
		}),
	}
	return []cedar.Entity{collection, db, all}
}

// world finds the entities of one decision.
type world struct {
	principal cedar.Entity
	resource  []cedar.Entity
}

// Get returns an entity.
func (w *world) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	if uid == w.principal.UID {
		return w.principal, true
	}
	for _, e := range w.resource {
		if e.UID == uid {
			return e, true
		}
	}
	e, ok := actionEntities[uid]
	return e, ok
}

// Decide returns whether, and within which limits, the principal may do the action on the resource.
// An action that is not in Actions is refused.
func (p *Policy) Decide(who *Principal, action string, on Resource) Decision {
	d := p.decide(who, action, on)
	if !d.Allowed {
		return d
	}
	return p.within(who, action, on, d)
}

// decide returns what the rules say that name the resource, or what it is in.
func (p *Policy) decide(who *Principal, action string, on Resource) Decision {
	w := &world{principal: who.entity(), resource: on.entities()}
	a := method.OfAction(action)
	// A name with $ is not one of a collection: find on $cmd would be a command.
	if a == nil || strings.Contains(on.String(), "$") {
		return Decision{Rule: NoRule}
	}
	_, found := cedar.Authorize(p.set, w, cedar.Request{
		Principal: w.principal.UID, Action: uidOf(a), Resource: w.resource[0].UID,
		Context: cedar.Record{},
	})
	// Cedar ignores a forbid that it cannot evaluate. Here it forbids.
	for _, e := range found.Errors {
		if r := p.byID[e.PolicyID]; !r.permit {
			return Decision{Rule: r.id, forbidden: true}
		}
	}
	var permits []*rule
	for _, reason := range found.Reasons {
		r := p.byID[reason.PolicyID]
		if !r.permit {
			return Decision{Rule: r.id, forbidden: true}
		}
		permits = append(permits, r)
	}
	slices.SortFunc(permits, func(a, b *rule) int { return a.line - b.line })
	return combine(who, permits, a.Group == mooringv1.Method_GROUP_WRITE)
}
