package client

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
)

// ExplainFind returns how the server would run a find. Of the find's Common it takes all but
// ReadConcern and WriteConcern; Comment and Extra go into the find that is explained. No read
// concern is sent. The MaxTimeMS of the find limits the explain command. verbosity is as in
// ExplainOptions.
func (c *Client) ExplainFind(
	ctx context.Context, ns Namespace, opt FindOptions, verbosity string,
) (bson.Raw, error) {
	f := find{collection: ns.Collection, opt: opt}
	ck := check{client: c}
	ck.unused("readConcern", opt.ReadConcern != nil, "operations that are run")
	if err := f.prepare(ns, &ck); err != nil {
		return nil, err
	}
	return c.explain(ctx, ns, &f, verbosity, &opt.Common, opt.MaxTimeMS)
}

// ExplainAggregate returns how the server would run a pipeline on a collection, or on the database
// if ns.Collection is empty. Of Common it takes what ExplainFind takes.
func (c *Client) ExplainAggregate(
	ctx context.Context, ns Namespace, opt AggregateOptions, verbosity string,
) (bson.Raw, error) {
	a := aggregate{collection: ns.Collection, opt: opt, output: writesOutput(opt.Pipeline)}
	ck := check{client: c}
	ck.database(ns.Database)
	ck.hint(opt.Hint)
	ck.unused("readConcern", opt.ReadConcern != nil, "operations that are run")
	ck.common(&opt.Common, readOptions, aggregateFields)
	if ck.err != nil {
		return nil, ck.err
	}
	return c.explain(ctx, ns, &a, verbosity, &opt.Common, opt.MaxTimeMS)
}

func (c *Client) explain(
	ctx context.Context, ns Namespace, of operation.Command, verbosity string, o *Common,
	maxTimeMS *int64,
) (bson.Raw, error) {
	op := c.read(ns, &explain{of: of, verbosity: verbosity}, o)
	op.ReadConcern, op.Retry = operation.ReadConcern{}, false
	op.MaxTimeMS = maxTimeMS
	res, err := c.run(ctx, &op, o)
	return res.Reply, err
}

// explain builds the explain command of another command.
type explain struct {
	of        operation.Command
	verbosity string
}

func (*explain) Name() string { return "explain" }

func (e *explain) Append(b *bson.Builder, to operation.Target) error {
	b.OpenDocument("explain")
	if err := e.of.Append(b, to); err != nil {
		return err
	}
	b.Close()
	appendString(b, "verbosity", e.verbosity)
	return nil
}
