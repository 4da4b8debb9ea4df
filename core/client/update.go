package client

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
)

// UpdateOne updates the first document that matches; update is a document of operators or a
// pipeline (array).
func (c *Client) UpdateOne(
	ctx context.Context, ns Namespace, filter bson.Raw, update bson.Value, opt UpdateOptions,
) (UpdateResult, error) {
	ck := check{client: c}
	ck.update(update)
	return c.update(ctx, ns, updateCommand{filter: filter, update: update, opt: opt}, &ck)
}

// UpdateMany updates all documents that match; update is a document of operators or a pipeline
// (array).
func (c *Client) UpdateMany(
	ctx context.Context, ns Namespace, filter bson.Raw, update bson.Value, opt UpdateOptions,
) (UpdateResult, error) {
	ck := check{client: c}
	ck.update(update)
	ck.unused("sort", opt.Sort != nil, "an update of one document")
	return c.update(ctx, ns, updateCommand{filter: filter, update: update, opt: opt, multi: true},
		&ck)
}

// ReplaceOne replaces the first document that matches; replacement must not begin with an
// operator.
func (c *Client) ReplaceOne(
	ctx context.Context, ns Namespace, filter, replacement bson.Raw, opt UpdateOptions,
) (UpdateResult, error) {
	ck := check{client: c}
	ck.replacement(replacement)
	ck.unused("arrayFilters", opt.ArrayFilters != nil, "an update by operators")
	return c.update(ctx, ns,
		updateCommand{filter: filter, update: bson.DocumentValue(replacement), opt: opt}, &ck)
}

func (c *Client) update(
	ctx context.Context, ns Namespace, cmd updateCommand, ck *check,
) (UpdateResult, error) {
	ck.namespace(ns)
	ck.hint(cmd.opt.Hint)
	ck.common(&cmd.opt.Common, writeOptions, updateFields)
	cmd.collection, cmd.writeConcern = ns.Collection, c.writeConcernFor(ctx, &cmd.opt.Common, ck)
	if ck.err != nil {
		return UpdateResult{}, ck.err
	}
	op := write(ns, &cmd, cmd.writeConcern, &cmd.opt.Common)
	op.Retry = !cmd.multi
	res, err := c.run(ctx, &op, &cmd.opt.Common)
	out := UpdateResult{
		Acknowledged:      !unacknowledged(cmd.writeConcern),
		WriteConcernError: res.WriteConcernError,
	}
	if err != nil || !out.Acknowledged {
		return out, err
	}
	err = out.read(res)
	return out, err
}

// read takes the counts from the reply of an update command with one statement.
func (u *UpdateResult) read(res operation.Result) error {
	r := replyReader{from: res.Server}
	n, hasN := int64(0), false
	for key, v := range res.Reply.All() {
		switch key {
		case "n":
			n, hasN = r.int64(key, v), true
		case "nModified":
			u.ModifiedCount = r.int64(key, v)
		case "upserted":
			u.UpsertedID, u.UpsertedCount = r.upserted(v)
		}
	}
	if !hasN {
		r.fail("n", "is missing")
	}
	u.MatchedCount = n - u.UpsertedCount
	return r.written()
}

// upserted reads the reply's list of upserted documents. One statement makes at most one.
func (r *replyReader) upserted(v bson.Value) (id bson.Value, n int64) {
	list, ok := v.Array()
	if !ok {
		r.wrongType("upserted", v)
		return bson.Value{}, 0
	}
	for _, entry := range list.All() {
		d, ok := entry.Document()
		if !ok {
			r.wrongType("upserted.0", entry)
			break
		}
		if id, ok = d.Lookup("_id"); !ok {
			r.fail("upserted.0._id", "is missing")
			break
		}
		return id, 1
	}
	return bson.Value{}, 0
}

// updateCommand builds the update command with one statement.
type updateCommand struct {
	collection   string
	filter       bson.Raw
	update       bson.Value
	multi        bool
	opt          UpdateOptions
	writeConcern WriteConcern
}

var updateFields = []string{
	"update", "updates", "ordered", "bypassDocumentValidation", "comment", "let",
	"arrayFilters", "collation", "hint", "sort", "upsert", "multi",
}

func (*updateCommand) Name() string { return "update" }

func (u *updateCommand) Append(b *bson.Builder, to operation.Target) error {
	o := &u.opt
	if unacknowledged(u.writeConcern) {
		if err := hintGate(o.Hint, to.Hello.MaxWireVersion, wireVersion42); err != nil {
			return err
		}
	}
	b.String("update", u.collection).Bool("ordered", true) // the default, as all drivers send it
	b.OpenArray("updates").OpenDocument("").Document("q", u.filter).Value("u", u.update)
	if u.multi {
		b.Bool("multi", true)
	}
	appendBool(b, "upsert", o.Upsert)
	appendArray(b, "arrayFilters", o.ArrayFilters)
	appendDocument(b, "collation", o.Collation)
	appendValue(b, "hint", o.Hint)
	appendDocument(b, "sort", o.Sort)
	b.Close().Close()
	appendBool(b, "bypassDocumentValidation", o.BypassDocumentValidation)
	appendDocument(b, "let", o.Let)
	appendValue(b, "comment", o.Comment)
	appendWriteConcern(b, u.writeConcern)
	o.appendTo(b, to)
	return nil
}
