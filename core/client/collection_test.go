package client_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestHelpers checks what each helper sends, with every option that it has.
func TestHelpers(t *testing.T) {
	fields := func(d string) bson.Raw { return doc(t, d) }
	common := client.Common{
		Comment: bson.StringValue("c"), WriteConcern: &client.WriteConcern{Tag: "majority"},
	}
	listing := client.ListOptions{
		Common: client.Common{Comment: bson.StringValue("c")}, BatchSize: new(int32(2)),
	}
	const end = `,"comment":"c","writeConcern":{"w":"majority"}`
	for name, test := range map[string]struct {
		run  func(*testing.T, *client.Client) error
		want string
	}{
		"create": {
			func(t *testing.T, c *client.Client) error {
				return c.CreateCollection(t.Context(), orders, client.CreateCollectionOptions{
					Common: common, Capped: new(true), Size: new(int64(1)), Max: new(int64(2)),
					ViewOn:   "v",
					Pipeline: bson.Array{5, 0, 0, 0, 0}, ClusteredIndex: fields(`{"a":1}`),
					TimeSeries:         fields(`{"b":1}`),
					ExpireAfterSeconds: new(int64(3)), ChangeStreamPreAndPostImages: fields(`{"c":1}`),
					Collation: fields(`{"d":1}`), Validator: fields(`{"e":1}`), ValidationLevel: "l",
					ValidationAction: "x", StorageEngine: fields(`{"f":1}`),
					IndexOptionDefaults: fields(`{"g":1}`),
					MaxTimeMS:           new(int64(4)),
				})
			},
			`{"create":"orders","capped":true,"size":1,"max":2,"viewOn":"v","pipeline":[],"clusteredIndex":{"a":1},` +
				`"timeseries":{"b":1},"expireAfterSeconds":3,"changeStreamPreAndPostImages":{"c":1},"collation":{"d":1},` +
				`"validator":{"e":1},"validationLevel":"l","validationAction":"x","storageEngine":{"f":1},` +
				`"indexOptionDefaults":{"g":1}` + end + `,"maxTimeMS":4}`,
		},
		"collMod": {
			func(t *testing.T, c *client.Client) error {
				return c.ModifyCollection(t.Context(), orders, client.ModifyCollectionOptions{
					Common: common, Index: fields(`{"a":1}`), Validator: fields(`{"b":1}`),
					ValidationLevel:  "l",
					ValidationAction: "x", ViewOn: "v", Pipeline: bson.Array{5, 0, 0, 0, 0},
					TimeSeries:         fields(`{"c":1}`),
					ExpireAfterSeconds: new(int64(3)), ChangeStreamPreAndPostImages: fields(`{"d":1}`),
					CappedSize: new(int64(4)), CappedMax: new(int64(5)), MaxTimeMS: new(int64(6)),
				})
			},
			`{"collMod":"orders","index":{"a":1},"validator":{"b":1},"validationLevel":"l","validationAction":"x",` +
				`"viewOn":"v","pipeline":[],"timeseries":{"c":1},"expireAfterSeconds":3,` +
				`"changeStreamPreAndPostImages":{"d":1},"cappedSize":4,"cappedMax":5` + end +
				`,"maxTimeMS":6}`,
		},
		"drop": {func(t *testing.T, c *client.Client) error {
			return c.DropCollection(t.Context(), orders,
				client.ChangeOptions{Common: common, MaxTimeMS: new(int64(1))})
		}, `{"drop":"orders"` + end + `,"maxTimeMS":1}`},
		"dropDatabase": {func(t *testing.T, c *client.Client) error {
			return c.DropDatabase(t.Context(), "shop", client.ChangeOptions{Common: common})
		}, `{"dropDatabase":1` + end + `}`},
		"renameCollection": {func(t *testing.T, c *client.Client) error {
			to := client.Namespace{Database: "archive", Collection: "old"}
			return c.RenameCollection(t.Context(), orders, to,
				client.RenameCollectionOptions{Common: common, DropTarget: new(false)})
		}, `{"renameCollection":"shop.orders","to":"archive.old","dropTarget":false` + end + `}`},
		"listCollections": {
			func(t *testing.T, c *client.Client) error {
				_, err := c.ListCollections(t.Context(), "shop", client.ListCollectionsOptions{
					ListOptions: listing, Filter: fields(`{"type":"view"}`), NameOnly: new(false),
					AuthorizedCollections: new(true),
				})
				return err
			},
			`{"listCollections":1,"filter":{"type":"view"},"nameOnly":false,"authorizedCollections":true,"cursor":{"batchSize":2},"comment":"c"}`,
		},
		"listDatabases": {
			func(t *testing.T, c *client.Client) error {
				_, err := c.ListDatabases(t.Context(), client.ListDatabasesOptions{
					Filter: fields(`{"name":"a"}`), NameOnly: new(false),
					AuthorizedDatabases: new(false), MaxTimeMS: new(int64(1)),
				})
				return err
			},
			`{"listDatabases":1,"filter":{"name":"a"},"nameOnly":false,"authorizedDatabases":false,"maxTimeMS":1}`,
		},
		"explain": {func(t *testing.T, c *client.Client) error {
			_, err := c.Explain(t.Context(), "shop", fields(`{"find":"orders"}`),
				client.ExplainOptions{Verbosity: "queryPlanner", MaxTimeMS: new(int64(2000))})
			return err
		}, `{"explain":{"find":"orders"},"verbosity":"queryPlanner","maxTimeMS":2000}`},
		"createIndexes": {
			func(t *testing.T, c *client.Client) error {
				names, err := c.CreateIndexes(t.Context(), orders, []client.IndexModel{
					{Keys: fields(`{"name":1,"born":-1,"g":"2dsphere","d":{"$numberDouble":"1.5"}}`)},
					{
						Keys: fields(`{"a":1}`), Name: "n", Background: new(true), Unique: new(true), Sparse: new(false),
						Hidden: new(true), ExpireAfterSeconds: new(int32(0)), Version: new(int32(2)), DefaultLanguage: "de",
						LanguageOverride: "lang", TextIndexVersion: new(int32(3)), Weights: fields(`{"a":2}`),
						SphereIndexVersion: new(int32(4)), Bits: new(int32(5)), Min: new(-1.0), Max: new(1.0),
						BucketSize: new(int32(6)), PartialFilterExpression: fields(`{"b":1}`), Collation: fields(`{"c":1}`),
						WildcardProjection: fields(`{"d":1}`), StorageEngine: fields(`{"e":1}`),
					},
				}, client.CreateIndexesOptions{
					Common: common, CommitQuorum: bson.StringValue("majority"),
					MaxTimeMS: new(int64(1)),
				})
				if want := []string{"name_1_born_-1_g_2dsphere_d_1.5", "n"}; !slices.Equal(names,
					want) {
					t.Errorf("names are %q, want %q", names, want)
				}
				return err
			},
			`{"createIndexes":"orders","indexes":[{"key":{"name":1,"born":-1,"g":"2dsphere","d":1.5},"name":"name_1_born_-1_g_2dsphere_d_1.5"},` +
				`{"key":{"a":1},"name":"n","background":true,"unique":true,"sparse":false,"hidden":true,"expireAfterSeconds":0,"v":2,` +
				`"default_language":"de","language_override":"lang","textIndexVersion":3,"weights":{"a":2},"2dsphereIndexVersion":4,` +
				`"bits":5,"min":-1.0,"max":1.0,"bucketSize":6,"partialFilterExpression":{"b":1},"collation":{"c":1},` +
				`"wildcardProjection":{"d":1},"storageEngine":{"e":1}}],"commitQuorum":"majority"` +
				end + `,"maxTimeMS":1}`,
		},
		"dropIndexes": {func(t *testing.T, c *client.Client) error {
			return c.DropIndexes(t.Context(), orders, client.ChangeOptions{Common: common})
		}, `{"dropIndexes":"orders","index":"*"` + end + `}`},
		"listIndexes": {func(t *testing.T, c *client.Client) error {
			_, err := c.ListIndexes(t.Context(), orders, listing)
			return err
		}, `{"listIndexes":"orders","cursor":{"batchSize":2},"comment":"c"}`},
	} {
		t.Run(name, func(t *testing.T) {
			command := name
			fine := reply(t,
				`{"cursor":{"id":0,"ns":"shop.$cmd","firstBatch":[]},"databases":[],"ok":1}`)
			run(t, fakemongo.Handlers{command: fine}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				if err := test.run(t, c); err != nil {
					t.Fatal(err)
				}
				if got := sent(t, srv, command); got != test.want {
					t.Errorf("sent %s, want %s", got, test.want)
				}
			})
		})
	}
}

