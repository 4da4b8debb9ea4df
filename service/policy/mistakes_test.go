package policy_test

import (
	"strings"
	"testing"

	"github.com/mooringdb/mooring/service/policy"
)

// TestMistakes checks that policies with a mistake are refused, with its line and what to write.
// Cedar alone takes nearly all of them, and the rule then never applies.
func TestMistakes(t *testing.T) {
	const when = "forbid (principal, action, resource)\nwhen { "
	for _, row := range []struct{ name, text, line, write string }{
		{
			"a group in place of an action",
			"forbid (principal,\n action == Action::\"write\", resource);", "line 2", `action in Action::"write"`,
		},
		{
			"a group in a condition", when + `action == Action::"write" };`,
			"line 2", `action in Action::"write"`,
		},
		{
			"a group in a negated condition", when + `action != Action::"read" };`,
			"line 2", `action in Action::"read"`,
		},
		{
			"a group in a set that contains the action",
			when + `[Action::"read", Action::"Find"].contains(action) };`, "line 2", `action in Action::"read"`,
		},
		{
			"a letter is missing in an action",
			"\n\nforbid (principal, action == Action::\"DropColection\", resource);", "line 3", `Action::"DropCollection"`,
		},
		{
			"in a list of actions",
			"forbid (principal, action in [\nAction::\"Find\",\nAction::\"DelteMany\"], resource);", "line 3", `"DeleteMany"`,
		},
		{"in a group", `permit (principal, action in Action::"reads", resource);`, "line 1", `Action::"read"`},
		{"a group with a capital", `forbid (principal, action in Action::"Write", resource);`, "line 1", `"write"`},
		{"in a condition", when + `action == Action::"find" };`, "line 2", `Action::"Find"`},
		{"more other letters than those of an action", `forbid (principal, action == Action::"vwxyzFind", resource);`, "line 1", "docs/policy.md"},
		{"as many", `forbid (principal, action == Action::"wxyzFind", resource);`, "line 1", `Action::"Find"`},
		{"nothing like an action", `forbid (principal, action == Action::"x", resource);`, "line 1", "write one of the names that docs/policy.md lists"},
		{"a service's name in it", `forbid (principal, action == Action::"DocumentService/Find", resource);`, "line 1", "write"},
		{
			"a call that has others in it", `forbid (principal, action == Action::"BulkWrite", resource);`,
			"line 1", "InsertOne",
		},
		{
			"a transaction's operations", `forbid (principal, action in [Action::"RunTransaction"], resource);`,
			"line 1", "InsertOne",
		},
		{"a principal without its kind", `forbid (principal == Principal::"shop", action, resource);`, "line 1", `Principal::"key:shop"`},
		{"a principal of an unknown kind", `forbid (principal == Principal::"apikey:shop", action, resource);`, "line 1", `"key:apikey:shop"`},
		{"a kind without a principal", `forbid (principal == Principal::"key:", action, resource);`, "line 1", "write Principal"},
		{"a group without its kind", `forbid (principal in Group::"readers", action, resource);`, "line 1", `Group::"key:readers"`},
		{"a principal that is a group", `forbid (principal == Group::"key:readers", action, resource);`, "line 1", "principal"},
		{"another word for principal", `forbid (principal == User::"key:shop", action, resource);`, "line 1", "write"},
		{"a type with a letter missing", `forbid (principal in Grup::"key:readers", action, resource);`, "line 1", "Group"},
		{"a type in a condition", when + `principal is Principl };`, "line 2", "Principal"},
		{"a collection without a database", `forbid (principal, action, resource == Collection::"orders");`, "line 1", `"DATABASE.orders"`},
		{"a collection of a database without a name", `forbid (principal, action, resource == Collection::".orders");`, "line 1", `"DATABASE.orders"`},
		{"a database that is a collection", `forbid (principal, action, resource in Database::"shop.orders");`, "line 1", `Collection::"shop.orders"`},
		{"a database without a name", `forbid (principal, action, resource in Database::"");`, "line 1", "write the name"},
		{"a name with $", `forbid (principal, action, resource in Database::"$external");`, "line 1", "without $"},
		{"another deployment", `forbid (principal, action, resource in Deployment::"production");`, "line 1", `Deployment::"deployment"`},
		{"a database in place of what is in it", `forbid (principal, action in Action::"read", resource == Database::"shop");`, "line 1", `resource in Database::"shop"`},
		{"with all actions", `forbid (principal, action, resource == Database::"shop");`, "line 1", `resource in Database::"shop"`},
		{"the deployment in place of what is in it", "forbid (principal, action in [Action::\"write\"],\nresource == Deployment::\"deployment\");", "line 2", "resource in Deployment"},
		{"an action that works on no database", `forbid (principal, action == Action::"Find", resource is Database);`, "line 1", "Find works on a Collection"},
		{"an action that works on no collection", `forbid (principal, action == Action::"DropDatabase", resource is Collection);`, "line 1", "works on a Database"},
		{"a principal and a resource exchanged", `forbid (principal in Database::"shop", action, resource);`, "line 1", "for a principal"},
		{"an attribute that does not exist", when + `principal.group == "readers" };`, "line 2", "write"},
		{"a letter is missing in an attribute", when + `principal.claim has tenant };`, "line 2", "write claims"},
		{"an attribute that some resources have", when + `resource.collection like "system.*" };`, "line 2", "resource has collection &&"},
		{"an attribute of the deployment", when + `resource.database == "shop" };`, "line 2", "write"},
		{"an attribute that never is", when + `resource has colection };`, "line 1", "docs/policy.md"},
		{"a claim that may be missing", when + "true &&\nprincipal.claims.tenant == \"acme\" };", "line 3", "principal has claims.tenant &&"},
		{"a claim of two types", when + "principal.claims has a &&\n(principal.claims.a == 1 || principal.claims.a == \"1\") };", "line 3", "a rule for each type"},
		{"a claim that is a set and a text", when + `principal.claims has a && (principal.claims.a.containsAny(["x"]) || principal.claims.a == "x") };`, "line 2", "a rule for each type"},
		{"a claim that is a set of texts and of numbers", when + `principal.claims has a && (principal.claims.a.containsAll(["x"]) || principal.claims.a.containsAll([1])) };`, "line 2", "a rule for each type"},
		{"a claim that is an object and a text", when + `principal.claims has a.b && principal.claims.a == "x" };`, "line 2", "a rule for each type"},
		{"a kind that does not exist", when + `principal.kind == "token" };`, "line 2", "key, jwt, cert"},
		{"a kind in a set", when + `["jwt", "apikey"].contains(principal.kind) };`, "line 2", "key, jwt, cert"},
		{"a number in place of a text", when + `resource has database && resource.database == 5 };`, "line 1", "docs/policy.md"},
		{"a text that is a condition", when + `principal.name };`, "line 1", "one type"},
		{"an order of texts", when + `principal.name < "b" };`, "line 1", "one type"},
		{"the context of other products", when + `context.ip == "x" };`, "line 2", "write"},
		{"two conditions that exclude each other", `forbid (principal, action == Action::"Find", resource) when { resource is Database };`, "line 1", "docs/policy.md"},
		{"a condition that excludes all", `forbid (principal, action, resource) unless { principal is Principal };`, "line 1", "docs/policy.md"},
		{"an empty set", when + `[].contains(principal.name) };`, "line 1", "docs/policy.md"},
		{"a misspelled annotation", "\n\n@hiden(\"salary\")\n" + permitAll, "line 3", "hidden"},
		{"no rule", "// nothing", "line 1", "write a permit"},
		{"no Cedar", "permit (principal, action, resource)\nforbid", "2:", ""},
	} {
		_, err := policy.Parse([]byte(row.text))
		if err == nil || !strings.Contains(err.Error(), row.line) ||
			!strings.Contains(err.Error(), row.write) {
			t.Errorf("%s: error %v, want %s and %s", row.name, err, row.line, row.write)
		}
	}
}

