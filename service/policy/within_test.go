package policy_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/policy"
)

// watchOf, findOf and commandOf return requests on what a name like shop.payroll names.
func watchOf(on string) proto.Message {
	m := &mooringv1.WatchRequest{}
	database, collection, ok := strings.Cut(on, ".")
	if m.Database = database; ok {
		m.Collection = &collection
	}
	return m
}

func findOf(on string) proto.Message {
	m := &mooringv1.FindRequest{}
	m.Database, m.Collection, _ = strings.Cut(on, ".")
	return m
}

func commandOf(t *testing.T, on string) proto.Message {
	t.Helper()
	return &mooringv1.RunCursorCommandRequest{
		Database: on, Command: document(t, `{"find": "payroll"}`),
	}
}

// TestWithin checks that a forbid or a limit of a collection holds for calls on what it is in, and
// on the server's collections that have its documents in them.
func TestWithin(t *testing.T) {
	const wide = `@commands("find") permit (principal, action, resource);`
	watch, find := watchOf, findOf
	command := func(on string) proto.Message { return commandOf(t, on) }
	const watched, found = "ChangeStreamService/Watch", "DocumentService/Find"
	for _, row := range []struct {
		name, rules, method string
		request             proto.Message
		want                bool
	}{
		{"watch of the collection", `forbid (principal, action, resource == Collection::"shop.payroll");`, watched, watch("shop.payroll"), false},
		{"of its database", `forbid (principal, action, resource == Collection::"shop.payroll");`, watched, watch("shop"), false},
		{"of the deployment", `forbid (principal, action, resource == Collection::"shop.payroll");`, watched, watch(""), false},
		{"of another database", `forbid (principal, action, resource == Collection::"shop.payroll");`, watched, watch("shop2"), true},
		{"of another collection", `forbid (principal, action, resource == Collection::"shop.payroll");`, watched, watch("shop.a"), true},
		{"a forbid of a database", `forbid (principal, action, resource in Database::"shop");`, watched, watch(""), false},
		{"a forbid of what is in a collection", `forbid (principal, action, resource in Collection::"shop.payroll");`, watched, watch("shop"), false},
		{"a forbid of a type in a database", `forbid (principal, action, resource is Collection in Database::"shop");`, watched, watch("shop"), false},
		{"a forbid of a type", `forbid (principal, action, resource is Collection);`, watched, watch("shop"), false},
		{"a forbid by a condition", `forbid (principal, action, resource) when { resource == Collection::"shop.payroll" };`, watched, watch("shop"), false},
		{"a forbid of another action", `forbid (principal, action in Action::"write", resource == Collection::"shop.payroll");`, watched, watch("shop"), true},
		{"a forbid of another principal", `forbid (principal == Principal::"key:bob", action, resource == Collection::"shop.payroll");`, watched, watch("shop"), true},
		{
			"a forbid by a condition on others", `forbid (principal, action, resource == Collection::"shop.payroll")
				when { principal.kind == "jwt" };`, watched, watch("shop"), true,
		},
		{
			"a forbid that cannot be evaluated", `forbid (principal, action, resource == Collection::"shop.payroll")
				when { principal.claims has n && principal.claims.n > 1 };`, watched, watch("shop"), false,
		},
		{"a limit of a collection", `@hidden("a") permit (principal, action in Action::"watch", resource == Collection::"shop.payroll");`, watched, watch("shop"), false},
		{"a limit of another action", `@hidden("a") permit (principal, action in Action::"read", resource == Collection::"shop.payroll");`, watched, watch("shop"), true},
		{
			"a limit with a claim that the caller lacks", `@filter("{'a': {'$claim': 'b'}}")
				permit (principal, action in Action::"watch", resource == Collection::"shop.payroll");`, watched, watch("shop"), true,
		},
		{
			"an aggregation of the database", `forbid (principal, action, resource == Collection::"shop.payroll");`,
			"DocumentService/Aggregate", &mooringv1.AggregateRequest{Database: "shop"}, false,
		},
		{
			"an explained aggregation of the database", `forbid (principal, action, resource == Collection::"shop.payroll");`,
			"DocumentService/ExplainAggregate", &mooringv1.ExplainAggregateRequest{Database: "shop"}, false,
		},
		{"a command", `forbid (principal, action in Action::"read", resource == Collection::"shop.payroll");`, "CommandService/RunCursorCommand", command("shop"), false},
		{"a command elsewhere", `forbid (principal, action in Action::"read", resource == Collection::"shop.payroll");`, "CommandService/RunCursorCommand", command("other"), false},
		{"a forbid of commands elsewhere", `forbid (principal, action in Action::"command", resource == Database::"admin");`, "CommandService/RunCursorCommand", command("shop"), true},
		{"a forbid of what operators do", `forbid (principal, action in Action::"operate", resource);`, "CommandService/RunCursorCommand", command("shop"), true},
		{"the buckets of the collection", `forbid (principal, action, resource == Collection::"shop.payroll");`, found, find("shop.system.buckets.payroll"), false},
		{"its buckets under a limit", `@hidden("a") permit (principal, action, resource == Collection::"shop.payroll");
			permit (principal, action, resource == Collection::"shop.system.buckets.payroll");`, found, find("shop.system.buckets.payroll"), true},
		{"the buckets of another collection", `forbid (principal, action, resource == Collection::"shop.payroll");`, found, find("shop.system.buckets.a"), true},
		{"the commands of all", `forbid (principal, action, resource == Collection::"shop.payroll");`, found, find("shop.system.profile"), false},
		{"the commands of all elsewhere", `forbid (principal, action, resource == Collection::"shop.payroll");`, found, find("other.system.profile"), true},
		{"the oplog", `forbid (principal, action, resource == Collection::"shop.payroll");`, found, find("local.oplog.rs"), false},
		{"under a limit of a collection", `@hidden("a") permit (principal, action, resource == Collection::"shop.payroll");`, found, find("local.oplog.rs"), false},
		{"under a limit of its own", `@hidden("a") permit (principal, action, resource == Collection::"local.oplog.rs");`, found, find("local.oplog.rs"), false},
		{"under a forbid of another principal", `forbid (principal == Principal::"key:bob", action, resource == Collection::"shop.payroll");`, found, find("local.oplog.rs"), true},
		{"the images of documents before changes", `forbid (principal, action, resource == Collection::"shop.payroll");`, found, find("config.system.preimages"), false},
		{"those before retryable writes", `forbid (principal, action in Action::"write", resource in Database::"shop");`, found, find("config.image_collection"), false},
		{
			"a join with the oplog", `forbid (principal, action, resource == Collection::"shop.payroll");`, "DocumentService/Aggregate",
			&mooringv1.AggregateRequest{
				Database: "local", Pipeline: []*mooringv1.Document{document(t, `{"$unionWith": "oplog.rs"}`)},
			}, false,
		},
		{
			"a join with its buckets", `forbid (principal, action, resource == Collection::"shop.payroll");`, "DocumentService/Aggregate",
			&mooringv1.AggregateRequest{
				Database: "shop", Collection: new("a"),
				Pipeline: []*mooringv1.Document{
					document(t, `{"$lookup": {"from": "system.buckets.payroll", "as": "x", "pipeline": []}}`),
				},
			}, false,
		},
	} {
		e := enforcer(t, wide+row.rules)
		call := e.Begin(&caller.Identity{Principal: "key:ann", Claims: map[string]any{"n": "text"}},
			"/mooring.v1."+row.method, false)
		err := call.Check(t.Context(), row.request)
		if allowed := err == nil && !call.PerEvent(); allowed != row.want {
			t.Errorf("%s: %v, want it allowed: %t", row.name, err, row.want)
		}
	}
}

