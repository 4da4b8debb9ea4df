package policy_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
)

const permitAll = `permit (principal, action, resource);`

func parse(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func enforcer(t testing.TB, text string) *policy.Enforcer {
	t.Helper()
	return policy.NewEnforcer(policy.Config{Policy: parse(t, text)})
}

func document(t testing.TB, json string) *mooringv1.Document {
	t.Helper()
	raw, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatal(err)
	}
	return payload.NewDocument(raw)
}

func TestParse(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"nothing", "", "no rule"},
		{"not valid Cedar", "permit", "not valid Cedar"},
		{"unknown annotation", "\n" + `@filtre("{'a': 1}")` + permitAll, "line 2: @filtre: is not known"},
		{"id twice", `@id("a")` + permitAll + `@id("a")` + permitAll, `another rule has the id "a"`},
		{"id of our own", `@id("own handles")` + permitAll, "another rule"},
		{"empty id", `@id("")` + permitAll, "is empty"},
		{"filter that is not JSON", `@filter("a == 1")` + permitAll, "@filter"},
		{"empty filter", `@filter("{}")` + permitAll, "is empty"},
		{"operator", `@filter("{'a': {'$regex': 'x'}}")` + permitAll, "$regex"},
		{"operator of the top level", `@filter("{'$where': 'x'}")` + permitAll, "$where"},
		{"nested operator", `@filter("{'$and': [{'$expr': 1}]}")` + permitAll, "$expr"},
		{"$and without filters", `@filter("{'$and': []}")` + permitAll, "must be an array"},
		{"$or with an empty one", `@filter("{'$or': [{}]}")` + permitAll, "not a filter"},
		{"document", `@filter("{'a': {'b': 1}}")` + permitAll, `"b"`},
		{"array", `@filter("{'a': [1]}")` + permitAll, "array"},
		{"$in", `@filter("{'a': {'$in': 1}}")` + permitAll, "$in"},
		{"$in of documents", `@filter("{'a': {'$in': [{'b': 1}]}}")` + permitAll, "is not allowed here"},
		{"$gt of an array", `@filter("{'a': {'$gt': [1]}}")` + permitAll, "is not allowed here"},
		{"$exists", `@filter("{'a': {'$exists': 1}}")` + permitAll, "$exists"},
		{"path with a position", `@filter("{'a.0': 1}")` + permitAll, "a.0"},
		{"hidden _id", `@hidden("_id")` + permitAll, "_id"},
		{"hidden part of the _id", "\n" + `@hidden("a, _id.b")` + permitAll, `line 2: @hidden: "_id.b" cannot be hidden`},
		{"hidden position", `@hidden("a.$[].b")` + permitAll, "not a name"},
		{"nothing hidden", `@hidden("")` + permitAll, "empty"},
		{"forced path", `@forced("{'a.b': 1}")` + permitAll, "a.b"},
		{"forced document", `@forced("{'a': {'b': 1}}")` + permitAll, "is not allowed here"},
		{"any command", `@commands("*")` + permitAll, "not a name"},
		{"commands under a filter", `@commands("ping") @hidden("a")` + permitAll, "@commands"},
		{"forbid with a filter", `@filter("{'a': 1}") forbid (principal, action, resource);`, "forbid"},
	} {
		_, err := policy.Parse([]byte(row.text))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: error %v, want %s", row.name, err, row.want)
		}
	}
	if n := parse(t, permitAll+permitAll).Len(); n != 2 {
		t.Errorf("%d rules, want 2", n)
	}
}

// TestEveryMethod checks that each method of the API has an action: a new one without is refused
// under a policy that permits everything.
func TestEveryMethod(t *testing.T) {
	e := enforcer(t, `@commands("ping")`+permitAll)
	none := enforcer(t, `permit (principal == Principal::"key:none", action, resource);`)
	methods := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("mooring.v1", func(
		f protoreflect.FileDescriptor,
	) bool {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			for j := range service.Methods().Len() {
				methods++
				m := service.Methods().Get(j)
				name := "/" + string(service.FullName()) + "/" + string(m.Name())
				input, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
				if err != nil {
					t.Fatal(err)
				}
				call := e.Begin(nil, name, false)
				if err := call.Check(t.Context(), input.New().Interface()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				refused := none.Begin(nil, name, false)
				request := input.New()
				fillNested(request)
				err = refused.Check(t.Context(), request.Interface())
				if own := ownMethods[name]; (err == nil) != own {
					t.Errorf("%s: without a rule: %v", name, err)
				}
			}
		}
		return true
	})
	if methods < 40 {
		t.Errorf("%d methods", methods)
	}
}

