package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/policy"
)

// taken returns an enforcer and what it has allowed the client without a credential.
func taken(
	t *testing.T, text, method string, requests ...proto.Message,
) (*policy.Enforcer, *policy.Grounds) {
	t.Helper()
	e, g := enforcer(t, text), &policy.Grounds{}
	for _, m := range requests {
		call := e.Begin(nil, "/mooring.v1."+method, true)
		call.Keep(g)
		if err := call.Check(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	return e, g
}

// TestGroundsOfManyRequests checks that a call keeps what its first requests were allowed by, so
// that rules about others change nothing. Of more than that any change of the rules counts.
func TestGroundsOfManyRequests(t *testing.T) {
	for kinds, goesOn := range map[int]bool{1: true, 1001: true, 1002: false} {
		var requests []proto.Message
		for i := range kinds {
			requests = append(requests,
				&mooringv1.FindRequest{Database: "db", Collection: fmt.Sprint("c", i)})
		}
		e, g := taken(t, permitAll, "DocumentService/Find", requests...)
		if err := e.Still(nil, g); err != nil {
			t.Errorf("%d kinds, under the same rules: %v", kinds, err)
		}
		e.Replace(parse(t,
			permitAll+`forbid (principal, action, resource == Collection::"db.other");`))
		if err := e.Still(nil, g); (err == nil) != goesOn {
			t.Errorf("%d kinds, under rules about others: %v", kinds, err)
		}
		e.Replace(parse(t,
			permitAll+`forbid (principal, action, resource == Collection::"db.c0");`))
		if err := e.Still(nil, g); err == nil {
			t.Errorf("%d kinds: no error although the first is forbidden", kinds)
		}
	}
}

// TestGroundsOfCommands checks that what a command has opened ends as soon as a rule forbids or
// limits the use of a collection, wherever that is, and that the log has the rule.
func TestGroundsOfCommands(t *testing.T) {
	const listed = `@commands("find") permit (principal, action, resource);`
	e, g := taken(t, listed, "CommandService/RunCursorCommand", &mooringv1.RunCursorCommandRequest{
		Database: "db",
		Command:  &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: `{"find": "c"}`}},
	})
	if err := e.Still(nil, g); err != nil {
		t.Errorf("under the same rules: %v", err)
	}
	e.Replace(parse(t,
		listed+
			`@id("shut") forbid (principal, action in Action::"read", resource == Collection::"other.c");`))
	err := e.Still(nil, g)
	if r, ok := errors.AsType[*policy.Refusal](err); !ok || r.Rule != "shut" ||
		r.Action != "RunCommand" {
		t.Errorf("under a forbid of another collection: %#v", err)
	}
}

// TestGroundsOfLists checks that the next pages of a list are refused as soon as the rules change:
// they could forbid what is in it.
func TestGroundsOfLists(t *testing.T) {
	for method, m := range map[string]proto.Message{
		"ListCollections": &mooringv1.ListCollectionsRequest{Database: "db"},
		"ListDatabases":   &mooringv1.ListDatabasesRequest{},
	} {
		e, g := taken(t, permitAll, "CatalogService/"+method, m)
		if err := e.Still(nil, g); err != nil {
			t.Errorf("%s under the same rules: %v", method, err)
		}
		e.Replace(parse(t, permitAll+`forbid (principal, action, resource == Collection::"db.c");`))
		if err := e.Still(nil, g); err == nil {
			t.Errorf("%s: no error although a rule forbids a collection", method)
		}
	}
}