// TestExcepting checks that what a condition of a permit leaves out is not reached through what it
// is in, and that the other conditions change nothing.
func TestExcepting(t *testing.T) {
	const (
		watched, found = "ChangeStreamService/Watch", "DocumentService/Find"
		ran, joined    = "CommandService/RunCursorCommand", "DocumentService/Aggregate"

		all     = `@commands("find") permit (principal, action, resource) `
		inShop  = `@commands("find") permit (principal, action, resource in Database::"shop") `
		inLocal = `permit (principal, action, resource in Database::"local") `
		pings   = `@commands("ping, dbStats") permit (principal, action in Action::"command", resource);`
		types   = `@commands("find") permit (principal, action in Action::"command", resource is Database) `
		payroll = `unless { resource == Collection::"shop.payroll" };`
		named   = `unless { resource has collection && resource.collection == "payroll" };`
		hr      = `unless { resource in Database::"hr" };`
		own     = `when { principal.claims has db && resource has database && resource.database == principal.claims.db };`
		servers = `unless { resource has collection && resource.collection like "system.*" };`
		reads   = `unless { action in Action::"read" && resource == Collection::"shop.payroll" };`
		writes  = `unless { action in Action::"write" && resource == Collection::"shop.payroll" };`
	)
	const (
		no = iota
		perEvent
		yes
	)
	aggregate := &mooringv1.AggregateRequest{Database: "shop"}
	ping := &mooringv1.RunCursorCommandRequest{
		Database: "shop", Command: document(t, `{"ping": 1}`),
	}
	command := func(on string) proto.Message { return commandOf(t, on) }
	for _, row := range []struct {
		name, rules, method string
		request             proto.Message
		want                int
	}{
		{"watch of the deployment", all + hr, watched, watchOf(""), perEvent},
		{"by a name in any database", all + named, watched, watchOf(""), perEvent},
		{"by a database's name", all + `unless { resource has database && resource.database == "hr" };`, watched, watchOf(""), perEvent},
		{"watch of a database", inShop + payroll, watched, watchOf("shop"), perEvent},
		{"by a name", inShop + named, watched, watchOf("shop"), perEvent},
		{"a set of collections", inShop + `unless { resource in [Collection::"shop.a", Collection::"shop.payroll"] };`, watched, watchOf("shop"), perEvent},
		{"the only collection that is permitted", all + `when { !(resource has collection) || resource.collection == "a" };`, watched, watchOf("shop"), perEvent},
		{"no collection is permitted", all + `when { resource == Database::"shop" };`, watched, watchOf("shop"), perEvent},
		{"one branch of several", all + `unless { if resource is Collection then resource in Collection::"shop.payroll" else false };`, watched, watchOf("shop"), perEvent},
		{"a type in a collection", all + `unless { resource is Collection in Collection::"shop.payroll" };`, watched, watchOf("shop"), perEvent},
		{"of another principal", all + `unless { principal.kind == "jwt" && resource == Collection::"shop.payroll" };`, watched, watchOf("shop"), yes},
		{"another database is left out", all + hr, watched, watchOf("shop"), yes},
		{"a set of others", all + `unless { resource in [Database::"hr", Database::"x"] };`, watched, watchOf("shop"), yes},
		{"a collection of another database", all + `unless { resource == Collection::"hr.people" };`, watched, watchOf("shop"), yes},
		{"the type in another database", all + `unless { resource is Collection in Database::"hr" };`, watched, watchOf("shop"), yes},
		{"all but another database", all + `when { resource != Database::"hr" };`, watched, watchOf("shop"), yes},
		{"the claimed database", all + own, watched, watchOf("shop"), yes},
		{"the server's own are left out", inShop + servers, watched, watchOf("shop"), yes},
		{"of the deployment", all + servers, watched, watchOf(""), yes},
		{"one of the server's own", inShop + `unless { resource == Collection::"shop.system.views" };`, watched, watchOf("shop"), yes},
		{"another permit leaves out nothing", inShop + payroll + `permit (principal, action in Action::"watch", resource);`, watched, watchOf("shop"), yes},
		{"another permit is about another action", inShop + payroll + `permit (principal, action in Action::"read", resource);`, watched, watchOf("shop"), perEvent},
		{"another permit is about another resource", inShop + payroll + `permit (principal, action, resource in Database::"hr");`, watched, watchOf("shop"), perEvent},
		{"a permit that names the deployment", all + hr + `permit (principal, action == Action::"Watch", resource == Deployment::"deployment");`, watched, watchOf(""), yes},
		{"one of that kind", all + hr + `permit (principal, action == Action::"Watch", resource is Deployment);`, watched, watchOf(""), yes},
		{"with a condition that is true of it", `permit (principal, action == Action::"Watch", resource == Database::"shop") when { resource == Database::"shop" };`, watched, watchOf("shop"), yes},
		{"a collection", inShop + payroll, watched, watchOf("shop.a"), yes},

		{"an aggregation of the database", inShop + payroll, joined, aggregate, no},
		{"where it leaves out others", all + hr, joined, aggregate, yes},

		{"the oplog", all + hr, found, findOf("local.oplog.rs"), no},
		{"where a collection is left out", all + payroll, found, findOf("local.oplog.rs"), no},
		{"where a collection of its database is", all + `unless { resource == Collection::"local.a" };`, found, findOf("local.oplog.rs"), no},
		{"where the server's own are", all + servers, found, findOf("local.oplog.rs"), no},
		{"where one of them is", all + `unless { resource == Collection::"admin.system.users" };`, found, findOf("local.oplog.rs"), no},
		{"by a permit of its database", inLocal + servers, found, findOf("local.oplog.rs"), no},
		{"a list of its database", inLocal + servers, "CatalogService/ListCollections", &mooringv1.ListCollectionsRequest{Database: "local"}, yes},
		{"the commands of all where one of the server's own is left out", inShop + `unless { resource == Collection::"shop.system.views" };`, found, findOf("shop.system.profile"), no},
		{"a permit of its database", all + hr + `permit (principal, action in Action::"read", resource in Database::"local");`, found, findOf("local.oplog.rs"), yes},
		{"a condition that names its database", all + `when { resource has database && resource.database == "local" };`, found, findOf("local.oplog.rs"), yes},
		{"the commands of all", inShop + payroll, found, findOf("shop.system.profile"), no},
		{"those of another database", all + hr, found, findOf("shop.system.profile"), yes},

		{"a command", inShop + payroll, ran, command("shop"), no},
		{"a command elsewhere", all + payroll, ran, command("other"), no},
		{"a command outside of the database", all + hr, ran, command("shop"), no},
		{"a command where the server's own are left out", inShop + servers, ran, command("shop"), no},
		{"where one of them is", inShop + `unless { resource == Collection::"shop.system.views" };`, ran, command("shop"), no},
		{"a command in the claimed database", all + own, ran, command("shop"), yes},
		{"in a database of which nothing is left out", inShop + hr, ran, command("shop"), yes},
		{"by a permit of its own", inShop + payroll + `@commands("find") permit (principal, action in Action::"command", resource);`, ran, command("shop"), yes},

		{"a command that another permit does not list", all + payroll + pings, ran, command("shop"), no},
		{"in the other order", pings + all + payroll, ran, command("shop"), no},
		{"where the other lists none", all + payroll + `permit (principal, action in Action::"command", resource);`, ran, command("shop"), no},
		{"one that it lists", all + payroll + pings, ran, ping, yes},
		{"where two permits leave out something", all + payroll + `@commands("ping") permit (principal, action, resource) ` + hr, ran, ping, no},

		{"by a permit of databases", types + hr, ran, command("shop"), no},
		{"of all but one", types + `unless { resource == Database::"hr" };`, ran, command("shop"), no},
		{"without the type", all + `when { !(resource has collection) && resource has database && resource != Database::"hr" };`, ran, command("shop"), no},
		{"of the claimed one", types + own, ran, command("shop"), yes},
		{"of all", types + `when { principal.kind == "key" };`, ran, command("shop"), yes},

		{"what is left out of reads, by a command", all + reads, ran, command("shop"), no},
		{"by a command elsewhere", all + reads, ran, command("other"), no},
		{"by a read of the oplog", all + writes, found, findOf("local.oplog.rs"), no},
		{"of the commands of all", all + writes, found, findOf("shop.system.profile"), no},
		{"of the commands of all elsewhere", all + writes, found, findOf("other.system.profile"), yes},
		{"by a permit of commands alone", `@commands("find") permit (principal, action in Action::"command", resource) ` + reads, ran, command("shop"), yes},
		{"of what operators do", all + `unless { action in Action::"operate" && resource in Database::"shop" };`, ran, command("shop"), yes},
		{"reads are left out of everything", all + `unless { action in Action::"read" };`, ran, command("shop"), yes},
		{"of writes, by a watch", all + writes, watched, watchOf("shop"), yes},
		{"by an aggregation", all + writes, joined, aggregate, yes},
		{"of reads, by an aggregation", all + reads, joined, aggregate, no},
	} {
		e := enforcer(t, row.rules)
		who := &caller.Identity{Principal: "key:ann", Claims: map[string]any{"db": "shop"}}
		call := e.Begin(who, "/mooring.v1."+row.method, false)
		got, err := no, call.Check(t.Context(), row.request)
		switch {
		case err == nil && call.PerEvent():
			got = perEvent
		case err == nil:
			got = yes
		}
		if got != row.want {
			t.Errorf("%s: %s: %v, event by event: %t", row.method, row.name, err, call.PerEvent())
		}
	}
}

