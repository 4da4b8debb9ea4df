package client

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
)

// CountDocuments counts, by an aggregation, the documents that match. The filter must not have
// $where or $near: use $expr and $geoWithin instead.
func (c *Client) CountDocuments(
	ctx context.Context, ns Namespace, opt CountDocumentsOptions,
) (int64, error) {
	ck := check{client: c}
	ck.namespace(ns)
	ck.hint(opt.Hint)
	ck.common(&opt.Common, readOptions, aggregateFields)
	if ck.err != nil {
		return 0, ck.err
	}
	cmd := countDocuments{
		collection: ns.Collection, opt: opt,
	}
	op := c.read(ns, &cmd, &opt.Common)
	op.Name = "countDocuments"
	op.MaxTimeMS = opt.MaxTimeMS
	doc, found, from, err := cursor.One(ctx, &c.runner, op, opt.Timeout)
	if err != nil || !found {
		return 0, err
	}
	r := replyReader{from: from}
	n := r.count(doc, "n", "cursor.firstBatch.0.n")
	return n, r.err
}

// countDocuments builds the aggregation that counts.
type countDocuments struct {
	collection string
	opt        CountDocumentsOptions
}

func (*countDocuments) Name() string { return "aggregate" }

func (a *countDocuments) Append(b *bson.Builder, to operation.Target) error {
	o := &a.opt
	b.String("aggregate", a.collection)
	b.OpenArray("pipeline")
	b.OpenDocument("").Document("$match", o.Filter).Close()
	if o.Skip != nil {
		b.OpenDocument("").Int64("$skip", *o.Skip).Close()
	}
	if o.Limit != nil {
		b.OpenDocument("").Int64("$limit", *o.Limit).Close()
	}
	b.OpenDocument("").OpenDocument("$group").Int32("_id", 1)
	b.OpenDocument("n").Int32("$sum", 1).Close().Close().Close()
	b.Close()
	b.OpenDocument("cursor").Close()
	appendDocument(b, "collation", o.Collation)
	appendValue(b, "comment", o.Comment)
	appendValue(b, "hint", o.Hint)
	o.appendTo(b, to)
	return nil
}

const codeNamespaceNotFound = 26

// EstimatedDocumentCount returns the number of documents by the collection's metadata, 0 for a
// collection that does not exist.
func (c *Client) EstimatedDocumentCount(
	ctx context.Context, ns Namespace, opt EstimatedDocumentCountOptions,
) (int64, error) {
	ck := check{client: c}
	ck.namespace(ns)
	ck.common(&opt.Common, readOptions, estimateFields)
	if ck.err != nil {
		return 0, ck.err
	}
	cmd := estimate{
		collection: ns.Collection, opt: opt,
	}
	op := c.read(ns, &cmd, &opt.Common)
	op.MaxTimeMS = opt.MaxTimeMS
	res, err := c.run(ctx, &op, &opt.Common)
	if mongoerr.Code(err) == codeNamespaceNotFound {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	r := replyReader{from: res.Server}
	n := r.count(res.Reply, "n", "n")
	return n, r.err
}

// estimate builds the count command, without a query.
type estimate struct {
	collection string
	opt        EstimatedDocumentCountOptions
}

var estimateFields = []string{"count", "comment"}

func (*estimate) Name() string { return "count" }

func (e *estimate) Append(b *bson.Builder, to operation.Target) error {
	b.String("count", e.collection)
	appendValue(b, "comment", e.opt.Comment)
	e.opt.appendTo(b, to)
	return nil
}
