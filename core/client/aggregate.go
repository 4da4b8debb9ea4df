package client

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/operation"
)

// Aggregate runs a pipeline on a collection, or on the database if ns.Collection is empty. A
// pipeline that ends with $out or $merge returns an empty cursor, which has the write concern
// error if there is one. It runs where the read preference says; while a server older than 5.0 is
// known, it runs on the primary.
func (c *Client) Aggregate(
	ctx context.Context, ns Namespace, opt AggregateOptions,
) (*cursor.Cursor, error) {
	a := aggregate{
		collection: ns.Collection, opt: opt,
	}
	ck := check{client: c}
	ck.database(ns.Database)
	ck.hint(opt.Hint)
	ck.common(&opt.Common, readOptions|writeOptions, aggregateFields)
	ck.await("maxAwaitTimeMS", opt.MaxAwaitTimeMS, c.timeout(&opt.Common))
	op := c.read(ns, &a, &opt.Common)
	if writesOutput(opt.Pipeline) {
		a.output, a.writeConcern = true, c.writeConcernFor(ctx, &opt.Common, &ck)
		op.Kind = operation.Output
	}
	op.MaxTimeMS, op.DeadlineAsMaxTime = opt.MaxTimeMS, a.output || opt.TimeoutMode != Iteration
	if ck.err != nil {
		return nil, ck.err
	}
	return cursor.Open(ctx, &c.runner, op, a.cursorOptions())
}

// writesOutput reports whether the last stage of the pipeline is $out or $merge.
func writesOutput(pipeline bson.Array) bool {
	var last bson.Raw
	for stage := range pipeline.Documents() {
		last = stage
	}
	name := last.FirstKey()
	return name == "$out" || name == "$merge"
}

// aggregate builds the aggregate command.
type aggregate struct {
	collection   string // empty: the database
	opt          AggregateOptions
	output       bool
	writeConcern WriteConcern
}

var aggregateFields = []string{
	"aggregate", "pipeline", "cursor", "allowDiskUse", "bypassDocumentValidation", "collation",
	"comment", "hint", "let",
}

func (a *aggregate) cursorOptions() cursor.Options {
	o := cursor.Options{
		Comment: a.opt.Comment, MaxAwaitTimeMS: a.opt.MaxAwaitTimeMS, Timeout: a.opt.Timeout,
		Lifetime: a.opt.TimeoutMode != Iteration,
	}
	if a.opt.BatchSize != nil {
		o.BatchSize = *a.opt.BatchSize
	}
	return o
}

func (*aggregate) Name() string { return "aggregate" }

func (a *aggregate) Append(b *bson.Builder, to operation.Target) error {
	o := &a.opt
	if a.collection == "" {
		b.Int32("aggregate", 1)
	} else {
		b.String("aggregate", a.collection)
	}
	b.Array("pipeline", o.Pipeline)
	b.OpenDocument("cursor")
	if o.BatchSize != nil && !a.output {
		b.Int32("batchSize", *o.BatchSize)
	}
	b.Close()
	appendBool(b, "allowDiskUse", o.AllowDiskUse)
	appendBool(b, "bypassDocumentValidation", o.BypassDocumentValidation)
	appendDocument(b, "collation", o.Collation)
	appendValue(b, "comment", o.Comment)
	appendValue(b, "hint", o.Hint)
	appendDocument(b, "let", o.Let)
	if a.output {
		appendWriteConcern(b, a.writeConcern)
	}
	o.appendTo(b, to)
	return nil
}