// TestExceptingInLists checks that lists and drops of a database have what the conditions of their
// permits leave out.
func TestExceptingInLists(t *testing.T) {
	const (
		payroll = `permit (principal, action, resource in Database::"shop") unless { resource == Collection::"shop.payroll" };`
		all     = `permit (principal, action, resource == Database::"shop");`
		hr      = `permit (principal, action, resource) unless { resource in Database::"hr" };`
		own     = `permit (principal, action, resource) when { resource has database && resource.database == "shop" };`
		drops   = `permit (principal, action == Action::"DropDatabase", resource in Database::"shop");`
		audit   = `permit (principal, action in Action::"manage", resource in Database::"shop") unless { action == Action::"DropCollection" && resource == Collection::"shop.audit" };`
	)
	collections := &mooringv1.ListCollectionsRequest{Database: "shop"}
	drop := &mooringv1.DropDatabaseRequest{Database: "shop"}
	for _, row := range []struct {
		name, rules, method string
		request             proto.Message
		on                  string
		want                bool
	}{
		{"what is left out", payroll, "ListCollections", collections, "shop.payroll", false},
		{"its buckets", payroll, "ListCollections", collections, "shop.system.buckets.payroll", false},
		{"another", payroll, "ListCollections", collections, "shop.a", true},
		{"a permit of the database alone", payroll + all, "ListCollections", collections, "shop.payroll", true},
		{"another database is left out", hr, "ListCollections", collections, "shop.payroll", true},
		{"the own database", own, "ListCollections", collections, "shop.payroll", true},
		{"a database that is left out", hr, "ListDatabases", &mooringv1.ListDatabasesRequest{}, "hr", false},
		{"another database", hr, "ListDatabases", &mooringv1.ListDatabasesRequest{}, "shop", true},
		{"a drop of what is left out", payroll, "DropDatabase", drop, "shop.payroll", false},
		{"a drop of another", payroll, "DropDatabase", drop, "shop.a", true},
		{"by a permit of its own", payroll + drops, "DropDatabase", drop, "shop.payroll", true},
		{"what is left out of drops of collections", audit, "DropDatabase", drop, "shop.audit", false},
		{"another", audit, "DropDatabase", drop, "shop.a", true},
		{"the database by a permit of its own", audit + drops, "DropDatabase", drop, "shop.audit", true},
		{"collections that it may not drop", drops[:len(drops)-1] + ` unless { resource == Collection::"shop.audit" };`, "DropDatabase", drop, "shop.a", true},
	} {
		call := enforcer(t, row.rules).Begin(nil, "/mooring.v1.CatalogService/"+row.method, false)
		if err := call.Check(t.Context(), row.request); err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		database, collection, _ := strings.Cut(row.on, ".")
		inside := call.Inside()
		if got := inside == nil || inside(database, collection) == nil; got != row.want {
			t.Errorf("%s: %s of %s: %t", row.name, row.method, row.on, got)
		}
	}
}