func TestHelpersRefuse(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		keys := doc(t, `{"a":1}`)
		read := client.Common{ReadConcern: &client.ReadConcern{}}
		_, noIndex := c.CreateIndexes(t.Context(), orders, nil, client.CreateIndexesOptions{})
		_, noKeys := c.CreateIndexes(t.Context(), orders, []client.IndexModel{{}},
			client.CreateIndexesOptions{})
		_, twice := c.CreateIndexes(t.Context(), orders, []client.IndexModel{{Keys: keys}},
			client.CreateIndexesOptions{Common: client.Common{Extra: doc(t, `{"commitQuorum":1}`)}})
		_, names := c.ListCollectionNames(t.Context(), "", client.ListCollectionsOptions{})
		_, indexes := c.ListIndexNames(t.Context(), orders, client.ListOptions{Common: read})
		_, databases := c.ListDatabaseNames(t.Context(), client.ListDatabasesOptions{Common: read})
		_, explain := c.Explain(t.Context(), "shop", nil, client.ExplainOptions{})
		for want, err := range map[string]error{
			"indexes":       noIndex,
			"indexes.0.key": noKeys,
			"options":       twice,
			"database":      names,
			"readConcern":   indexes,
			"readConcern ":  databases,
			"command":       explain,
			"pipeline": c.CreateCollection(t.Context(), orders,
				client.CreateCollectionOptions{Pipeline: bson.Array{5, 0, 0, 0, 0}}),
			"name":  c.DropIndex(t.Context(), orders, "*", client.ChangeOptions{}),
			"name ": c.DropIndex(t.Context(), orders, "", client.ChangeOptions{}),
		} {
			refused, ok := errors.AsType[*client.ArgumentError](err)
			if !ok || refused.Argument != want && refused.Argument+" " != want {
				t.Errorf("the error is %v, want one about %s", err, want)
			}
		}
	})
}

