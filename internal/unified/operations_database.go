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
	"appendMetadata":    appendMetadata,
	"close":             closeClient,
	"listDatabases":     listDatabases,
	"listDatabaseNames": listDatabaseNames,
}

func appendMetadata(_ *run, c *observed, a *arguments) action {
	options := &arguments{doc: a.must("driverInfoOptions").document("driverInfoOptions")}
	lib := metadata.Library{
		Name: options.must("name").text("name"), Version: options.text("version"),
		Platform: options.text("platform"),
	}
	if err := options.done(); err != nil && a.err == nil {
		a.err = err
	}
	return func(context.Context) outcome { return failed(c.AppendMetadata(lib)) }
}

func closeClient(_ *run, c *observed, _ *arguments) action {
	return func(ctx context.Context) outcome { return failed(c.Close(ctx)) }
}

// listDatabases runs the command, for which the driver has no helper yet.
func listDatabases(_ *run, c *observed, a *arguments) action { return databases(c, a, false) }

func listDatabaseNames(_ *run, c *observed, a *arguments) action { return databases(c, a, true) }

func databases(c *observed, a *arguments, namesOnly bool) action {
	filter, options := a.document("filter"), client.RunCommandOptions{Common: inherited{}.command(a)}
	return func(ctx context.Context) outcome {
		b := bson.NewBuilder(nil).Int32("listDatabases", 1)
		if filter != nil {
			b.Document("filter", filter)
		}
		if namesOnly {
			b.Bool("nameOnly", true)
		}
		reply, err := c.RunCommand(ctx, "admin", b.Finish(), options)
		return outcome{value: lookup(reply, "databases"), items: true, err: err}
	}
}

// databaseOperations are the operations on a database.
var databaseOperations = table[*database]{
	"runCommand":          runCommand,
	"runCursorCommand":    runCursorCommand,
	"createCommandCursor": createCommandCursor,
	"createCollection":    createCollection,
	"dropCollection":      dropCollection,
	"aggregate": func(_ *run, d *database, a *arguments) action {
		return aggregate(d.client, client.Namespace{Database: d.name}, d.inherit, a)
	},
}

// commandOf is the command of an operation, whose name stands beside it.
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
		BatchSize: a.int32("batchSize"), MaxTimeMS: a.int64("maxTimeMS"),
	}
	options.Comment = a.value("comment")
	return func(ctx context.Context) (*cursor.Cursor, error) {
		return d.client.RunCursorCommand(ctx, d.name, command, options)
	}
}

func runCursorCommand(_ *run, d *database, a *arguments) action { return drained(commandCursor(d, a)) }

func createCommandCursor(_ *run, d *database, a *arguments) action {
	return opened(commandCursor(d, a))
}

// createCollection runs the command, for which the driver has no helper yet.
func createCollection(_ *run, d *database, a *arguments) action {
	name := a.must("collection").text("collection")
	options := client.RunCommandOptions{Common: d.inherit.command(a)}
	b := bson.NewBuilder(nil).String("create", name)
	for _, option := range []string{"capped", "size", "max"} {
		if v := a.value(option); !v.IsZero() {
			b.Value(option, v)
		}
	}
	return func(ctx context.Context) outcome {
		_, err := d.client.RunCommand(ctx, d.name, b.Finish(), options)
		made := &collection{client: d.client, ns: client.Namespace{Database: d.name, Collection: name}, inherit: d.inherit}
		return outcome{entity: made, err: err}
	}
}

// dropCollection runs the command, for which the driver has no helper yet.
func dropCollection(_ *run, d *database, a *arguments) action {
	name := a.must("collection").text("collection")
	options := client.RunCommandOptions{Common: d.inherit.command(a)}
	return func(ctx context.Context) outcome {
		_, err := d.client.RunCommand(ctx, d.name, bson.NewBuilder(nil).String("drop", name).Finish(), options)
		return failed(err)
	}
}