// TestBucketsUnderLimits checks that a limit of a collection holds for its buckets: the limits
// cannot be put into them.
func TestBucketsUnderLimits(t *testing.T) {
	e := enforcer(t, `@hidden("a") permit (principal, action, resource == Collection::"shop.payroll");
		permit (principal, action, resource == Collection::"shop.system.buckets.payroll");`)
	call := e.Begin(nil, "/mooring.v1.DocumentService/Find", false)
	if err := call.Check(t.Context(), &mooringv1.FindRequest{
		Database: "shop", Collection: "system.buckets.payroll",
	}); err == nil {
		t.Error("it reads the buckets in full")
	}
}

// TestBucketsOfOthers checks that the buckets of a time series are refused to a caller who is not
// permitted the series, whatever else is permitted.
func TestBucketsOfOthers(t *testing.T) {
	e := enforcer(t, `permit (principal, action in [Action::"read", Action::"write"], resource in Database::"shop")
		unless { resource == Collection::"shop.payroll" };`)
	for name, want := range map[string]bool{
		"payroll": false, "system.buckets.payroll": false, "a": true, "system.buckets.a": true,
	} {
		for method, m := range map[string]proto.Message{
			"Find":       &mooringv1.FindRequest{Database: "shop", Collection: name},
			"DeleteMany": &mooringv1.DeleteManyRequest{Database: "shop", Collection: name},
		} {
			call := e.Begin(nil, "/mooring.v1.DocumentService/"+method, false)
			if err := call.Check(t.Context(), m); (err == nil) != want {
				t.Errorf("%s of %s: %v, want it allowed: %t", method, name, err, want)
			}
		}
	}
}

