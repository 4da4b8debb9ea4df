package client

import (
	"context"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/operation"
)

// The helpers for search indexes send neither a read concern nor a write concern (Index Management,
// "Search Indexes"). A server answers before the index is built, changed or dropped: the list says
// how far it got.

// SearchIndexModel describes a search index to create. Fields that are unset are not sent.
type SearchIndexModel struct {
	Definition bson.Raw
	// Name is the index's name; "": the server chooses one.
	Name string
	// Type is "search" or "vectorSearch"; "" is the server's default.
	Type string
	// Extra is appended as it is.
	Extra bson.Raw
}

// SearchIndexOptions holds the options of helpers for search indexes. Of Common they take Comment,
// RawData and Extra.
type SearchIndexOptions struct {
	Common
	MaxTimeMS *int64
}

// CreateSearchIndexes begins to create search indexes, and returns their names. The server answers
// before they are built; ListSearchIndexes shows their progress.
func (c *Client) CreateSearchIndexes(
	ctx context.Context, ns Namespace, models []SearchIndexModel, opt SearchIndexOptions,
) ([]string, error) {
	ck := check{client: c}
	for i := range models {
		ck.given(models[i].Extra, "indexes."+strconv.Itoa(i), "definition", "name", "type")
	}
	res, err := c.searchIndexes(ctx, ns, helper{
		name: "createSearchIndexes", add: func(b *bson.Builder) {
			b.OpenArray("indexes")
			for i := range models {
				b.OpenDocument("")
				appendDocument(b, "definition", models[i].Definition)
				appendString(b, "name", models[i].Name)
				appendString(b, "type", models[i].Type)
				b.AppendElements(models[i].Extra)
				b.Close()
			}
			b.Close()
		},
	}, opt, &ck, []string{"createSearchIndexes", "indexes", "comment"})
	if err != nil {
		return nil, err
	}
	return createdNames(res)
}

// createdNames returns the names in the reply of createSearchIndexes.
func createdNames(res operation.Result) ([]string, error) {
	r := replyReader{from: res.Server}
	v, _ := res.Reply.Lookup("indexesCreated")
	list, ok := v.Array()
	if !ok {
		r.fail("indexesCreated", "is missing or no array")
		return nil, r.err
	}
	all := []string{}
	for _, v := range list.All() {
		doc, _ := v.Document()
		name, err := nameIn(doc, res.Server)
		if err != nil {
			return nil, err
		}
		all = append(all, name)
	}
	return all, nil
}

// UpdateSearchIndex begins to change the definition of a search index.
func (c *Client) UpdateSearchIndex(
	ctx context.Context, ns Namespace, name string, definition bson.Raw, opt SearchIndexOptions,
) error {
	ck := check{client: c}
	ck.indexName(name)
	if definition == nil {
		ck.refuse("definition", "is missing")
	}
	_, err := c.searchIndexes(ctx, ns, helper{
		name: "updateSearchIndex", add: func(b *bson.Builder) {
			b.String("name", name).Document("definition", definition)
		},
	}, opt, &ck, []string{"updateSearchIndex", "name", "definition", "comment"})
	return err
}

// DropSearchIndex begins to drop a search index. If there is no such collection, the error is nil.
func (c *Client) DropSearchIndex(
	ctx context.Context, ns Namespace, name string, opt SearchIndexOptions,
) error {
	ck := check{client: c}
	ck.indexName(name)
	_, err := c.searchIndexes(ctx, ns, helper{
		name: "dropSearchIndex", add: func(b *bson.Builder) { b.String("name", name) },
	}, opt, &ck, []string{"dropSearchIndex", "name", "comment"})
	return orNoNamespace(err)
}

// ListSearchIndexes opens a cursor over the search indexes of a collection: all, or the one with
// that name if name is not "". Of the options' Common it takes Comment, RawData and Extra. It is
// an aggregation, and runs where the client's read preference says.
func (c *Client) ListSearchIndexes(
	ctx context.Context, ns Namespace, name string, opt ListOptions,
) (*cursor.Cursor, error) {
	ck := check{client: c}
	ck.namespace(ns)
	ck.common(&opt.Common, listOptions, aggregateFields)
	if ck.err != nil {
		return nil, ck.err
	}
	pipeline := bson.NewBuilder(nil).OpenArray("a").OpenDocument("").
		OpenDocument("$listSearchIndexes")
	appendString(pipeline, "name", name)
	v, _ := pipeline.Close().Close().Close().Finish().Lookup("a")
	stages, _ := v.Array()
	a := aggregate{collection: ns.Collection, opt: AggregateOptions{
		Common: opt.Common, Pipeline: stages, BatchSize: opt.BatchSize,
		TimeoutMode: opt.TimeoutMode,
	}}
	op := c.read(ns, &a, &opt.Common)
	op.ReadConcern = operation.ReadConcern{} // search indexes take none
	op.MaxTimeMS, op.DeadlineAsMaxTime = opt.MaxTimeMS, opt.TimeoutMode != Iteration
	return cursor.Open(ctx, &c.runner, op, a.cursorOptions())
}

// searchIndexes runs a command that changes search indexes.
func (c *Client) searchIndexes(
	ctx context.Context, ns Namespace, h helper, opt SearchIndexOptions, ck *check, known []string,
) (operation.Result, error) {
	ck.namespace(ns)
	ck.common(&opt.Common, listOptions, known)
	if ck.err != nil {
		return operation.Result{}, ck.err
	}
	h.target, h.common = bson.StringValue(ns.Collection), &opt.Common
	op := write(ns, &h, WriteConcern{}, &opt.Common)
	op.MaxTimeMS = opt.MaxTimeMS
	return c.run(ctx, &op, &opt.Common)
}

func (c *check) indexName(name string) {
	if name == "" {
		c.refuse("name", "is empty")
	}
}

// given objects to elements of a model's Extra that are fields of the model.
func (c *check) given(extra bson.Raw, model string, fields ...string) {
	for _, field := range fields {
		if extra.Has(field) {
			c.refuse(model+"."+field, "must not be in Extra: it has a field of its own")
		}
	}
}