// ownMethods lists the methods that need no rule: they go on with what the client has opened.
var ownMethods = map[string]bool{
	"/mooring.v1.CursorService/NextPage":    true,
	"/mooring.v1.CursorService/Stream":      true,
	"/mooring.v1.CursorService/CloseCursor": true,
	"/mooring.v1.SessionService/Start":      true,
	"/mooring.v1.SessionService/End":        true,

	"/mooring.v1.TransactionService/Begin":  true,
	"/mooring.v1.TransactionService/Commit": true,
	"/mooring.v1.TransactionService/Abort":  true,
}

// fillNested puts a request, or a write, into the fields of a message that take some.
func fillNested(m protoreflect.Message) {
	if bulk, ok := m.Interface().(*mooringv1.BulkWriteRequest); ok {
		bulk.Models = []*mooringv1.WriteModel{{
			Kind: &mooringv1.WriteModel_InsertOne{InsertOne: &mooringv1.InsertOneModel{}},
		}}
		return
	}
	fields := m.Descriptor().Fields()
	if fd := fields.ByName("operations"); fd != nil && fd.IsList() {
		element := m.Mutable(fd).List().AppendMutable().Message()
		element.Mutable(element.Descriptor().Fields().ByName("find_one"))
	}
	if fd := fields.ByName("watch"); fd != nil && fd.Kind() == protoreflect.MessageKind {
		m.Mutable(fd)
	}
}

func TestUnknownMethod(t *testing.T) {
	e := enforcer(t, permitAll)
	for _, name := range []string{"/mooring.v1.DocumentService/New", "/other.v1.Service/Find", ""} {
		call := e.Begin(nil, name, false)
		if _, ok := errors.AsType[*policy.Refusal](call.Check(t.Context(),
			&mooringv1.FindRequest{})); !ok {
			t.Errorf("%q is not refused", name)
		}
	}
}

// TestEveryField checks that a policy reads each field of each request as what it is.
func TestEveryField(t *testing.T) {
	for _, rule := range []string{permitAll, `@hidden("a")` + permitAll} {
		e := enforcer(t, rule)
		for _, m := range method.All() {
			input, err := protoregistry.GlobalTypes.FindMessageByName(m.Descriptor.Input().
				FullName())
			if err != nil {
				t.Fatal(err)
			}
			for i := range m.Descriptor.Input().Fields().Len() {
				request, fd := input.New(), input.Descriptor().Fields().Get(i)
				v := request.NewField(fd)
				switch {
				case fd.IsList():
					v.List().Append(v.List().NewElement())
				case fd.HasPresence():
				case fd.Kind() == protoreflect.StringKind:
					v = protoreflect.ValueOfString("x")
				}
				request.Set(fd, v)
				call := e.Begin(nil, m.Name, false)
				_ = call.Check(t.Context(), request.Interface())
			}
		}
	}
}

// TestNewField checks that a field that the policy does not know is refused under limits, and only
// there.
func TestNewField(t *testing.T) {
	for _, row := range []struct {
		rule    string
		refused bool
	}{{`@hidden("a")` + permitAll, true}, {permitAll, false}} {
		e := enforcer(t, row.rule)
		call := e.Begin(nil, "/mooring.v1.DocumentService/Find", false)
		err := call.Check(t.Context(), dynamic(t))
		if (err != nil) != row.refused {
			t.Errorf("%s: %v", row.rule, err)
		}
	}
}

// dynamic returns a message with a field that no request has.
func dynamic(t *testing.T) proto.Message {
	t.Helper()
	m := dynamicpb.NewMessage((&mooringv1.WriteError{}).ProtoReflect().Descriptor())
	m.Set(m.Descriptor().Fields().ByName("index"), protoreflect.ValueOfInt64(1))
	return m
}

// TestForeignMessage checks that a message that is none of the API is checked, too.
func TestForeignMessage(t *testing.T) {
	e := enforcer(t,
		`@forced("{'x': 1}") permit (principal, action, resource == Collection::"d.c");`)
	call := e.Begin(nil, "/mooring.v1.DocumentService/Import", false)
	if err := call.Check(t.Context(),
		&mooringv1.ImportRequest{Database: "d", Collection: "c"}); err != nil {
		t.Fatal(err)
	}
	refusal, ok := errors.AsType[*policy.Refusal](call.Check(t.Context(), wrapperspb.String("x")))
	if !ok || refusal.Field != "value" || !strings.Contains(refusal.Problem, "does not support") {
		t.Errorf("refusal %#v", refusal)
	}
}