// TestGroundsOfRenewedTokens checks that the next pages of a list go on with another token that
// says the same to the rules, and are refused to one that does not.
func TestGroundsOfRenewedTokens(t *testing.T) {
	e := enforcer(t, `permit (principal, action, resource) when { principal.claims has db };
		@filter("{'tenant': {'$claim': 'of.tenant'}}") permit (principal, action, resource in Database::"a");
		@forced("{'team': {'$claim': 'team'}}") permit (principal, action, resource in Database::"a");
		@filter("{'role': {'$in': {'$claim': 'roles'}}}") permit (principal, action, resource in Database::"c");
		permit (principal, action, resource) when { principal.claims has roles && principal.claims.roles.contains("r") };`)
	token := func(changes ...any) *caller.Identity {
		claims := map[string]any{
			"db": "a", "of": map[string]any{"tenant": "x", "n": 1}, "team": "y", "exp": 1, "jti": "p",
			"roles": []any{"r", "s"},
		}
		for i := 0; i < len(changes); i += 2 {
			claims[changes[i].(string)] = changes[i+1]
		}
		return &caller.Identity{
			Principal: "jwt:ann", Groups: []string{"jwt:g", "jwt:h"}, Claims: claims,
		}
	}
	var g policy.Grounds
	call := e.Begin(token(), "/mooring.v1.CatalogService/ListDatabases", true)
	call.Keep(&g)
	if err := call.Check(t.Context(), &mooringv1.ListDatabasesRequest{}); err != nil {
		t.Fatal(err)
	}
	withGroups := func(groups ...string) *caller.Identity {
		who := token()
		who.Groups = groups
		return who
	}
	for name, row := range map[string]struct {
		who  *caller.Identity
		want bool
	}{
		"the same":                         {token(), true},
		"a renewed one":                    {token("exp", 2, "jti", "q", "iat", 1), true},
		"a claim of a condition":           {token("db", "b"), false},
		"a claim of a filter":              {token("of", map[string]any{"tenant": "z"}), false},
		"a claim beside it":                {token("of", map[string]any{"tenant": "x"}), true},
		"a claim of forced values":         {token("team", "z"), false},
		"without a claim of forced values": {token("team", nil), false},
		"no groups":                        {withGroups(), false},
		"other groups":                     {withGroups("jwt:g", "jwt:i"), false},
		"groups in another order":          {withGroups("jwt:h", "jwt:g"), true},
		"one of them twice":                {withGroups("jwt:h", "jwt:g", "jwt:h"), true},
		"one in place of two":              {withGroups("jwt:g jwt:h"), false},
		"a set in another order":           {token("roles", []any{"s", "r"}), true},
		"one of the set twice":             {token("roles", []any{"s", "r", "s"}), true},
		"another set":                      {token("roles", []any{"r"}), false},
		"a text in place of a set":         {token("roles", "rs"), false},
	} {
		if err := e.Still(row.who, &g); (err == nil) != row.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMistakesAreAllTold checks that each mistake of a rule is told, and each time the same is said
// of a name that is as near to one action as to another.
func TestMistakesAreAllTold(t *testing.T) {
	said := func(text string) string {
		_, err := policy.Parse([]byte(text))
		if err == nil {
			t.Fatalf("%s is taken", text)
		}
		return err.Error()
	}
	both := said("forbid (principal, action, resource)\nwhen { principal.knd == \"key\" " +
		"&&\nprincipal.nam == \"a\" };")
	if !strings.Contains(both, "write kind") || !strings.Contains(both, "write name") {
		t.Errorf("of two mistakes it says %q", both)
	}
	const text = `forbid (principal, action == Action::"XFindOneAnd", resource);`
	first := said(text)
	for range 50 {
		if again := said(text); again != first {
			t.Fatalf("%q, and then %q", first, again)
		}
	}
}

// finds returns requests on so many collections, whose names have a length.
func finds(n, length int) (requests []proto.Message) {
	for i := range n {
		requests = append(requests, &mooringv1.FindRequest{
			Database: "db", Collection: fmt.Sprintf("c%0*d", length-1, i),
		})
	}
	return requests
}

// TestGroundsElsewhere checks that grounds that another replica gets, of more decisions than a call
// holds, obey both: its rules must be those that the first replica had.
func TestGroundsElsewhere(t *testing.T) {
	for name, requests := range map[string][]proto.Message{
		"many": finds(1100, 8), "long names": finds(500, 200), "a very long name": finds(1, 5000),
		"a longer one than servers have": finds(1, 256),
	} {
		_, g := taken(t, permitAll, "DocumentService/Find", requests...)
		text := g.Text()
		if n := len(text); n > 48<<10 {
			t.Errorf("%s: the grounds have %d bytes", name, n)
		}
		var got policy.Grounds
		if err := got.Add(text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for rules, goesOn := range map[string]bool{
			permitAll: true, permitAll + `forbid (principal, action, resource in Database::"other");`: false,
			`@hidden("x")` + permitAll: false,
		} {
			if err := enforcer(t, rules).Still(nil, &got); (err == nil) != goesOn {
				t.Errorf("%s, where the rules are %s: %v", name, rules, err)
			}
		}
	}
	_, g := taken(t, permitAll, "DocumentService/Find", finds(1, 255)...)
	if err := enforcer(t, permitAll+permitAll).Still(nil, g); err != nil {
		t.Errorf("the longest name that servers have: %v", err)
	}
}

// TestGroundsOfTwoWorlds adds the grounds of two calls, each with more decisions than a call holds,
// between which the rules have changed. They hold under neither rules: each forbids what the other
// may have allowed.
func TestGroundsOfTwoWorlds(t *testing.T) {
	const other = permitAll + `forbid (principal, action, resource == Collection::"db.c0001099");`
	_, first := taken(t, permitAll, "DocumentService/Find", finds(1100, 8)...)
	_, second := taken(t, other, "DocumentService/Find", finds(1099, 8)...)
	var g policy.Grounds
	for range 2 {
		for _, text := range []string{first.Text(), second.Text()} {
			if err := g.Add(text); err != nil {
				t.Fatal(err)
			}
		}
		for _, rules := range []string{permitAll, other} {
			if err := enforcer(t, rules).Still(nil, &g); err == nil {
				t.Errorf("%s: what was allowed under two kinds of rules goes on", rules)
			}
		}
	}
}
