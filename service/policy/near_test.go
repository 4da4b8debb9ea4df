package policy_test

import (
	"slices"
	"testing"

	"github.com/mooringdb/mooring/service/policy"
)

// TestNearPermits checks what is said of the permits that one change would make match.
func TestNearPermits(t *testing.T) {
	p, err := policy.Parse([]byte(`
		@id("readers") permit (principal in Group::"key:readers", action in [Action::"read", Action::"watch"], resource in Database::"shop")
		unless { resource has collection && resource.collection like "system.*" };
		@id("tenant") @filter("{'tenant': {'$claim': 'tenant'}}")
		permit (principal is Principal in Group::"jwt:users", action == Action::"Find", resource == Collection::"crm.people");
		@id("ann") permit (principal == Principal::"key:ann", action == Action::"Find", resource == Collection::"hr.pay");
		@id("never") forbid (principal, action == Action::"DropCollection", resource);`))
	if err != nil {
		t.Fatal(err)
	}
	reader := policy.Principal{Name: "key:bob", Groups: []string{"key:readers"}}
	user := policy.Principal{Name: "jwt:eve", Groups: []string{"jwt:users"}}
	for _, row := range []struct {
		name   string
		who    policy.Principal
		action string
		on     policy.Resource
		want   []policy.Near
		permit bool // PermitFor has a rule
	}{
		{"the principal", user, "Find", policy.Resource{Database: "shop", Collection: "orders"}, []policy.Near{{Rule: "readers", If: `principal in Group::"key:readers"`}}, true},
		{"the action", reader, "InsertOne", policy.Resource{Database: "shop", Collection: "orders"}, []policy.Near{{Rule: "readers", If: `action in [Action::"read", Action::"watch"]`}}, true},
		{"the resource", reader, "Find", policy.Resource{Database: "stock", Collection: "orders"}, []policy.Near{{Rule: "readers", If: `resource in Database::"shop"`}}, true},
		{"a condition", reader, "Find", policy.Resource{Database: "shop", Collection: "system.profile"}, []policy.Near{{Rule: "readers", If: "its conditions held for the resource"}}, true},
		{"claims", user, "Find", policy.Resource{Database: "crm", Collection: "people"}, []policy.Near{{Rule: "tenant", If: "the principal had the claims that it names"}}, true},
		{"claims and the action", user, "InsertOne", policy.Resource{Database: "crm", Collection: "people"}, nil, true},
		{"one of two rules", reader, "Find", policy.Resource{Database: "hr", Collection: "pay"}, []policy.Near{{Rule: "readers", If: `resource in Database::"shop"`}, {Rule: "ann", If: `principal == Principal::"key:ann"`}}, true},
		{"a group", policy.Principal{}, "Find", policy.Resource{Database: "crm", Collection: "people"}, []policy.Near{{Rule: "tenant", If: `principal is Principal in Group::"jwt:users"`}}, true},
		{"a command", reader, "RunCommand", policy.Resource{Database: "crm"}, nil, false},
		{"a name with $", reader, "Find", policy.Resource{Database: "shop", Collection: "$cmd"}, nil, false},
		{"no such resource of the action", reader, "ListDatabases", policy.Resource{Database: "crm", Collection: "people"}, nil, false},
	} {
		if d := p.Decide(&row.who, row.action, row.on); d.Rule != policy.NoRule {
			t.Errorf("%s: Decide says %s", row.name, d.Rule)
		}
		if got := p.NearPermits(&row.who, row.action, row.on); !slices.Equal(got, row.want) {
			t.Errorf("%s: NearPermits = %q, want %q", row.name, got, row.want)
		}
		if got := policy.PermitFor(&row.who, row.action, row.on); (got != "") != row.permit {
			t.Errorf("%s: PermitFor = %q, want one: %v", row.name, got, row.permit)
		}
	}
}