func TestReplace(t *testing.T) {
	e := enforcer(t, permitAll)
	find := func() error {
		call := e.Begin(&caller.Identity{Principal: "key:a"}, "/mooring.v1.DocumentService/Find",
			false)
		return call.Check(t.Context(), &mooringv1.FindRequest{Database: "d", Collection: "c"})
	}
	if err := find(); err != nil {
		t.Error(err)
	}
	e.Replace(parse(t, `@id("shut") forbid (principal, action, resource);`))
	refusal, ok := errors.AsType[*policy.Refusal](find())
	if !ok || refusal.Rule != "shut" || refusal.Principal != "key:a" ||
		strings.Contains(refusal.Error(), "shut") {
		t.Errorf("refusal %#v", refusal)
	}
}

// TestImport checks that later messages of a stream have the limits of the first.
func TestImport(t *testing.T) {
	e := enforcer(t,
		`@forced("{'x': 1}") permit (principal, action, resource == Collection::"d.c");`)
	call := e.Begin(nil, "/mooring.v1.DocumentService/Import", false)
	for _, request := range []*mooringv1.ImportRequest{
		{Database: "d", Collection: "c", Documents: []*mooringv1.Document{document(t, `{"x":2}`)}},
		{Documents: []*mooringv1.Document{document(t, `{"y":2}`)}},
		{Database: "other", Collection: "c", Documents: []*mooringv1.Document{document(t, `{}`)}}, // the service refuses it
	} {
		if err := call.Check(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		v, _ := bson.Raw(request.Documents[0].GetBson()).Lookup("x")
		if !v.Equal(bson.Int32Value(1)) {
			t.Errorf("it inserts %v", request.Documents[0])
		}
	}
	if !call.Quiet() {
		t.Error("it is not quiet")
	}
}

// TestManyResources checks that the decisions that are remembered are limited, and stay right.
func TestManyResources(t *testing.T) {
	e := enforcer(t, `permit (principal, action, resource)
		when { resource has collection && resource.collection like "a*" };`)
	most := 0
	for i := range 25_000 {
		name := string(rune('a'+i%2)) + strings.Repeat("x", i%97) + string(rune('0'+i%10)) +
			strings.Repeat("y", i/200)
		call := e.Begin(nil, "/mooring.v1.DocumentService/Find", false)
		err := call.Check(t.Context(), &mooringv1.FindRequest{Database: "d", Collection: name})
		if (err == nil) != (name[0] == 'a') {
			t.Fatalf("%s: %v", name, err)
		}
		if n := e.Remembered(); n == 0 || n > 10_000 {
			t.Fatalf("%d decisions are remembered after %d questions", n, i+1)
		}
		most = max(most, e.Remembered())
	}
	if most != 10_000 {
		t.Errorf("%d decisions were remembered at most", most)
	}
}

// TestEqualIdentities checks that decisions are remembered by what identities say: a call that
// another replica forwards has an identity of its own. Identities that differ share none.
func TestEqualIdentities(t *testing.T) {
	e := enforcer(t, `
		permit (principal == Principal::"key:a", action, resource);
		permit (principal in Group::"key:g", action, resource);
		permit (principal, action, resource) when { principal.claims has c && principal.claims.c == "1" };`)
	check := func(id *caller.Identity) bool {
		call := e.Begin(id, "/mooring.v1.DocumentService/Find", false)
		return call.Check(t.Context(),
			&mooringv1.FindRequest{Database: "d", Collection: "c"}) == nil
	}
	for range 100 {
		for name, row := range map[string]struct {
			id   *caller.Identity
			want bool
		}{
			"a principal":     {&caller.Identity{Principal: "key:a"}, true},
			"another":         {&caller.Identity{Principal: "key:b"}, false},
			"a group":         {&caller.Identity{Principal: "key:b", Groups: []string{"key:g"}}, true},
			"another group":   {&caller.Identity{Principal: "key:b", Groups: []string{"key:h"}}, false},
			"a claim":         {&caller.Identity{Principal: "key:b", Claims: map[string]any{"c": "1", "d": 2.0}}, true},
			"a number":        {&caller.Identity{Principal: "key:b", Claims: map[string]any{"c": 1.0, "d": 2.0}}, false},
			"another's claim": {&caller.Identity{Principal: "key:b", Claims: map[string]any{"d": 2.0}}, false},
		} {
			id := &caller.Identity{
				Principal: row.id.Principal, Groups: row.id.Groups, Claims: row.id.Claims,
			}
			if got := check(id); got != row.want {
				t.Fatalf("%s: permitted %t", name, got)
			}
		}
	}
	if n := e.Remembered(); n != 7 {
		t.Errorf("%d decisions about 7 identities are remembered", n)
	}
}

// TestGroups checks which groups of actions there are.
func TestGroups(t *testing.T) {
	for _, row := range []struct{ group, method string }{
		{"read", "DocumentService/Find"},
		{"write", "DocumentService/FindOneAndUpdate"},
		{"describe", "CatalogService/ListIndexes"},
		{"manage", "CatalogService/DropDatabase"},
		{"operate", "DeploymentService/KillHandle"},
	} {
		e := enforcer(t, `permit (principal, action in Action::"`+row.group+`", resource);`)
		for _, name := range []string{
			"DocumentService/Find", "DocumentService/FindOneAndUpdate", "CatalogService/ListIndexes",
			"CatalogService/DropDatabase", "DeploymentService/KillHandle",
		} {
			m := method.Of("/mooring.v1." + name)
			kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Descriptor.Input().
				FullName())
			if err != nil {
				t.Fatal(err)
			}
			call := e.Begin(nil, m.Name, false)
			if err := call.Check(t.Context(),
				kind.New().Interface()); (err == nil) != (name == row.method) {
				t.Errorf("group %s, %s: %v", row.group, name, err)
			}
		}
	}
}

