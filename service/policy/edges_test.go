package policy_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
)

// TestKeysTwice checks what happens to documents that have a key twice, of which servers and checks
// could take different ones.
func TestKeysTwice(t *testing.T) {
	const rules = `@id("own") @filter("{'t': 'a'}") permit (principal, action, resource == Collection::"d.own");
		@forced("{'t': 'a'}") permit (principal, action, resource == Collection::"d.forced");`
	twice := bson.NewBuilder(nil).String("t", "a").String("t", "b").Finish()
	reversed := bson.NewBuilder(nil).String("t", "b").String("t", "a").Finish()
	set := bson.NewBuilder(nil).OpenDocument("$set").Int32("x", 1).Close().
		OpenDocument("$set").Int32("y", 1).Close().Finish()
	nested := bson.NewBuilder(nil).OpenDocument("$lookup").String("from", "own").
		String("from", "none").
		String("as", "x").OpenArray("pipeline").Close().Close().Finish()
	insert := func(collection string, doc bson.Raw) *mooringv1.InsertOneRequest {
		return &mooringv1.InsertOneRequest{
			Database: "d", Collection: collection, Document: payload.NewDocument(doc),
		}
	}
	find := func(filter bson.Raw) *mooringv1.FindRequest {
		return &mooringv1.FindRequest{
			Database: "d", Collection: "own", Filter: payload.NewDocument(filter),
		}
	}
	for _, row := range []struct {
		name, method string
		request      proto.Message
		becomes      func(proto.Message) *mooringv1.Document
		want         string
	}{
		{"an inserted field of the filter", "InsertOne", insert("own", twice), nil, "refused"},
		{"in the other order", "InsertOne", insert("own", reversed), nil, "refused"},
		{
			"a forced field", "InsertOne", insert("forced", twice),
			func(m proto.Message) *mooringv1.Document { return m.(*mooringv1.InsertOneRequest).Document }, `{"t":"a"}`,
		},
		{
			"a filter's field", "Find", find(twice),
			func(m proto.Message) *mooringv1.Document { return m.(*mooringv1.FindRequest).Filter },
			`{"$and":[{"t":"a"},{"t":"a","t":"b"}]}`,
		},
		{
			"a filter's field in the other order", "Find", find(reversed),
			func(m proto.Message) *mooringv1.Document { return m.(*mooringv1.FindRequest).Filter },
			`{"$and":[{"t":"a"},{"t":"b","t":"a"}]}`,
		},
		{"an operator", "UpdateOne", &mooringv1.UpdateOneRequest{
			Database: "d", Collection: "own", Filter: document(t, `{}`),
			Update: &mooringv1.Update{
				Kind: &mooringv1.Update_Operators{Operators: payload.NewDocument(set)},
			},
		}, nil, "refused"},
		{"a part of a stage", "Aggregate", &mooringv1.AggregateRequest{
			Database: "d", Collection: new("own"),
			Pipeline: []*mooringv1.Document{payload.NewDocument(nested)},
		}, nil, "refused"},
		{"two stages in one", "Aggregate", &mooringv1.AggregateRequest{
			Database: "d", Collection: new("own"),
			Pipeline: []*mooringv1.Document{document(t, `{"$limit": 1, "$out": "x"}`)},
		}, nil, "refused"},
	} {
		call := enforcer(t, rules).Begin(nil, "/mooring.v1.DocumentService/"+row.method, true)
		if err := call.Check(t.Context(), row.request); (err != nil) != (row.want == "refused") {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
			continue
		}
		if row.becomes == nil {
			continue
		}
		got, err := extjson.Append(nil, row.becomes(row.request).GetBson(), extjson.Relaxed)
		if err != nil || string(got) != row.want {
			t.Errorf("%s: %s, %v, want %s", row.name, got, err, row.want)
		}
	}
}