func TestHelpersResults(t *testing.T) {
	run(t, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		srv.Handle("listCollections",
			reply(t,
				`{"cursor":{"id":0,"ns":"shop.$cmd","firstBatch":[{"name":"b"},{"name":"a"}]},"ok":1}`))
		names, err := c.ListCollectionNames(t.Context(), "shop",
			client.ListCollectionsOptions{Filter: doc(t, `{"name":{"$ne":"x"}}`)})
		if err != nil || !slices.Equal(names, []string{"b", "a"}) {
			t.Errorf("ListCollectionNames() = %q, %v", names, err)
		}
		if got, want := sent(t, srv, "listCollections"),
			`{"listCollections":1,"filter":{"name":{"$ne":"x"}},"nameOnly":true,"cursor":{}}`; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		srv.Handle("listIndexes",
			reply(t, `{"cursor":{"id":0,"ns":"shop.orders","firstBatch":[{"key":{}}]},"ok":1}`))
		_, err = c.ListIndexNames(t.Context(), orders, client.ListOptions{})
		if _, ok := errors.AsType[*mongoerr.MalformedReplyError](err); !ok {
			t.Errorf("an index without a name is %v, want a malformed reply", err)
		}
		for _, malformed := range []string{
			`{"ok":1}`, `{"databases":[1],"ok":1}`, `{"databases":[{}],"ok":1}`,
		} {
			srv.Handle("listDatabases", reply(t, malformed))
			_, err = c.ListDatabaseNames(t.Context(), client.ListDatabasesOptions{})
			if _, ok := errors.AsType[*mongoerr.MalformedReplyError](err); !ok {
				t.Errorf("%s is %v, want a malformed reply", malformed, err)
			}
		}
		srv.Handle("drop", reply(t, `{"ok":0,"code":26,"errmsg":"ns not found"}`))
		if err := c.DropCollection(t.Context(), orders, client.ChangeOptions{}); err != nil {
			t.Errorf("dropping what is not there is %v", err)
		}
		srv.Handle("drop", reply(t, `{"ok":1,"writeConcernError":{"code":64,"errmsg":"waiting"}}`))
		err = c.DropCollection(t.Context(), orders, client.ChangeOptions{})
		if failed, ok := errors.AsType[*mongoerr.WriteConcernError](err); !ok || failed.Code != 64 {
			t.Errorf("the write concern error is %v", err)
		}
	})
}
