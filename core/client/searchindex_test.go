package client_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// inherited has concerns that some helpers do not send.
var inherited = connstring.Config{
	ReadConcernLevel: "majority", WriteConcern: client.WriteConcern{Tag: "majority"},
}

// TestSearchIndexes checks what the helpers for search indexes send. The client's concerns are not
// sent.
func TestSearchIndexes(t *testing.T) {
	comment := client.Common{Comment: bson.StringValue("c")}
	opt := client.SearchIndexOptions{Common: comment, MaxTimeMS: new(int64(7))}
	list := client.ListOptions{Common: comment, BatchSize: new(int32(2)), MaxTimeMS: new(int64(7))}
	for name, test := range map[string]struct {
		command string
		run     func(*testing.T, *client.Client) error
		want    string
	}{
		"create": {"createSearchIndexes", func(t *testing.T, c *client.Client) error {
			names, err := c.CreateSearchIndexes(t.Context(), orders, []client.SearchIndexModel{
				{Definition: doc(t, `{"a":1}`)},
				{Definition: doc(t, `{"b":1}`), Name: "n", Type: "search", Extra: doc(t, `{"x":1}`)},
			}, opt)
			if want := []string{"default", "n"}; !slices.Equal(names, want) {
				t.Errorf("names are %q, want %q", names, want)
			}
			return err
		}, `{"createSearchIndexes":"orders","indexes":[{"definition":{"a":1}},` +
			`{"definition":{"b":1},"name":"n","type":"search","x":1}],"comment":"c","maxTimeMS":7}`},
		"update": {"updateSearchIndex", func(t *testing.T, c *client.Client) error {
			return c.UpdateSearchIndex(t.Context(), orders, "n", doc(t, `{}`), opt)
		}, `{"updateSearchIndex":"orders","name":"n","definition":{},"comment":"c","maxTimeMS":7}`},
		"drop": {"dropSearchIndex", func(t *testing.T, c *client.Client) error {
			return c.DropSearchIndex(t.Context(), orders, "n", opt)
		}, `{"dropSearchIndex":"orders","name":"n","comment":"c","maxTimeMS":7}`},
		"list": {
			"aggregate", func(t *testing.T, c *client.Client) error {
				_, err := c.ListSearchIndexes(t.Context(), orders, "", list)
				return err
			},
			`{"aggregate":"orders","pipeline":[{"$listSearchIndexes":{}}],"cursor":{"batchSize":2},` +
				`"comment":"c","maxTimeMS":7}`,
		},
		"list one": {"aggregate", func(t *testing.T, c *client.Client) error {
			_, err := c.ListSearchIndexes(t.Context(), orders, "n", client.ListOptions{})
			return err
		}, `{"aggregate":"orders","pipeline":[{"$listSearchIndexes":{"name":"n"}}],"cursor":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			fine := reply(t, `{"ok":1,"cursor":{"id":0,"ns":"shop.$cmd","firstBatch":[]},`+
				`"indexesCreated":[{"id":"1","name":"default"},{"id":"2","name":"n"}]}`)
			handlers := fakemongo.Handlers{test.command: fine}
			runWith(t, handlers, inherited, client.Options{},
				func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
					if err := test.run(t, c); err != nil {
						t.Fatal(err)
					}
					if got := sent(t, srv, test.command); got != test.want {
						t.Errorf("sent %s, want %s", got, test.want)
					}
				})
		})
	}
}

func TestSearchIndexesFail(t *testing.T) {
	gone := fakemongo.Always(fakemongo.Error(26, "NamespaceNotFound", "ns not found"))
	for name, answer := range map[string]fakemongo.Handler{
		"no names":  reply(t, `{"ok":1}`),
		"a number":  reply(t, `{"ok":1,"indexesCreated":1}`),
		"no name":   reply(t, `{"ok":1,"indexesCreated":[{"id":"1"}]}`),
		"no object": reply(t, `{"ok":1,"indexesCreated":[1]}`),
	} {
		run(t, fakemongo.Handlers{
			"createSearchIndexes": answer, "dropSearchIndex": gone, "updateSearchIndex": gone,
		},
			func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
				_, err := c.CreateSearchIndexes(t.Context(), orders, nil,
					client.SearchIndexOptions{})
				if _, ok := errors.AsType[*mongoerr.MalformedReplyError](err); !ok {
					t.Errorf("%s: CreateSearchIndexes = %v, want a malformed reply", name, err)
				}
				if err := c.DropSearchIndex(t.Context(), orders, "n",
					client.SearchIndexOptions{}); err != nil {
					t.Errorf("DropSearchIndex = %v, want nil", err)
				}
				err = c.UpdateSearchIndex(t.Context(), orders, "n", doc(t, `{}`),
					client.SearchIndexOptions{})
				if _, ok := errors.AsType[*mongoerr.CommandError](err); !ok {
					t.Errorf("UpdateSearchIndex = %v, want the server's error", err)
				}
			})
	}
}

// TestExplainHelpers checks that the command is explained as it would be sent, without concerns.
func TestExplainHelpers(t *testing.T) {
	common := client.Common{Comment: bson.StringValue("c"), Extra: doc(t, `{"x":1}`)}
	for name, test := range map[string]struct {
		run  func(*testing.T, *client.Client) error
		want string
	}{
		"find": {
			func(t *testing.T, c *client.Client) error {
				_, err := c.ExplainFind(t.Context(), orders, client.FindOptions{
					Common: common, Filter: doc(t, `{"a":1}`), Sort: doc(t, `{"a":1}`),
					Limit:     new(int64(3)),
					MaxTimeMS: new(int64(9)),
				}, "executionStats")
				return err
			},
			`{"explain":{"find":"orders","filter":{"a":1},"sort":{"a":1},"limit":3,"comment":"c","x":1},` +
				`"verbosity":"executionStats","maxTimeMS":9}`,
		},
		"aggregate": {
			func(t *testing.T, c *client.Client) error {
				_, err := c.ExplainAggregate(t.Context(), orders, client.AggregateOptions{
					Common: common, Pipeline: bson.Array(doc(t, `{"0":{"$out":"x"}}`)),
					BatchSize: new(int32(3)), MaxTimeMS: new(int64(9)),
				}, "")
				return err
			},
			`{"explain":{"aggregate":"orders","pipeline":[{"$out":"x"}],"cursor":{},"comment":"c","x":1},` +
				`"maxTimeMS":9}`,
		},
		"aggregate on the database": {func(t *testing.T, c *client.Client) error {
			_, err := c.ExplainAggregate(t.Context(), client.Namespace{Database: "shop"},
				client.AggregateOptions{}, "")
			return err
		}, `{"explain":{"aggregate":1,"pipeline":[],"cursor":{}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			handlers := fakemongo.Handlers{"explain": reply(t, `{"ok":1}`)}
			runWith(t, handlers, inherited, client.Options{}, func(
				t *testing.T, srv *fakemongo.Server, c *client.Client,
			) {
				if err := test.run(t, c); err != nil {
					t.Fatal(err)
				}
				if got := sent(t, srv, "explain"); got != test.want {
					t.Errorf("sent %s, want %s", got, test.want)
				}
			})
		})
	}
}

func TestIndexHelpersBeyondTheFields(t *testing.T) {
	fine := reply(t, `{"ok":1}`)
	run(t, fakemongo.Handlers{"createIndexes": fine, "dropIndexes": fine}, func(
		t *testing.T, srv *fakemongo.Server, c *client.Client,
	) {
		ctx, keys := t.Context(), doc(t, `{"a":1}`)
		if err := c.DropIndexByKeys(ctx, orders, keys, client.ChangeOptions{}); err != nil {
			t.Error(err)
		}
		if got, want := sent(t, srv, "dropIndexes"),
			`{"dropIndexes":"orders","index":{"a":1}}`; got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		models := []client.IndexModel{{Keys: keys, Extra: doc(t, `{"prepareUnique":true}`)}}
		if _, err := c.CreateIndexes(ctx, orders, models,
			client.CreateIndexesOptions{}); err != nil {
			t.Error(err)
		}
		want := `{"createIndexes":"orders","indexes":[{"key":{"a":1},"name":"a_1","prepareUnique":true}]}`
		if got := sent(t, srv, "createIndexes"); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		read := client.Common{ReadConcern: &client.ReadConcern{}}
		_, twice := c.CreateIndexes(ctx, orders,
			[]client.IndexModel{{Keys: keys, Extra: doc(t, `{"name":"x"}`)}},
			client.CreateIndexesOptions{})
		_, search := c.CreateSearchIndexes(ctx, orders,
			[]client.SearchIndexModel{{Extra: doc(t, `{"type":"x"}`)}},
			client.SearchIndexOptions{})
		_, concern := c.ListSearchIndexes(ctx, orders, "", client.ListOptions{Common: read})
		_, find := c.ExplainFind(ctx, orders, client.FindOptions{Common: read}, "")
		_, aggregate := c.ExplainAggregate(ctx, orders, client.AggregateOptions{Common: read}, "")
		for want, err := range map[string]error{
			"keys":           c.DropIndexByKeys(ctx, orders, doc(t, `{}`), client.ChangeOptions{}),
			"indexes.0.name": twice,
			"indexes.0.type": search,
			"readConcern":    concern,
			"readConcern ":   find,
			"readConcern  ":  aggregate,
			"name":           c.DropSearchIndex(ctx, orders, "", client.SearchIndexOptions{}),
			"name ":          c.UpdateSearchIndex(ctx, orders, "", doc(t, `{}`), client.SearchIndexOptions{}),
			"definition":     c.UpdateSearchIndex(ctx, orders, "n", nil, client.SearchIndexOptions{}),
		} {
			refused, ok := errors.AsType[*client.ArgumentError](err)
			if !ok || refused.Argument != strings.TrimSpace(want) {
				t.Errorf("the error is %v, want one about %s", err, want)
			}
		}
	})
}