// TestCommandsWrite checks where a listed command may write: wherever a server may read it from.
func TestCommandsWrite(t *testing.T) {
	const rules = `@commands("aggregate, explain, mapReduce, mapreduce")
		permit (principal, action in [Action::"command", Action::"read"], resource);
		permit (principal, action in Action::"write", resource == Collection::"d.archive");
		permit (principal, action, resource == Collection::"d.all");`
	merge := func(fields func(*bson.Builder)) bson.Raw {
		b := bson.NewBuilder(nil).String("aggregate", "archive").OpenArray("pipeline").
			OpenDocument("0").OpenDocument("$merge")
		fields(b)
		return b.Close().Close().Close().OpenDocument("cursor").Close().Finish()
	}
	text := func(json string) bson.Raw { return document(t, json).GetBson() }
	for name, row := range map[string]struct {
		command bson.Raw
		allowed bool
	}{
		"into once": {merge(func(b *bson.Builder) { b.String("into", "archive") }), true},
		"into twice": {merge(func(b *bson.Builder) {
			b.String("into", "archive").String("into", "c")
		}), false},
		"into twice, the first is a document": {merge(func(b *bson.Builder) {
			b.OpenDocument("into").String("coll", "archive").Close().String("into", "c")
		}), false},
		"coll twice": {merge(func(b *bson.Builder) {
			b.OpenDocument("into").String("coll", "archive").String("coll", "c").Close()
		}), false},
		"mapReduce inline":          {text(`{"mapReduce": "c", "out": {"inline": 1}}`), true},
		"mapReduce replaces":        {text(`{"mapReduce": "c", "out": "archive"}`), false},
		"mapReduce may replace":     {text(`{"mapReduce": "c", "out": "all"}`), true},
		"replace":                   {text(`{"mapreduce": "c", "out": {"replace": "archive"}}`), false},
		"mapReduce adds":            {text(`{"mapReduce": "c", "out": {"merge": "archive"}}`), true},
		"mapReduce adds elsewhere":  {text(`{"mapReduce": "c", "out": {"reduce": "c"}}`), false},
		"in another database":       {text(`{"mapReduce": "c", "out": {"merge": "archive", "db": "e"}}`), false},
		"two collections":           {text(`{"mapReduce": "c", "out": {"merge": "archive", "reduce": "all"}}`), false},
		"an empty database":         {text(`{"mapReduce": "c", "out": {"merge": "archive", "db": ""}}`), false},
		"an empty name":             {text(`{"mapReduce": "c", "out": ""}`), false},
		"an old name of replace":    {text(`{"mapReduce": "c", "out": {"normal": "all"}}`), false},
		"inline beside it":          {text(`{"mapReduce": "c", "out": {"inline": 1, "normal": "c"}}`), false},
		"inline beside a target":    {text(`{"mapReduce": "c", "out": {"inline": 1, "merge": "c"}}`), false},
		"options of old servers":    {text(`{"mapReduce": "c", "out": {"merge": "archive", "sharded": true, "nonAtomic": true}}`), true},
		"a number":                  {text(`{"mapReduce": "c", "out": 1}`), false},
		"a mapReduce that explains": {text(`{"explain": {"mapReduce": "c", "out": "c"}}`), false},
		"out twice": {bson.NewBuilder(nil).String("mapReduce", "c").
			OpenDocument("out").Int32("inline", 1).Close().String("out", "c").Finish(), false},
	} {
		e := policy.NewEnforcer(policy.Config{Policy: parse(t, rules), JavaScript: true})
		call := e.Begin(nil, "/mooring.v1.CommandService/RunCommand", true)
		err := call.Check(t.Context(),
			&mooringv1.RunCommandRequest{Database: "d", Command: payload.NewDocument(row.command)})
		if (err == nil) != row.allowed {
			t.Errorf("%s: %v, want allowed: %t", name, err, row.allowed)
		}
	}
}