// TestBucketsInLists checks that the buckets of a time series are left out where it is.
func TestBucketsInLists(t *testing.T) {
	e := enforcer(t, permitAll+`forbid (principal, action, resource == Collection::"shop.payroll");`)
	call := e.Begin(nil, "/mooring.v1.CatalogService/ListCollections", false)
	if err := call.Check(t.Context(),
		&mooringv1.ListCollectionsRequest{Database: "shop"}); err != nil {
		t.Fatal(err)
	}
	inside := call.Inside()
	for name, want := range map[string]bool{
		"payroll": false, "system.buckets.payroll": false, "a": true, "system.buckets.a": true,
	} {
		if err := inside("shop", name); (err == nil) != want {
			t.Errorf("%s: %v, want it listed: %t", name, err, want)
		}
	}
}

// TestFiltersOfLists checks that a filter of a list cannot tell by an error what a rule leaves out
// of the list.
func TestFiltersOfLists(t *testing.T) {
	const forbid = permitAll +
		`forbid (principal, action, resource in Database::"hr");` +
		`forbid (principal, action, resource == Collection::"shop.payroll");`
	const divide = `{"$expr": {"$divide": [1, {"$cond": [{"$eq": ["$name", "payroll"]}, 0, 1]}]}}`
	for _, row := range []struct {
		name, rules, filter string
		want, quiet         bool
	}{
		{"an expression that can fail", forbid, divide, false, true},
		{"in another", forbid, `{"$or": [` + divide + `]}`, false, true},
		{"in a condition", forbid, `{"info": {"$elemMatch": ` + divide + `}}`, false, true},
		{"JavaScript", forbid, `{"$where": "this.name == 'payroll' && fail"}`, false, true},
		{"one that cannot fail", forbid, `{"$expr": {"$eq": ["$name", "a"]}}`, true, true},
		{"no expression", forbid, `{"name": {"$regex": "^a"}}`, true, true},
		{"nothing is left out", permitAll, divide, true, false},
		{"JavaScript where nothing is", permitAll, `{"$where": "true"}`, true, false},
	} {
		for method, m := range map[string]proto.Message{
			"ListCollections": &mooringv1.ListCollectionsRequest{
				Database: "shop", Filter: document(t, row.filter),
			},
			"ListDatabases": &mooringv1.ListDatabasesRequest{Filter: document(t, row.filter)},
		} {
			e := policy.NewEnforcer(policy.Config{Policy: parse(t, row.rules), JavaScript: true})
			call := e.Begin(nil, "/mooring.v1.CatalogService/"+method, false)
			if err := call.Check(t.Context(), m); (err == nil) != row.want ||
				call.Quiet() != row.quiet {
				t.Errorf("%s: %s: %v, quiet: %t", method, row.name, err, call.Quiet())
			}
		}
	}
}