// TestQuiet checks of which calls the server's words are kept from the client.
func TestQuiet(t *testing.T) {
	e := enforcer(t, `permit (principal, action, resource == Collection::"d.all");
		@filter("{'a': 1}") permit (principal == Principal::"key:some", action, resource in Database::"some");`)
	find := func(who, collection string, pipeline ...string) policy.Call {
		call := e.Begin(&caller.Identity{Principal: who}, "/mooring.v1.DocumentService/Aggregate",
			false)
		request := &mooringv1.AggregateRequest{Collection: &collection}
		request.Database, *request.Collection, _ = strings.Cut(collection, ".")
		for _, s := range pipeline {
			request.Pipeline = append(request.Pipeline, document(t, s))
		}
		if err := call.Check(t.Context(), request); err != nil {
			t.Error(err)
		}
		return call
	}
	for _, who := range []string{"key:some", "key:other"} {
		if call := find(who, "d.all"); call.Quiet() {
			t.Errorf("%s reads all: quiet", who)
		}
		next := e.Begin(&caller.Identity{Principal: who}, "/mooring.v1.CursorService/NextPage",
			false)
		if err := next.Check(t.Context(), &mooringv1.NextPageRequest{}); err != nil ||
			next.Quiet() != (who == "key:some") {
			t.Errorf("%s asks for a page: %v, quiet %v", who, err, next.Quiet())
		}
	}
	if call := find("key:some", "some.c"); !call.Quiet() {
		t.Error("under a filter: not quiet")
	}
	e = enforcer(t, permitAll+`forbid (principal, action, resource == Collection::"d.hidden");`)
	for _, on := range []string{"d", "other"} {
		call := e.Begin(nil, "/mooring.v1.ChangeStreamService/Watch", false)
		if err := call.Check(t.Context(), &mooringv1.WatchRequest{Database: on}); err != nil ||
			call.Quiet() != (on == "d") {
			t.Errorf("the changes of %s: %v, quiet %v", on, err, call.Quiet())
		}
	}
}

func TestMalformed(t *testing.T) {
	e := enforcer(t, `@filter("{'a': 1}")`+permitAll)
	broken := &mooringv1.Document{
		Encoding: &mooringv1.Document_Bson{Bson: []byte{9, 0, 0, 0, 2, 'a', 0, 1, 0}},
	}
	for name, request := range map[string]*mooringv1.FindRequest{
		"BSON": {Filter: broken},
		"JSON": {Filter: &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: `{"a": `}}},
		"sort": {Sort: &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: `[["a"]]`}}},
	} {
		request.Database, request.Collection = "d", "c"
		call := e.Begin(nil, "/mooring.v1.DocumentService/Find", false)
		if _, ok := errors.AsType[*payload.Error](call.Check(t.Context(), request)); !ok {
			t.Errorf("%s: it is not malformed", name)
		}
	}
	for method, request := range map[string]proto.Message{
		"InsertOne": &mooringv1.InsertOneRequest{Database: "d", Collection: "c", Document: broken},
		"InsertMany": &mooringv1.InsertManyRequest{
			Database: "d", Collection: "c", Documents: []*mooringv1.Document{broken},
		},
	} {
		call := e.Begin(nil, "/mooring.v1.DocumentService/"+method, false)
		if _, ok := errors.AsType[*payload.Error](call.Check(t.Context(), request)); !ok {
			t.Errorf("%s: it is not malformed", method)
		}
	}
	call := e.Begin(nil, "/mooring.v1.DocumentService/DeleteMany", false)
	if _, ok := errors.AsType[*payload.Error](call.Check(t.Context(),
		&mooringv1.DeleteManyRequest{Database: "d", Collection: "c"})); !ok {
		t.Error("a delete without a filter is not refused as one")
	}
}