// TestNoMistakes checks that rules which use all that there is have no mistake.
func TestNoMistakes(t *testing.T) {
	for _, text := range []string{
		`permit (principal == Principal::"anonymous", action == Action::"ListDatabases", resource);`,
		`permit (principal is Principal in Group::"cert:ops", action in [Action::"read", Action::"DropDatabase"], resource);`,
		`forbid (principal, action in Action::"command", resource == Database::"shop");`,
		`forbid (principal, action in Action::"operate", resource == Deployment::"deployment");`,
		`forbid (principal, action, resource is Collection) when { resource.collection like "system.*" };`,
		`forbid (principal, action, resource) when { action in Action::"write" && resource in Database::"shop" };`,
		`forbid (principal, action, resource) unless { principal.kind == "cert" };`,
		`permit (principal, action, resource) when { principal.claims has a.b && principal.claims.a.b > 5 };`,
		`permit (principal, action, resource) when { principal.claims has a && principal.claims.a >= 5 };`,
		`permit (principal, action, resource) when { principal.claims has a && principal.claims.a <= 5 };`,
		`permit (principal, action, resource) when { principal.claims has a && principal.claims.a < 5 };`,
		`permit (principal, action, resource) when { principal.claims has a && (principal.claims.a == "x" || principal.claims.a == principal.name) };`,
		`permit (principal, action, resource) when { principal.claims has roles && principal.claims.roles.contains("x") };`,
		`permit (principal, action, resource) when { principal.claims has roles && principal.claims.roles.containsAny(["x", "y"]) };`,
		`permit (principal, action, resource) when { principal.claims has roles && principal.claims.roles.containsAll([1, 2]) };`,
		`permit (principal, action, resource) when { principal.claims has roles && [1, 2].containsAll(principal.claims.roles) };`,
		`permit (principal, action, resource) when { principal.claims has roles && !principal.claims.roles.isEmpty() };`,
		`permit (principal, action, resource) when { principal.claims has a && principal.claims has b && principal.claims.a.containsAll(principal.claims.b) };`,
		`permit (principal, action, resource) when { principal.claims has n && [1, 2].contains(principal.claims.n) };`,
		`permit (principal, action, resource) when { principal.claims has on && principal.claims.on };`,
		`permit (principal, action, resource) when { principal.claims has on && !principal.claims.on };`,
		`permit (principal, action, resource) when { principal.claims has db && resource has database && resource.database == principal.claims.db };`,
		`permit (principal, action, resource) when { principal.claims has "https://x/y" && principal.claims["https://x/y"] like "a*" };`,
		`permit (principal, action == Action::"Watch", resource == Database::"shop");`,
	} {
		if _, err := policy.Parse([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestEachMistake checks that a rule's second mistake is told, although what to write is the same
// as for its first one, and each once.
func TestEachMistake(t *testing.T) {
	_, err := policy.Parse([]byte("forbid (principal, action, resource) when {\n" +
		"principal.nam == \"a\" &&\nprincipal.nane == \"b\" };"))
	for _, line := range []string{"line 2", "line 3"} {
		if err == nil || strings.Count(err.Error(), line) != 1 {
			t.Errorf("error %v, want %s once", err, line)
		}
	}
}
