package client

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
)

// DeleteOne deletes the first document that matches.
func (c *Client) DeleteOne(
	ctx context.Context, ns Namespace, filter bson.Raw, opt DeleteOptions,
) (DeleteResult, error) {
	return c.delete(ctx, ns, deleteCommand{filter: filter, limit: 1, opt: opt})
}

// DeleteMany deletes all documents that match.
func (c *Client) DeleteMany(
	ctx context.Context, ns Namespace, filter bson.Raw, opt DeleteOptions,
) (DeleteResult, error) {
	return c.delete(ctx, ns, deleteCommand{filter: filter, opt: opt})
}

func (c *Client) delete(
	ctx context.Context, ns Namespace, cmd deleteCommand,
) (DeleteResult, error) {
	ck := check{client: c}
	ck.namespace(ns)
	ck.hint(cmd.opt.Hint)
	ck.common(&cmd.opt.Common, writeOptions, deleteFields)
	cmd.collection, cmd.writeConcern = ns.Collection, c.writeConcernFor(ctx, &cmd.opt.Common, &ck)
	if ck.err != nil {
		return DeleteResult{}, ck.err
	}
	op := write(ns, &cmd, cmd.writeConcern, &cmd.opt.Common)
	op.Retry = cmd.limit == 1
	res, err := c.run(ctx, &op, &cmd.opt.Common)
	out := DeleteResult{
		Acknowledged:      !unacknowledged(cmd.writeConcern),
		WriteConcernError: res.WriteConcernError,
	}
	if err != nil || !out.Acknowledged {
		return out, err
	}
	r := replyReader{from: res.Server}
	out.DeletedCount = r.count(res.Reply, "n", "n")
	return out, r.written()
}

// deleteCommand builds the delete command with one statement. limit is 1, or 0 for all.
type deleteCommand struct {
	collection   string
	filter       bson.Raw
	limit        int32
	opt          DeleteOptions
	writeConcern WriteConcern
}

var deleteFields = []string{
	"delete", "deletes", "ordered", "comment", "let", "collation", "hint", "limit",
}

func (*deleteCommand) Name() string { return "delete" }

func (d *deleteCommand) Append(b *bson.Builder, to operation.Target) error {
	o := &d.opt
	if unacknowledged(d.writeConcern) {
		if err := hintGate(o.Hint, to.Hello.MaxWireVersion, wireVersion44); err != nil {
			return err
		}
	}
	b.String("delete", d.collection).Bool("ordered", true) // the default, as all drivers send it
	b.OpenArray("deletes").OpenDocument("").Document("q", d.filter).Int32("limit", d.limit)
	appendDocument(b, "collation", o.Collation)
	appendValue(b, "hint", o.Hint)
	b.Close().Close()
	appendDocument(b, "let", o.Let)
	appendValue(b, "comment", o.Comment)
	appendWriteConcern(b, d.writeConcern)
	o.appendTo(b, to)
	return nil
}
