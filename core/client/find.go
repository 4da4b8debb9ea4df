package client

import (
	"context"
	"math"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/operation"
)

// Find opens a cursor over the documents of a collection.
func (c *Client) Find(ctx context.Context, ns Namespace, opt FindOptions) (*cursor.Cursor, error) {
	f := find{collection: ns.Collection, opt: opt}
	ck := check{client: c}
	ck.await("maxAwaitTimeMS", opt.MaxAwaitTimeMS, c.timeout(&opt.Common))
	if err := f.prepare(ns, &ck); err != nil {
		return nil, err
	}
	op := c.read(ns, &f, &opt.Common)
	op.MaxTimeMS, op.DeadlineAsMaxTime = opt.MaxTimeMS, f.deadlineAsMaxTime()
	return cursor.Open(ctx, &c.runner, op, f.cursorOptions())
}

// FindOne returns the first document that matches; found is false if none does.
func (c *Client) FindOne(
	ctx context.Context, ns Namespace, opt FindOptions,
) (doc bson.Raw, found bool, err error) {
	f := find{collection: ns.Collection, opt: opt}
	ck := check{client: c}
	ck.one(&opt)
	if err := f.prepare(ns, &ck); err != nil {
		return nil, false, err
	}
	f.limit, f.single = 1, true
	op := c.read(ns, &f, &opt.Common)
	op.MaxTimeMS = opt.MaxTimeMS
	doc, found, _, err = cursor.One(ctx, &c.runner, op, opt.Timeout)
	return doc, found, err
}

// one objects to options that FindOne has no use for: they shape batches.
func (c *check) one(o *FindOptions) {
	const purpose = "a cursor"
	c.unused("limit", o.Limit != nil, purpose)
	c.unused("batchSize", o.BatchSize != nil, purpose)
	c.unused("singleBatch", o.SingleBatch != nil, purpose)
	c.unused("maxAwaitTimeMS", o.MaxAwaitTimeMS != nil, purpose)
	c.unused("tailable", o.Tailable != nil, purpose)
	c.unused("awaitData", o.AwaitData != nil, purpose)
	c.unused("noCursorTimeout", o.NoCursorTimeout != nil, purpose)
	c.unused("timeoutMode", o.TimeoutMode != TimeoutModeUnset, purpose)
}

// find builds the find command. limit, batchSize and single are sent as the options of these names.
type find struct {
	collection       string
	opt              FindOptions
	limit, batchSize int64
	single           bool
}

var findFields = []string{
	"find", "filter", "sort", "projection", "hint", "skip", "limit", "batchSize", "singleBatch",
	"comment",
	"max", "min", "returnKey", "showRecordId", "tailable", "awaitData", "oplogReplay",
	"noCursorTimeout", "allowPartialResults",
	"collation", "allowDiskUse", "let",
}

func (f *find) prepare(ns Namespace, ck *check) error {
	ck.namespace(ns)
	ck.hint(f.opt.Hint)
	ck.common(&f.opt.Common, readOptions, findFields)
	if isTrue(f.opt.Tailable) && f.opt.TimeoutMode == CursorLifetime {
		ck.refuse("timeoutMode", "must not be cursorLifetime for a tailable cursor")
	}
	f.numbers(ck)
	return ck.err
}

// numbers computes the limit, batchSize and singleBatch that are sent (find, getMore and
// killCursors, "Mapping OP_QUERY behavior to the find command limit and batchSize fields").
func (f *find) numbers(ck *check) {
	limit, batch := int64(0), int64(0)
	if f.opt.Limit != nil {
		limit = *f.opt.Limit
	}
	if f.opt.BatchSize != nil {
		batch = int64(*f.opt.BatchSize)
	}
	if limit == math.MinInt64 {
		ck.refuse("limit", "is out of range")
		return
	}
	negative := limit < 0 || batch < 0
	f.limit, f.batchSize = max(limit, -limit), max(batch, -batch)
	f.single = negative || isTrue(f.opt.SingleBatch)
	switch {
	case negative && f.limit != 0:
		f.batchSize = f.limit
	case !f.single && f.limit != 0 && f.limit == f.batchSize:
		f.batchSize++ // so that the server closes the cursor with the first batch
	}
}

// deadlineAsMaxTime reports whether the deadline is sent as maxTimeMS, which would end the cursor
// as well.
func (f *find) deadlineAsMaxTime() bool {
	if isTrue(f.opt.Tailable) {
		return isTrue(f.opt.AwaitData)
	}
	return f.single || f.opt.TimeoutMode != Iteration
}

func (f *find) cursorOptions() cursor.Options {
	o := cursor.Options{
		Comment: f.opt.Comment, Timeout: f.opt.Timeout,
		Lifetime: !isTrue(f.opt.Tailable) && f.opt.TimeoutMode != Iteration,
	}
	if f.opt.BatchSize != nil {
		o.BatchSize = max(*f.opt.BatchSize, 0)
	}
	if !f.single {
		o.Limit = f.limit
	}
	if isTrue(f.opt.Tailable) && isTrue(f.opt.AwaitData) {
		o.MaxAwaitTimeMS = f.opt.MaxAwaitTimeMS
	}
	return o
}

func (*find) Name() string { return "find" }

func (f *find) Append(b *bson.Builder, to operation.Target) error {
	o := &f.opt
	b.String("find", f.collection)
	b.Document("filter", o.Filter)
	appendDocument(b, "sort", o.Sort)
	appendDocument(b, "projection", o.Projection)
	appendValue(b, "hint", o.Hint)
	appendInt64(b, "skip", o.Skip)
	if f.limit != 0 {
		b.Int64("limit", f.limit)
	}
	if f.batchSize != 0 {
		b.Int64("batchSize", f.batchSize)
	}
	if f.single {
		b.Bool("singleBatch", true)
	}
	appendValue(b, "comment", o.Comment)
	appendDocument(b, "max", o.Max)
	appendDocument(b, "min", o.Min)
	appendBool(b, "returnKey", o.ReturnKey)
	appendBool(b, "showRecordId", o.ShowRecordID)
	appendBool(b, "tailable", o.Tailable)
	appendBool(b, "awaitData", o.AwaitData)
	appendBool(b, "oplogReplay", o.OplogReplay)
	appendBool(b, "noCursorTimeout", o.NoCursorTimeout)
	appendBool(b, "allowPartialResults", o.AllowPartialResults)
	appendDocument(b, "collation", o.Collation)
	appendBool(b, "allowDiskUse", o.AllowDiskUse)
	appendDocument(b, "let", o.Let)
	o.appendTo(b, to)
	return nil
}
