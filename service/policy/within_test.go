package policy_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
)

// TestWithin checks that a forbid or a limit of a collection holds for calls on what it is in, and
// on the server's collections that have its documents in them.
func TestWithin(t *testing.T) {
	const wide = `@commands("find") permit (principal, action, resource);`
	watch := func(on string) proto.Message {
		m := &mooringv1.WatchRequest{}
		database, collection, ok := strings.Cut(on, ".")
		if m.Database = database; ok {
			m.Collection = &collection
		}
		return m
	}
	find := func(on string) proto.Message {
		m := &mooringv1.FindRequest{}
		m.Database, m.Collection, _ = strings.Cut(on, ".")
		return m
	}
	command := func(on string) proto.Message {
		return &mooringv1.RunCursorCommandRequest{
			Database: on, Command: document(t, `{"find": "payroll"}`),
		}
	}
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
