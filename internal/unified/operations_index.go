package unified

import (
	"context"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/cursor"
)

func createIndex(_ *run, c *collection, a *arguments) action {
	model := client.IndexModel{
		Keys: a.must("keys").document("keys"), Name: a.text("name"), Unique: a.bool("unique"),
	}
	options := client.CreateIndexesOptions{
		Common:    c.inherit.writes(a),
		MaxTimeMS: a.int64("maxTimeMS"),
	}
	return func(ctx context.Context) outcome {
		names, err := c.client.CreateIndexes(ctx, c.ns, []client.IndexModel{model}, options)
		return orFailed(nameList(names), err)
	}
}

func dropIndex(_ *run, c *collection, a *arguments) action {
	name := a.must("name").text("name")
	options := client.ChangeOptions{Common: c.inherit.writes(a), MaxTimeMS: a.int64("maxTimeMS")}
	return func(ctx context.Context) outcome {
		return failed(c.client.DropIndex(ctx, c.ns, name, options))
	}
}

func dropIndexes(_ *run, c *collection, a *arguments) action {
	options := client.ChangeOptions{Common: c.inherit.writes(a), MaxTimeMS: a.int64("maxTimeMS")}
	return func(ctx context.Context) outcome {
		return failed(c.client.DropIndexes(ctx, c.ns, options))
	}
}

func listIndexes(_ *run, c *collection, a *arguments) action {
	options := listOptions(c.inherit, a)
	return drained(func(ctx context.Context) (*cursor.Cursor, error) {
		return c.client.ListIndexes(ctx, c.ns, options)
	})
}

func listIndexNames(_ *run, c *collection, a *arguments) action {
	options := listOptions(c.inherit, a)
	return func(ctx context.Context) outcome {
		names, err := c.client.ListIndexNames(ctx, c.ns, options)
		return orFailed(nameList(names), err)
	}
}
