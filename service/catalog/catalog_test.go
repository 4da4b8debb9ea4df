package catalog_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var doc = servicetest.JSON

func text(s string) *mooringv1.Value {
	return &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: `"` + s + `"`}}
}

func hint(name string) *mooringv1.Hint {
	return &mooringv1.Hint{Kind: &mooringv1.Hint_Name{Name: name}}
}

// raw reads Extended JSON.
func raw(t *testing.T, json string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func answer(t *testing.T, json string) fakemongo.Handler {
	t.Helper()
	return fakemongo.Always(fakemongo.Document(raw(t, json)))
}

func start(t *testing.T, handlers fakemongo.Handlers) *servicetest.Gateway {
	t.Helper()
	return servicetest.Start(t, fakemongo.NewServer(t, handlers), servicetest.Config{})
}

// sent is the last command of that name, without what does not matter.
func sent(t *testing.T, g *servicetest.Gateway, name string) string {
	t.Helper()
	commands := g.Server.Commands(name)
	if len(commands) == 0 {
		t.Fatalf("no %s was sent", name)
	}
	body := bson.Without(commands[len(commands)-1].Body, "$db", "lsid", "txnNumber")
	out, err := extjson.Append(nil, body, extjson.Relaxed)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// every is a request of an RPC, the command that it becomes, and that of a request with every
// option.
type every struct {
	command    string
	plain      string
	call       func(context.Context, mooringv1.CatalogServiceClient) (proto.Message, error)
	whole      string
	withAll    func(context.Context, mooringv1.CatalogServiceClient) (proto.Message, error)
	want       string // what the response has, as text
	inDatabase string // where the command runs; d unless set
}

func TestEveryRPC(t *testing.T) {
	const d, c = "d", "c"
	yes, n64, n32 := new(true), new(int64(7)), new(int32(8))
	wc := &mooringv1.WriteConcern{W: &mooringv1.W{Kind: &mooringv1.W_Tag{Tag: "majority"}}}
	comment, more := text("hi"), doc(`{"future": 1}`)
	type ctx = context.Context
	type api = mooringv1.CatalogServiceClient
	const end = `"comment":"hi","writeConcern":{"w":"majority"},"future":1,"maxTimeMS":7}`
	const listEnd = `"comment":"hi","future":1,"maxTimeMS":7}`
	for name, test := range map[string]every{
		"ListDatabases": {
			"listDatabases", `{"listDatabases":1}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.ListDatabases(ctx, &mooringv1.ListDatabasesRequest{})
			},
			`{"listDatabases":1,"filter":{"name":"a"},"nameOnly":true,"authorizedDatabases":true,` + listEnd,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.ListDatabases(ctx, &mooringv1.ListDatabasesRequest{
					Filter: doc(`{"name": "a"}`), NameOnly: yes, AuthorizedDatabases: yes,
					Comment: comment,
					Options: more, MaxTimeMs: n64, BatchSize: n32,
				})
			}, `{"name":"a"} {"name":"b"}`, "admin",
		},
		"ListCollections": {
			"listCollections", `{"listCollections":1,"cursor":{}}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.ListCollections(ctx, &mooringv1.ListCollectionsRequest{Database: d})
			},
			`{"listCollections":1,"filter":{"name":"a"},"nameOnly":true,"authorizedCollections":true,` +
				`"cursor":{"batchSize":8},` + listEnd,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.ListCollections(ctx, &mooringv1.ListCollectionsRequest{
					Database: d, Filter: doc(`{"name": "a"}`), NameOnly: yes,
					AuthorizedCollections: yes,
					Comment:               comment, Options: more, MaxTimeMs: n64, BatchSize: n32,
				})
			}, `{"name":"x"}`, "",
		},
		"CreateCollection": {
			"create", `{"create":"c"}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.CreateCollection(ctx,
					&mooringv1.CreateCollectionRequest{Database: d, Collection: c})
			},
			`{"create":"c","capped":true,"size":7,"max":7,"viewOn":"v","pipeline":[{"$limit":1}],` +
				`"clusteredIndex":{"a":1},"timeseries":{"b":1},"expireAfterSeconds":7,` +
				`"changeStreamPreAndPostImages":{"c":1},"collation":{"locale":"sv"},"validator":{"e":1},` +
				`"validationLevel":"strict","validationAction":"warn","storageEngine":{"f":1},` +
				`"indexOptionDefaults":{"g":1},` + end,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.CreateCollection(ctx, &mooringv1.CreateCollectionRequest{
					Database: d, Collection: c, Capped: yes, Size: n64, Max: n64, ViewOn: new("v"),
					Pipeline:       []*mooringv1.Document{doc(`{"$limit": 1}`)},
					ClusteredIndex: doc(`{"a": 1}`),
					Timeseries:     doc(`{"b": 1}`), ExpireAfterSeconds: n64,
					ChangeStreamPreAndPostImages: doc(`{"c": 1}`),
					Collation:                    doc(`{"locale": "sv"}`),
					Validator:                    doc(`{"e": 1}`), ValidationLevel: new("strict"),
					ValidationAction: new("warn"), StorageEngine: doc(`{"f": 1}`),
					IndexOptionDefaults: doc(`{"g": 1}`), Comment: comment, Options: more,
					MaxTimeMs:    n64,
					WriteConcern: wc,
				})
			}, ``, "",
		},
		"DropCollection": {
			"drop", `{"drop":"c"}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.DropCollection(ctx,
					&mooringv1.DropCollectionRequest{Database: d, Collection: c})
			},
			`{"drop":"c",` + end,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.DropCollection(ctx, &mooringv1.DropCollectionRequest{
					Database: d, Collection: c, Comment: comment, Options: more, MaxTimeMs: n64,
					WriteConcern: wc,
				})
			}, ``, "",
		},
		"DropDatabase": {
			"dropDatabase", `{"dropDatabase":1}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.DropDatabase(ctx, &mooringv1.DropDatabaseRequest{Database: d})
			},
			`{"dropDatabase":1,` + end,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.DropDatabase(ctx, &mooringv1.DropDatabaseRequest{
					Database: d, Comment: comment, Options: more, MaxTimeMs: n64, WriteConcern: wc,
				})
			}, ``, "",
		},
		"RenameCollection": {
			"renameCollection", `{"renameCollection":"d.c","to":"d.x"}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.RenameCollection(ctx,
					&mooringv1.RenameCollectionRequest{Database: d, Collection: c, To: "x"})
			},
			`{"renameCollection":"d.c","to":"e.x","dropTarget":true,` + end,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.RenameCollection(ctx, &mooringv1.RenameCollectionRequest{
					Database: d, Collection: c, To: "x", ToDatabase: new("e"), DropTarget: yes,
					Comment: comment, Options: more, MaxTimeMs: n64, WriteConcern: wc,
				})
			}, ``, "admin",
		},
		"CollMod": {
			"collMod", `{"collMod":"c","viewOn":"v","pipeline":[]}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.CollMod(ctx,
					&mooringv1.CollModRequest{Database: d, Collection: c, ViewOn: new("v")})
			},
			`{"collMod":"c","index":{"name":"a_1"},"validator":{"b":1},"validationLevel":"off",` +
				`"validationAction":"error","viewOn":"v","pipeline":[{"$limit":1}],"timeseries":{"c":1},` +
				`"expireAfterSeconds":7,"changeStreamPreAndPostImages":{"d":1},"cappedSize":7,"cappedMax":7,` + end,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.CollMod(ctx, &mooringv1.CollModRequest{
					Database: d, Collection: c, Index: doc(`{"name": "a_1"}`),
					Validator:       doc(`{"b": 1}`),
					ValidationLevel: new("off"), ValidationAction: new("error"),
					ViewOn: new("v"), Pipeline: []*mooringv1.Document{doc(`{"$limit": 1}`)},
					Timeseries: doc(`{"c": 1}`), ExpireAfterSeconds: n64,
					ChangeStreamPreAndPostImages: doc(`{"d": 1}`), CappedSize: n64, CappedMax: n64,
					Comment: comment, Options: more, MaxTimeMs: n64, WriteConcern: wc,
				})
			}, ``, "",
		},
		"CreateIndexes": {
			"createIndexes", `{"createIndexes":"c","indexes":[{"key":{"a":1},"name":"a_1"}]}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.CreateIndexes(ctx, &mooringv1.CreateIndexesRequest{
					Database: d, Collection: c,
					Indexes: []*mooringv1.Document{doc(`{"key": {"a": 1}}`)},
				})
			},
			`{"createIndexes":"c","indexes":[{"key":{"b":1,"2":-1},"name":"n","unique":true}],` +
				`"commitQuorum":"majority",` + end,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.CreateIndexes(ctx, &mooringv1.CreateIndexesRequest{
					Database: d, Collection: c, CommitQuorum: text("majority"),
					Indexes: []*mooringv1.Document{
						doc(`{"unique": true, "name": "n", "key": [["b", 1], ["2", -1]]}`),
					},
					Comment: comment, Options: more, MaxTimeMs: n64, WriteConcern: wc,
				})
			}, `n`, "",
		},
		"ListIndexes": {
			"listIndexes", `{"listIndexes":"c","cursor":{}}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.ListIndexes(ctx, &mooringv1.ListIndexesRequest{Database: d, Collection: c})
			},
			`{"listIndexes":"c","cursor":{"batchSize":8},` + listEnd,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.ListIndexes(ctx, &mooringv1.ListIndexesRequest{
					Database: d, Collection: c, Comment: comment, Options: more, MaxTimeMs: n64,
					BatchSize: n32,
				})
			}, `{"name":"x"}`, "",
		},
		"DropIndexes": {
			"dropIndexes", `{"dropIndexes":"c","index":"a_1"}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.DropIndexes(ctx,
					&mooringv1.DropIndexesRequest{Database: d, Collection: c, Index: hint("a_1")})
			},
			`{"dropIndexes":"c","index":{"b":1,"2":-1},` + end,
			func(ctx ctx, a api) (proto.Message, error) {
				keys := &mooringv1.Hint{
					Kind: &mooringv1.Hint_Keys{Keys: doc(`[["b", 1], ["2", -1]]`)},
				}
				return a.DropIndexes(ctx, &mooringv1.DropIndexesRequest{
					Database: d, Collection: c, Index: keys, Comment: comment, Options: more,
					MaxTimeMs:    n64,
					WriteConcern: wc,
				})
			}, ``, "",
		},
		"DropIndexes, all": {
			"dropIndexes", `{"dropIndexes":"c","index":"*"}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.DropIndexes(ctx,
					&mooringv1.DropIndexesRequest{Database: d, Collection: c, Index: hint("*")})
			}, ``, nil, ``, "",
		},
		"ListSearchIndexes": {
			"aggregate", `{"aggregate":"c","pipeline":[{"$listSearchIndexes":{}}],"cursor":{}}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.ListSearchIndexes(ctx,
					&mooringv1.ListSearchIndexesRequest{Database: d, Collection: c})
			},
			`{"aggregate":"c","pipeline":[{"$listSearchIndexes":{"name":"n"}}],"cursor":{"batchSize":8},` + listEnd,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.ListSearchIndexes(ctx, &mooringv1.ListSearchIndexesRequest{
					Database: d, Collection: c, Name: new("n"), Comment: comment, Options: more,
					MaxTimeMs: n64, BatchSize: n32,
				})
			}, `{"name":"x"}`, "",
		},
		"CreateSearchIndexes": {
			"createSearchIndexes", `{"createSearchIndexes":"c","indexes":[{"definition":{}}]}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.CreateSearchIndexes(ctx, &mooringv1.CreateSearchIndexesRequest{
					Database: d, Collection: c,
					Indexes: []*mooringv1.Document{doc(`{"definition": {}}`)},
				})
			},
			`{"createSearchIndexes":"c","indexes":[{"definition":{"a":1},"name":"n","type":"search","x":1}],` + listEnd,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.CreateSearchIndexes(ctx, &mooringv1.CreateSearchIndexesRequest{
					Database: d, Collection: c, Comment: comment, Options: more, MaxTimeMs: n64,
					Indexes: []*mooringv1.Document{
						doc(`{"x": 1, "name": "n", "type": "search", "definition": {"a": 1}}`),
					},
				})
			}, `s`, "",
		},
		"UpdateSearchIndex": {
			"updateSearchIndex", `{"updateSearchIndex":"c","name":"n","definition":{}}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.UpdateSearchIndex(ctx, &mooringv1.UpdateSearchIndexRequest{
					Database: d, Collection: c, Name: "n", Definition: doc(`{}`),
				})
			},
			`{"updateSearchIndex":"c","name":"n","definition":{"a":1},` + listEnd,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.UpdateSearchIndex(ctx, &mooringv1.UpdateSearchIndexRequest{
					Database: d, Collection: c, Name: "n", Definition: doc(`{"a": 1}`),
					Comment: comment,
					Options: more, MaxTimeMs: n64,
				})
			}, ``, "",
		},
		"DropSearchIndex": {
			"dropSearchIndex", `{"dropSearchIndex":"c","name":"n"}`,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.DropSearchIndex(ctx,
					&mooringv1.DropSearchIndexRequest{Database: d, Collection: c, Name: "n"})
			},
			`{"dropSearchIndex":"c","name":"n",` + listEnd,
			func(ctx ctx, a api) (proto.Message, error) {
				return a.DropSearchIndex(ctx, &mooringv1.DropSearchIndexRequest{
					Database: d, Collection: c, Name: "n", Comment: comment, Options: more,
					MaxTimeMs: n64,
				})
			}, ``, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, fakemongo.Handlers{test.command: answer(t, `{"ok":1,`+
				`"databases":[{"name":"a"},{"name":"b"}],"indexesCreated":[{"name":"s"}],`+
				`"cursor":{"id":0,"ns":"d.c","firstBatch":[{"name":"x"}]}}`)})
			if _, err := test.call(t.Context(), g.Catalog); err != nil {
				t.Fatal(err)
			}
			if got := sent(t, g, test.command); got != test.plain {
				t.Errorf("sent %s\nwant %s", got, test.plain)
			}
			if test.withAll == nil {
				return
			}
			res, err := test.withAll(t.Context(), g.Catalog)
			if err != nil {
				t.Fatal(err)
			}
			if got := sent(t, g, test.command); got != test.whole {
				t.Errorf("sent %s\nwant %s", got, test.whole)
			}
			if got := contents(t, res); got != test.want {
				t.Errorf("the response has %s, want %s", got, test.want)
			}
			in := test.inDatabase
			if in == "" {
				in = d
			}
			commands := g.Server.Commands(test.command)
			if v, _ := commands[0].Body.Lookup("$db"); !v.Equal(bson.StringValue(in)) {
				t.Errorf("the command ran in %v, want %s", v, in)
			}
		})
	}
}

