package client

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
)

// FindOneAndUpdate updates the first document that matches and returns it, as it was before or is
// now: see ReturnDocument. update is a document of operators or a pipeline (array).
func (c *Client) FindOneAndUpdate(
	ctx context.Context, ns Namespace, filter bson.Raw, update bson.Value, opt FindOneAndOptions,
) (FindOneAndResult, error) {
	ck := check{client: c}
	ck.update(update)
	return c.findAndModify(ctx, ns, findAndModify{filter: filter, update: update, opt: opt}, &ck)
}

// FindOneAndReplace replaces the first document that matches and returns it, as it was before or is
// now: see ReturnDocument.
func (c *Client) FindOneAndReplace(
	ctx context.Context, ns Namespace, filter, replacement bson.Raw, opt FindOneAndOptions,
) (FindOneAndResult, error) {
	ck := check{client: c}
	ck.replacement(replacement)
	ck.unused("arrayFilters", opt.ArrayFilters != nil, "an update by operators")
	return c.findAndModify(ctx, ns,
		findAndModify{filter: filter, update: bson.DocumentValue(replacement), opt: opt}, &ck)
}

// FindOneAndDelete deletes the first document that matches and returns it.
func (c *Client) FindOneAndDelete(
	ctx context.Context, ns Namespace, filter bson.Raw, opt FindOneAndOptions,
) (FindOneAndResult, error) {
	ck := check{client: c}
	ck.unused("arrayFilters", opt.ArrayFilters != nil, "an update by operators")
	const purpose = "an update"
	ck.unused("bypassDocumentValidation", opt.BypassDocumentValidation != nil, purpose)
	ck.unused("returnDocument", opt.ReturnDocument != ReturnUnset, purpose)
	ck.unused("upsert", opt.Upsert != nil, purpose)
	return c.findAndModify(ctx, ns, findAndModify{filter: filter, opt: opt}, &ck)
}

func (c *Client) findAndModify(
	ctx context.Context, ns Namespace, cmd findAndModify, ck *check,
) (FindOneAndResult, error) {
	ck.namespace(ns)
	ck.hint(cmd.opt.Hint)
	ck.common(&cmd.opt.Common, writeOptions, findAndModifyFields)
	cmd.collection, cmd.writeConcern = ns.Collection, c.writeConcernFor(ctx, &cmd.opt.Common, ck)
	if ck.err != nil {
		return FindOneAndResult{}, ck.err
	}
	op := write(ns, &cmd, cmd.writeConcern, &cmd.opt.Common)
	op.Retry = true
	op.MaxTimeMS = cmd.opt.MaxTimeMS
	res, err := c.run(ctx, &op, &cmd.opt.Common)
	out := FindOneAndResult{
		Acknowledged:      !unacknowledged(cmd.writeConcern),
		WriteConcernError: res.WriteConcernError,
	}
	if err != nil || !out.Acknowledged {
		return out, err
	}
	out.UpsertedID, _ = res.Reply.Lookup("lastErrorObject", "upserted")
	out.Repeated = res.Reply.Has("retriedStmtId")
	v, ok := res.Reply.Lookup("value")
	if !ok || v.IsNull() {
		return out, nil
	}
	r := replyReader{from: res.Server}
	if out.Document, ok = v.Document(); !ok {
		r.wrongType("value", v)
	}
	return out, r.written()
}

// findAndModify builds the findAndModify command; without an update it removes.
type findAndModify struct {
	collection   string
	filter       bson.Raw
	update       bson.Value
	opt          FindOneAndOptions
	writeConcern WriteConcern
}

var findAndModifyFields = []string{
	"findAndModify", "findandmodify", "query", "sort", "remove", "update", "upsert", "new",
	"fields",
	"arrayFilters",
	"bypassDocumentValidation", "collation", "hint", "let", "comment", "projection",
	"returnDocument",
}

func (*findAndModify) Name() string { return "findAndModify" }

func (f *findAndModify) Append(b *bson.Builder, to operation.Target) error {
	o := &f.opt
	least := int32(wireVersion42)
	if unacknowledged(f.writeConcern) {
		least = wireVersion44
	}
	if err := hintGate(o.Hint, to.Hello.MaxWireVersion, least); err != nil {
		return err
	}
	b.String("findAndModify", f.collection).Document("query", f.filter)
	appendDocument(b, "sort", o.Sort)
	if f.update.IsZero() {
		b.Bool("remove", true)
	} else {
		b.Value("update", f.update)
	}
	if o.ReturnDocument != ReturnUnset {
		b.Bool("new", o.ReturnDocument == ReturnAfter)
	}
	appendBool(b, "upsert", o.Upsert)
	appendDocument(b, "fields", o.Projection)
	appendArray(b, "arrayFilters", o.ArrayFilters)
	appendBool(b, "bypassDocumentValidation", o.BypassDocumentValidation)
	appendDocument(b, "collation", o.Collation)
	appendValue(b, "hint", o.Hint)
	appendDocument(b, "let", o.Let)
	appendValue(b, "comment", o.Comment)
	appendWriteConcern(b, f.writeConcern)
	o.appendTo(b, to)
	return nil
}
