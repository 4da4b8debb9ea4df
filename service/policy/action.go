package policy

import (
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/mooringdb/mooring/internal/method"
)

// An action of a policy is a method of the API, under the name that method.Method.Action says.

// IsAction reports whether there is an action with the name.
func IsAction(name string) bool { return method.OfAction(name) != nil }

// Actions returns the names of all actions.
func Actions() (names []string) {
	for _, m := range method.All() {
		names = append(names, m.Action)
	}
	return names
}

// uidOf returns the entity of an action, and groupOf that of its group, such as Action::"read".
func uidOf(a *method.Method) cedar.EntityUID {
	return cedar.NewEntityUID("Action", cedar.String(a.Action))
}

func groupOf(a *method.Method) cedar.EntityUID {
	_, name, _ := strings.Cut(a.Group.String(), "_")
	return cedar.NewEntityUID("Action", cedar.String(strings.ToLower(name)))
}

// actionEntities holds the entities of all actions, each in its group.
var actionEntities = func() cedar.EntityMap {
	entities := cedar.EntityMap{}
	for _, a := range method.All() {
		group := groupOf(a)
		entities[group] = cedar.Entity{UID: group}
		entities[uidOf(a)] = cedar.Entity{UID: uidOf(a), Parents: cedar.NewEntityUIDSet(group)}
	}
	return entities
}()
