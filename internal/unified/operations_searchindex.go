package unified

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/cursor"
)

func searchIndexOptions(c *collection, a *arguments) client.SearchIndexOptions {
	return client.SearchIndexOptions{Common: c.inherit.lists(a), MaxTimeMS: a.int64("maxTimeMS")}
}

// searchIndexModel reads the description of a search index.
func (a *arguments) searchIndexModel(doc bson.Raw) client.SearchIndexModel {
	of := &arguments{doc: doc}
	m := client.SearchIndexModel{
		Definition: of.must("definition").document("definition"), Name: of.text("name"),
		Type: of.text("type"),
	}
	a.adopt(of)
	return m
}

func createSearchIndex(_ *run, c *collection, a *arguments) action {
	model := a.searchIndexModel(a.must("model").document("model"))
	options := searchIndexOptions(c, a)
	return func(ctx context.Context) outcome {
		names, err := c.client.CreateSearchIndexes(ctx, c.ns, []client.SearchIndexModel{model},
			options)
		if err != nil {
			return failed(err)
		}
		return outcome{value: bson.StringValue(names[0])}
	}
}

func createSearchIndexes(_ *run, c *collection, a *arguments) action {
	var models []client.SearchIndexModel
	for _, doc := range a.must("models").documents("models") {
		models = append(models, a.searchIndexModel(doc))
	}
	options := searchIndexOptions(c, a)
	return func(ctx context.Context) outcome {
		names, err := c.client.CreateSearchIndexes(ctx, c.ns, models, options)
		return orFailed(nameList(names), err)
	}
}

func updateSearchIndex(_ *run, c *collection, a *arguments) action {
	name := a.must("name").text("name")
	definition := a.must("definition").document("definition")
	options := searchIndexOptions(c, a)
	return func(ctx context.Context) outcome {
		return failed(c.client.UpdateSearchIndex(ctx, c.ns, name, definition, options))
	}
}

func dropSearchIndex(_ *run, c *collection, a *arguments) action {
	name, options := a.must("name").text("name"), searchIndexOptions(c, a)
	return func(ctx context.Context) outcome {
		return failed(c.client.DropSearchIndex(ctx, c.ns, name, options))
	}
}

func listSearchIndexes(_ *run, c *collection, a *arguments) action {
	name := a.text("name")
	aggregation := &arguments{doc: a.document("aggregationOptions")}
	options := listOptions(c.inherit, aggregation)
	a.adopt(aggregation)
	return drained(func(ctx context.Context) (*cursor.Cursor, error) {
		return c.client.ListSearchIndexes(ctx, c.ns, name, options)
	})
}
