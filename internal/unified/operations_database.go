package unified

import (
	"context"
	"fmt"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/conn/metadata"
	"github.com/mooringdb/mooring/core/cursor"
)

// clientOperations are the operations on a client.
var clientOperations = table[*observed]{
	"appendMetadata":     appendMetadata,
	"clientBulkWrite":    clientBulkWrite,
	"createChangeStream": watchClient,
	"close":              closeClient,
	"listDatabases":      listDatabases,
	"listDatabaseNames":  listDatabaseNames,
}

func appendMetadata(_ *run, c *observed, a *arguments) action {
	options := &arguments{doc: a.must("driverInfoOptions").document("driverInfoOptions")}
	lib := metadata.Library{
		Name: options.must("name").text("name"), Version: options.text("version"),
		Platform: options.text("platform"),
	}
	a.adopt(options)
	return func(context.Context) outcome { return failed(c.AppendMetadata(lib)) }
}

func closeClient(_ *run, c *observed, _ *arguments) action {
	return func(ctx context.Context) outcome { return failed(c.Close(ctx)) }
}

func listDatabases(_ *run, c *observed, a *arguments) action {
	options := client.ListDatabasesOptions{
		Common: inherited{}.lists(a),
		Filter: a.document("filter"),
	}
	return func(ctx context.Context) outcome {
		docs, err := c.ListDatabases(ctx, options)
		return orFailed(list(docs), err)
	}
}

func listDatabaseNames(_ *run, c *observed, a *arguments) action {
	options := client.ListDatabasesOptions{
		Common: inherited{}.lists(a),
		Filter: a.document("filter"),
	}
	return func(ctx context.Context) outcome {
		names, err := c.ListDatabaseNames(ctx, options)
		return orFailed(nameList(names), err)
	}
}

// nameList returns a result of names.
func nameList(names []string) outcome {
	b := bson.NewBuilder(nil).OpenArray("list")
	for _, name := range names {
		b.String("", name)
	}
	return outcome{value: lookup(b.Close().Finish(), "list")}
}

func orFailed(out outcome, err error) outcome {
	if err != nil {
		return failed(err)
	}
	return out
}

// databaseOperations are the operations on a database.
var databaseOperations = table[*database]{
	"runCommand":          runCommand,
	"runCursorCommand":    runCursorCommand,
	"createCommandCursor": createCommandCursor,
	"createChangeStream":  watchDatabase,
	"createCollection":    createCollection,
	"dropCollection":      dropCollection,
	"modifyCollection":    modifyCollection,
	"listCollections":     listCollections,
	"listCollectionNames": listCollectionNames,
	"aggregate": func(_ *run, d *database, a *arguments) action {
		return aggregate(d.client, client.Namespace{Database: d.name}, d.inherit, a)
	},
}

// commandOf returns the command of an operation. Another argument gives the command's name.
func commandOf(a *arguments) bson.Raw {
	command, name := a.must("command", "commandName").document("command"), a.text("commandName")
	if first := command.FirstKey(); first != name && a.err == nil {
		a.err = fmt.Errorf("commandName is %q, the command's is %q", name, first)
	}
	return command
}

func runCommand(_ *run, d *database, a *arguments) action {
	command, options := commandOf(a), client.RunCommandOptions{Common: d.inherit.command(a)}
	return func(ctx context.Context) outcome {
		reply, err := d.client.RunCommand(ctx, d.name, command, options)
		if err != nil {
			return failed(err)
		}
		return outcome{value: bson.DocumentValue(reply)}
	}
}

// commandCursor runs a command that opens a cursor.
func commandCursor(d *database, a *arguments) opener {
	command := commandOf(a)
	options := client.RunCursorCommandOptions{
		Common:      d.inherit.command(a),
		TimeoutMode: a.timeoutMode(), CursorType: a.cursorType(),
		BatchSize: a.batchSize(), MaxTimeMS: a.int64("maxTimeMS"),
	}
	options.Comment = a.value("comment")
	return func(ctx context.Context) (*cursor.Cursor, error) {
		return d.client.RunCursorCommand(ctx, d.name, command, options)
	}
}

func runCursorCommand(_ *run, d *database, a *arguments) action {
	return drained(commandCursor(d, a))
}

func createCommandCursor(_ *run, d *database, a *arguments) action {
	return opened(commandCursor(d, a))
}

func createCollection(_ *run, d *database, a *arguments) action {
	name := a.must("collection").text("collection")
	options := client.CreateCollectionOptions{
		Common: d.inherit.writes(a),
		Capped: a.bool("capped"), Size: a.int64("size"), Max: a.int64("max"),
		ViewOn: a.text("viewOn"), Pipeline: a.array("pipeline"),
		ClusteredIndex: a.document("clusteredIndex"), TimeSeries: a.document("timeseries"),
		ExpireAfterSeconds:           a.int64("expireAfterSeconds"),
		ChangeStreamPreAndPostImages: a.document("changeStreamPreAndPostImages"),
		Validator:                    a.document("validator"),
	}
	made := &collection{
		client: d.client, ns: client.Namespace{Database: d.name, Collection: name},
		inherit: d.inherit,
	}
	return func(ctx context.Context) outcome {
		return outcome{entity: made, err: d.client.CreateCollection(ctx, made.ns, options)}
	}
}

func dropCollection(_ *run, d *database, a *arguments) action {
	ns := client.Namespace{Database: d.name, Collection: a.must("collection").text("collection")}
	options := client.ChangeOptions{Common: d.inherit.writes(a)}
	return func(ctx context.Context) outcome {
		return failed(d.client.DropCollection(ctx, ns, options))
	}
}

func modifyCollection(_ *run, d *database, a *arguments) action {
	ns := client.Namespace{Database: d.name, Collection: a.must("collection").text("collection")}
	options := client.ModifyCollectionOptions{
		Common: d.inherit.writes(a), Index: a.document("index"), Validator: a.document("validator"),
		ChangeStreamPreAndPostImages: a.document("changeStreamPreAndPostImages"),
	}
	return func(ctx context.Context) outcome {
		return failed(d.client.ModifyCollection(ctx, ns, options))
	}
}

func listOptions(in inherited, a *arguments) client.ListOptions {
	return client.ListOptions{
		Common: in.lists(a), BatchSize: a.batchSize(), TimeoutMode: a.timeoutMode(),
	}
}

func listCollectionsOptions(d *database, a *arguments) client.ListCollectionsOptions {
	return client.ListCollectionsOptions{
		ListOptions: listOptions(d.inherit, a), Filter: a.document("filter"),
		NameOnly: a.bool("nameOnly"), AuthorizedCollections: a.bool("authorizedCollections"),
	}
}

func listCollections(_ *run, d *database, a *arguments) action {
	options := listCollectionsOptions(d, a)
	return drained(func(ctx context.Context) (*cursor.Cursor, error) {
		return d.client.ListCollections(ctx, d.name, options)
	})
}

func listCollectionNames(_ *run, d *database, a *arguments) action {
	options := listCollectionsOptions(d, a)
	return func(ctx context.Context) outcome {
		names, err := d.client.ListCollectionNames(ctx, d.name, options)
		return orFailed(nameList(names), err)
	}
}