// contents is what a response has: documents or names.
func contents(t *testing.T, m proto.Message) string {
	t.Helper()
	var list []string
	if page, ok := m.(interface{ GetDocuments() []*mooringv1.Document }); ok {
		for _, d := range page.GetDocuments() {
			out, err := extjson.Append(nil, d.GetBson(), extjson.Relaxed)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, string(out))
		}
	}
	if names, ok := m.(interface{ GetNames() []string }); ok {
		list = names.GetNames()
	}
	return strings.Join(list, " ")
}

// TestListDatabasesInPages: the server has no cursor of them.
func TestListDatabasesInPages(t *testing.T) {
	g := start(t, fakemongo.Handlers{"listDatabases": answer(t,
		`{"ok":1,"databases":[{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"},{"name":"e"}]}`)})
	page, err := g.Catalog.ListDatabases(t.Context(),
		&mooringv1.ListDatabasesRequest{BatchSize: new(int32(2))})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{contents(t, page)}
	token, size := page.Cursor, (*int32)(nil)
	for token != nil {
		next, err := g.Cursor.NextPage(t.Context(),
			&mooringv1.NextPageRequest{Cursor: *token, BatchSize: size})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, contents(t, next))
		token, size = next.Cursor, new(int32(1))
	}
	if want := []string{
		`{"name":"a"} {"name":"b"}`, `{"name":"c"} {"name":"d"}`, `{"name":"e"}`,
	}; !slices.Equal(got, want) {
		t.Errorf("the pages are %q, want %q", got, want)
	}
	if n := len(g.Server.Commands("listDatabases")); n != 1 {
		t.Errorf("%d commands were sent, want 1", n)
	}
	page, err = g.Catalog.ListDatabases(t.Context(),
		&mooringv1.ListDatabasesRequest{BatchSize: new(int32(2))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Cursor.CloseCursor(t.Context(),
		&mooringv1.CloseCursorRequest{Cursor: page.GetCursor()}); err != nil {
		t.Error(err)
	}
	g.Idle(0)
}

// TestPolicyInside checks that lists leave out, and DropDatabase stops at, what a rule of the
// policy is against.
func TestPolicyInside(t *testing.T) {
	p, err := policy.Parse([]byte(`permit (principal, action, resource);
		forbid (principal, action, resource == Collection::"d.payroll");
		forbid (principal, action in Action::"describe", resource in Database::"hr");`))
	if err != nil {
		t.Fatal(err)
	}
	handlers := fakemongo.Handlers{
		"listDatabases": answer(t,
			`{"ok":1,"databases":[{"name":"d"},{"name":"hr"},{"name":"x"}]}`),
		"listCollections": answer(t, `{"ok":1,"cursor":{"id":{"$numberLong":"0"},"ns":"d.x",
			"firstBatch":[{"name":"orders"},{"name":"payroll"}]}}`),
		"dropDatabase": answer(t, `{"ok":1}`),
	}
	g := servicetest.Start(t, fakemongo.NewServer(t, handlers), servicetest.Config{
		Policy: policy.NewEnforcer(policy.Config{Policy: p}),
	})
	page, err := g.Catalog.ListDatabases(t.Context(), &mooringv1.ListDatabasesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := contents(t, page); got != `{"name":"d"} {"name":"x"}` {
		t.Errorf("databases %s", got)
	}
	for request, want := range map[*mooringv1.ListCollectionsRequest]string{
		{Database: "d"}: `"filter":{"$and":[{"name":{"$in":["orders"]}}]}`,
		{Database: "d", Filter: doc(`{"type": "view"}`)}:   `"filter":{"$and":[{"type":"view"},{"name":{"$in":["orders"]}}]}`,
		{Database: "x", Filter: doc(`{"name": "orders"}`)}: `"filter":{"name":"orders"}`,
	} {
		if _, err := g.Catalog.ListCollections(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		if got := sent(t, g, "listCollections"); !strings.Contains(got, want) {
			t.Errorf("%v sends %s, want %s", request, got, want)
		}
	}
	_, err = g.Catalog.DropDatabase(t.Context(), &mooringv1.DropDatabaseRequest{Database: "d"})
	if status.Code(err) != codes.PermissionDenied || strings.Contains(err.Error(), "payroll") {
		t.Errorf("it drops a database with a collection that it may not drop, or names it: %v", err)
	}
	if n := len(g.Server.Commands("dropDatabase")); n != 0 {
		t.Errorf("%d commands dropDatabase", n)
	}
	if _, err = g.Catalog.DropDatabase(t.Context(),
		&mooringv1.DropDatabaseRequest{Database: "x"}); err != nil {
		t.Error(err)
	}
}

// TestListInPages continues a list whose cursor the server has.
func TestListInPages(t *testing.T) {
	g := start(t, fakemongo.Handlers{
		"listIndexes": answer(t,
			`{"ok":1,"cursor":{"id":{"$numberLong":"9"},"ns":"d.c","firstBatch":[{"name":"x"}]}}`),
		"getMore": answer(t, `{"ok":1,"cursor":{"id":0,"ns":"d.c","nextBatch":[{"name":"y"}]}}`),
	})
	page, err := g.Catalog.ListIndexes(t.Context(),
		&mooringv1.ListIndexesRequest{Database: "d", Collection: "c"})
	if err != nil || page.Cursor == nil {
		t.Fatalf("ListIndexes = %v, %v, want a cursor", page, err)
	}
	next, err := g.Cursor.NextPage(t.Context(),
		&mooringv1.NextPageRequest{Cursor: page.GetCursor()})
	if err != nil || contents(t, next) != `{"name":"y"}` || next.Cursor != nil {
		t.Errorf("NextPage = %v, %v, want the last page", next, err)
	}
}

func TestRefusals(t *testing.T) {
	g := start(t, nil)
	ctx, a := t.Context(), g.Catalog
	createIndex := func(specification string) func() error {
		return func() error {
			_, err := a.CreateIndexes(ctx, &mooringv1.CreateIndexesRequest{
				Database: "d", Collection: "c", Indexes: []*mooringv1.Document{doc(specification)},
			})
			return err
		}
	}
	createSearchIndex := func(specifications ...*mooringv1.Document) func() error {
		return func() error {
			_, err := a.CreateSearchIndexes(ctx, &mooringv1.CreateSearchIndexesRequest{
				Database: "d", Collection: "c", Indexes: specifications,
			})
			return err
		}
	}
	for _, test := range []struct {
		name  string
		call  func() error
		field string
	}{
		{"no key", createIndex(`{"name": "x"}`), "indexes.0.key"},
		{"a key that is a number", createIndex(`{"key": 1}`), "indexes.0.key"},
		{"an empty key", createIndex(`{"key": {}}`), "indexes.0.key"},
		{"an empty array of pairs", createIndex(`{"key": []}`), "indexes.0.key"},
		{"a pair of one", createIndex(`{"key": [["a"]]}`), "indexes.0.key"},
		{"a pair of three", createIndex(`{"key": [["a", 1, 2]]}`), "indexes.0.key"},
		{"a pair without a name", createIndex(`{"key": [[1, 1]]}`), "indexes.0.key"},
		{"no pair", createIndex(`{"key": ["a"]}`), "indexes.0.key"},
		{"an empty name", createIndex(`{"key": {"a": 1}, "name": ""}`), "indexes.0.name"},
		{"a name that is a number", createIndex(`{"key": {"a": 1}, "name": 1}`), "indexes.0.name"},
		{"no indexes", func() error {
			_, err := a.CreateIndexes(ctx,
				&mooringv1.CreateIndexesRequest{Database: "d", Collection: "c"})
			return err
		}, "indexes"},
		{"no search indexes", createSearchIndex(), "indexes"},
		{"no definition", createSearchIndex(doc(`{"name": "x"}`)), "indexes.0.definition"},
		{"a type that is a number", createSearchIndex(doc(`{"definition": {}, "type": 1}`)), "indexes.0.type"},
		{"no index to drop", func() error {
			_, err := a.DropIndexes(ctx,
				&mooringv1.DropIndexesRequest{Database: "d", Collection: "c"})
			return err
		}, "index"},
		{"neither name nor keys", func() error {
			_, err := a.DropIndexes(ctx, &mooringv1.DropIndexesRequest{
				Database: "d", Collection: "c", Index: &mooringv1.Hint{},
			})
			return err
		}, "index"},
		{"no new name", func() error {
			_, err := a.RenameCollection(ctx,
				&mooringv1.RenameCollectionRequest{Database: "d", Collection: "c"})
			return err
		}, "to"},
		{"an empty new database", func() error {
			_, err := a.RenameCollection(ctx, &mooringv1.RenameCollectionRequest{
				Database: "d", Collection: "c", To: "x", ToDatabase: new(""),
			})
			return err
		}, "toDatabase"},
		{"an empty search index", func() error {
			_, err := a.ListSearchIndexes(ctx, &mooringv1.ListSearchIndexesRequest{
				Database: "d", Collection: "c", Name: new(""),
			})
			return err
		}, "name"},
		{"no new definition", func() error {
			_, err := a.UpdateSearchIndex(ctx,
				&mooringv1.UpdateSearchIndexRequest{Database: "d", Collection: "c", Name: "n"})
			return err
		}, "definition"},
		{"an empty text", func() error {
			_, err := a.CreateCollection(ctx, &mooringv1.CreateCollectionRequest{
				Database: "d", Collection: "c", ValidationLevel: new(""),
			})
			return err
		}, "validationLevel"},
		{"a pipeline without a view", func() error {
			_, err := a.CreateCollection(ctx, &mooringv1.CreateCollectionRequest{
				Database: "d", Collection: "c", Pipeline: []*mooringv1.Document{doc(`{}`)},
			})
			return err
		}, "pipeline"},
		{"a negative size", func() error {
			_, err := a.CreateCollection(ctx, &mooringv1.CreateCollectionRequest{
				Database: "d", Collection: "c", Size: new(int64(-1)),
			})
			return err
		}, "size"},
		{"no database", func() error {
			_, err := a.DropDatabase(ctx, &mooringv1.DropDatabaseRequest{})
			return err
		}, "database"},
		{"no collection", func() error {
			_, err := a.DropCollection(ctx, &mooringv1.DropCollectionRequest{Database: "d"})
			return err
		}, "collection"},
		{"a negative batch of databases", func() error {
			_, err := a.ListDatabases(ctx,
				&mooringv1.ListDatabasesRequest{BatchSize: new(int32(-1))})
			return err
		}, "batchSize"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.call()
			if err == nil {
				t.Fatal("no error")
			}
			if e := rpcerr.HTTP(err).Body.GetError(); status.Code(err) != codes.InvalidArgument ||
				e.GetField() != test.field {
				t.Errorf("%v, field %q, want %q: %v", status.Code(err), e.GetField(), test.field,
					err)
			}
		})
	}
}

// TestUnconfirmedChange: unlike for a write of documents, a write concern that was not met is an
// error.
func TestUnconfirmedChange(t *testing.T) {
	g := start(t, fakemongo.Handlers{
		"drop": answer(t, `{"ok":1,"writeConcernError":{"code":64,"errmsg":"late"}}`),
	})
	_, err := g.Catalog.DropCollection(t.Context(),
		&mooringv1.DropCollectionRequest{Database: "d", Collection: "c"})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("DropCollection = %v, want the write concern error", err)
	}
}
