package client

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
)

// FindOneAndUpdate updates one document and returns it, as it was before or is after.
func (c *Client) FindOneAndUpdate(ctx context.Context, ns Namespace, filter bson.Raw, update bson.Value, opt FindOneAndUpdateOptions) (FindOneAndResult, error) {
	var ck check
	ck.update(update)
	return c.findAndModify(ctx, ns, findAndModify{filter: filter, update: update, opt: opt}, &ck)
}

// FindOneAndReplace replaces one document and returns it, as it was before or is after.
func (c *Client) FindOneAndReplace(ctx context.Context, ns Namespace, filter, replacement bson.Raw, opt FindOneAndReplaceOptions) (FindOneAndResult, error) {
	var ck check
	ck.replacement(replacement)
	return c.findAndModify(ctx, ns, findAndModify{filter: filter, update: bson.DocumentValue(replacement), opt: opt.update()}, &ck)
}

// FindOneAndDelete deletes one document and returns it.
func (c *Client) FindOneAndDelete(ctx context.Context, ns Namespace, filter bson.Raw, opt FindOneAndDeleteOptions) (FindOneAndResult, error) {
	return c.findAndModify(ctx, ns, findAndModify{filter: filter, opt: opt.update()}, &check{})
}

func (o *FindOneAndReplaceOptions) update() FindOneAndUpdateOptions {
	return FindOneAndUpdateOptions{
		BypassDocumentValidation: o.BypassDocumentValidation, Collation: o.Collation, Comment: o.Comment, Hint: o.Hint, Let: o.Let,
		MaxTimeMS: o.MaxTimeMS, Projection: o.Projection, ReturnDocument: o.ReturnDocument, Sort: o.Sort, Upsert: o.Upsert,
		WriteConcern: o.WriteConcern, Extra: o.Extra, RunOn: o.RunOn,
	}
}

func (o *FindOneAndDeleteOptions) update() FindOneAndUpdateOptions {
	return FindOneAndUpdateOptions{
		Collation: o.Collation, Comment: o.Comment, Hint: o.Hint, Let: o.Let, MaxTimeMS: o.MaxTimeMS, Projection: o.Projection,
		Sort: o.Sort, WriteConcern: o.WriteConcern, Extra: o.Extra, RunOn: o.RunOn,
	}
}

func (c *Client) findAndModify(ctx context.Context, ns Namespace, cmd findAndModify, ck *check) (FindOneAndResult, error) {
	ck.namespace(ns)
	ck.hint(cmd.opt.Hint)
	ck.extra(cmd.opt.Extra, findAndModifyFields)
	cmd.collection, cmd.writeConcern = ns.Collection, c.writeConcernFor(ctx, cmd.opt.WriteConcern, ck)
	if ck.err != nil {
		return FindOneAndResult{}, ck.err
	}
	res, err := c.runner.Run(ctx, &operation.Operation{
		Database: ns.Database, Command: &cmd, Kind: operation.Write, Unacknowledged: unacknowledged(cmd.writeConcern),
		DeadlineAsMaxTime: cmd.opt.MaxTimeMS == nil, RunOn: cmd.opt.RunOn,
	})
	out := FindOneAndResult{Acknowledged: !unacknowledged(cmd.writeConcern), WriteConcernError: res.WriteConcernError}
	if err != nil || !out.Acknowledged {
		return out, err
	}
	v, ok := res.Reply.Lookup("value")
	if !ok || v.IsNull() {
		return out, nil
	}
	r := replyReader{from: res.Server}
	if out.Document, ok = v.Document(); !ok {
		r.wrongType("value", v)
	}
	return out, r.err
}

// findAndModify is the findAndModify command; without an update it removes.
type findAndModify struct {
	collection   string
	filter       bson.Raw
	update       bson.Value
	opt          FindOneAndUpdateOptions
	writeConcern WriteConcern
}

var findAndModifyFields = []string{
	"findAndModify", "findandmodify", "query", "sort", "remove", "update", "upsert", "new", "fields", "arrayFilters",
	"bypassDocumentValidation", "collation", "hint", "let", "comment", "projection", "returnDocument",
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
	b.AppendElements(o.Extra)
	appendInt64(b, "maxTimeMS", o.MaxTimeMS)
	return nil
}
