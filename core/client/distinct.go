package client

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
)

// Distinct returns the distinct values of a field.
func (c *Client) Distinct(
	ctx context.Context, ns Namespace, key string, opt DistinctOptions,
) (bson.Array, error) {
	ck := check{client: c}
	ck.namespace(ns)
	ck.hint(opt.Hint)
	ck.common(&opt.Common, readOptions, distinctFields)
	if key == "" {
		ck.refuse("key", "is empty")
	}
	if ck.err != nil {
		return nil, ck.err
	}
	cmd := distinct{
		collection: ns.Collection, key: key, opt: opt,
	}
	op := c.read(ns, &cmd, &opt.Common)
	op.MaxTimeMS = opt.MaxTimeMS
	res, err := c.run(ctx, &op, &opt.Common)
	if err != nil {
		return nil, err
	}
	r := replyReader{from: res.Server}
	v, ok := res.Reply.Lookup("values")
	if !ok {
		r.fail("values", "is missing")
		return nil, r.err
	}
	values, ok := v.Array()
	if !ok {
		r.wrongType("values", v)
	}
	return values, r.err
}

// distinct builds the distinct command.
type distinct struct {
	collection, key string
	opt             DistinctOptions
}

var distinctFields = []string{"distinct", "key", "query", "collation", "comment", "hint"}

func (*distinct) Name() string { return "distinct" }

func (d *distinct) Append(b *bson.Builder, to operation.Target) error {
	o := &d.opt
	b.String("distinct", d.collection).String("key", d.key)
	b.Document("query", o.Filter)
	appendDocument(b, "collation", o.Collation)
	appendValue(b, "comment", o.Comment)
	appendValue(b, "hint", o.Hint)
	o.appendTo(b, to)
	return nil
}