// TestParts checks that one part of a request that is not allowed refuses the request, wherever it
// stands, and says what it is.
func TestParts(t *testing.T) {
	find := func(collection string) *mooringv1.TransactionOperation {
		return &mooringv1.TransactionOperation{Operation: &mooringv1.TransactionOperation_FindOne{
			FindOne: &mooringv1.FindOneRequest{Database: "d", Collection: collection},
		}}
	}
	run := func(ops ...*mooringv1.TransactionOperation) proto.Message {
		return &mooringv1.TransactionServiceRunRequest{Operations: ops}
	}
	function := document(t, `{"x": {"$function": {"body": "1", "args": [], "lang": "js"}}}`)
	name := "d.c"
	for _, row := range []struct {
		name, method    string
		request         proto.Message
		action, because string
	}{
		{"the first operation", "TransactionService/Run", run(find("no"), find("c")), "FindOne", "d.no"},
		{"the last operation", "TransactionService/Run", run(find("c"), find("no")), "FindOne", "d.no"},
		{"no operation", "TransactionService/Run", run(find("c"), find("c")), "", ""},
		{"JavaScript in a stage", "DocumentService/Aggregate", aggregate(wrap("$project", function.GetBson())), "Aggregate", "JavaScript"},
		{"JavaScript in a stage about a whole collection", "DocumentService/Aggregate", aggregate(wrap("$search", function.GetBson())), "Aggregate", "JavaScript"},
		{"JavaScript in a filter", "DocumentService/FindOne", &mooringv1.FindOneRequest{
			Database: "d", Collection: "c",
			Filter: payload.NewDocument(wrap("$expr", function.GetBson())),
		}, "FindOne", "JavaScript"},
		{"JavaScript in a variable", "DocumentService/BulkWrite", &mooringv1.BulkWriteRequest{
			Let: function, Models: []*mooringv1.WriteModel{{
				Namespace: &name, Kind: &mooringv1.WriteModel_InsertOne{InsertOne: &mooringv1.InsertOneModel{Document: document(t, `{}`)}},
			}},
		}, "BulkWrite", "JavaScript"},
		{"an etag", "DocumentResourceService/PutDocument", &mooringv1.PutDocumentRequest{
			Database: "d", Collection: "c", IfMatch: []string{`"x"`},
			Replacement: document(t, `{}`),
		}, "", ""},
		{"an update without its form", "DocumentService/UpdateOne", &mooringv1.UpdateOneRequest{
			Database: "d", Collection: "c",
			Update: &mooringv1.Update{Kind: &mooringv1.Update_Operators{}},
		}, "", ""},
	} {
		e := enforcer(t,
			`permit (principal, action in [Action::"read", Action::"write"], resource == Collection::"d.c");`)
		call := e.Begin(nil, "/mooring.v1."+row.method, true)
		err := call.Check(t.Context(), row.request)
		refusal, ok := errors.AsType[*policy.Refusal](err)
		switch {
		case row.action == "" && err != nil:
			t.Errorf("%s: %v", row.name, err)
		case row.action != "" &&
			(!ok || refusal.Action != row.action ||
				!strings.Contains(refusal.Error(), row.because)):
			t.Errorf("%s: %v, want %s and %s", row.name, err, row.action, row.because)
		}
		if m, ok := row.request.(*mooringv1.UpdateOneRequest); ok &&
			m.GetUpdate().GetOperators() != nil {
			t.Errorf("%s: it becomes %v", row.name, m)
		}
	}
}

// TestNumbers checks which numbers of claims are values of a filter.
func TestNumbers(t *testing.T) {
	p := parse(t, `@id("1") @filter("{'n': {'$claim': 'n'}}")`+permitAll)
	for _, row := range []struct {
		claim any
		want  string
	}{
		{5, `1 filter {"n":5}`},
		{int64(6), `1 filter {"n":6}`},
		{7.0, `1 filter {"n":7}`},
		{7.5, `1 filter {"n":7.5}`},
		{nil, "refused no rule"},
		{map[string]any{"$gt": 1}, "refused no rule"},
	} {
		d := p.Decide(&policy.Principal{Name: "key:a", Claims: map[string]any{"n": row.claim}},
			"Find", policy.Resource{Database: "d", Collection: "c"})
		if got := shown(t, &d); got != row.want {
			t.Errorf("%v: %s, want %s", row.claim, got, row.want)
		}
	}
}

// TestClaimsInConditions checks what a condition sees of each kind of claim.
func TestClaimsInConditions(t *testing.T) {
	claims := map[string]any{
		"text": "x", "yes": true, "no": false, "five": 5.0, "half": 0.5, "nothing": nil,
		"list": []any{"x", nil, "y"}, "numbers": []any{1.0, 2.0}, "empty": []any{},
		"object": map[string]any{"a": map[string]any{"b": "c"}},
	}
	for condition, want := range map[string]bool{
		`principal.claims has text && principal.claims.text == "x"`:                  true,
		`principal.claims has yes && principal.claims.yes`:                           true,
		`principal.claims has no && principal.claims.no`:                             false,
		`principal.claims has no && !principal.claims.no`:                            true,
		`principal.claims has five && principal.claims.five == 5`:                    true,
		`principal.claims has five && principal.claims.five > 5`:                     false,
		`principal.claims has half`:                                                  false,
		`principal.claims has nothing`:                                               false,
		`principal.claims has list && principal.claims.list.contains("y")`:           true,
		`principal.claims has list && principal.claims.list.containsAll(["x", "y"])`: true,
		`principal.claims has list && principal.claims.list.contains("z")`:           false,
		`principal.claims has numbers && principal.claims.numbers.contains(2)`:       true,
		`principal.claims has empty && principal.claims.empty.isEmpty()`:             true,
		`principal.claims has object.a.b && principal.claims.object.a.b == "c"`:      true,
		`principal.claims has object.b`:                                              false,
	} {
		p := parse(t, "permit (principal, action, resource) when { "+condition+" };")
		d := p.Decide(&policy.Principal{Name: "jwt:ann", Claims: claims}, "Find",
			policy.Resource{Database: "d", Collection: "c"})
		if d.Allowed != want {
			t.Errorf("%s: %t", condition, d.Allowed)
		}
	}
}
