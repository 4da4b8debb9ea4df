package client

import (
	"context"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/operation"
)

// helper builds the command of a helper for databases, collections and indexes: its first element,
// and the options that add appends.
type helper struct {
	name string
	// operation is the name of the operation in events; empty: the command's.
	operation string
	target    bson.Value // the value of the first element
	common    *Common
	wc        WriteConcern
	// least is the wire version without which add must not be called; needs names what asks for it.
	least int32
	needs string
	add   func(*bson.Builder)
}

// The options of Common that helpers take: those that change something, and those that list.
const (
	changeOptions = takesComment | takesWriteConcern | takesRawData | takesExtra
	listOptions   = takesComment | takesRawData | takesExtra
)

// one is the value of a command's first element that says nothing.
var one = bson.Int32Value(1)

func (h *helper) Name() string { return h.name }

// collection returns the name of the collection that the command is about, empty if it is about
// none or two.
func (h *helper) collection() string {
	if h.name == "renameCollection" {
		return ""
	}
	name, _ := h.target.Str()
	return name
}

func (h *helper) Append(b *bson.Builder, to operation.Target) error {
	if to.Hello.MaxWireVersion < h.least {
		return &ArgumentError{Argument: h.needs, Problem: "is not supported by the server"}
	}
	b.Value(h.name, h.target)
	if h.add != nil {
		h.add(b)
	}
	appendValue(b, "comment", h.common.Comment)
	appendWriteConcern(b, h.wc)
	h.common.appendTo(b, to)
	return nil
}

// change runs a command that changes a database, a collection or an index. A write concern that
// was not satisfied is an error.
func (c *Client) change(
	ctx context.Context, db string, h helper, maxTimeMS *int64, ck *check, known []string,
) error {
	ck.database(db)
	ck.common(h.common, changeOptions, known)
	h.wc = c.writeConcernFor(ctx, h.common, ck)
	if ck.err != nil {
		return ck.err
	}
	op := write(Namespace{Database: db, Collection: h.collection()}, &h, h.wc, h.common)
	op.Name = h.operation
	op.MaxTimeMS = maxTimeMS
	res, err := c.run(ctx, &op, h.common)
	if err == nil && res.WriteConcernError != nil {
		return res.WriteConcernError
	}
	return err
}

// ListOptions holds the options of helpers that return a cursor.
type ListOptions struct {
	Common
	// BatchSize of the first and the following batches; nil is the server's.
	BatchSize   *int32
	MaxTimeMS   *int64
	TimeoutMode TimeoutMode
}

// list runs a command that opens a cursor. It runs on the primary, as the specification asks.
func (c *Client) list(
	ctx context.Context, db string, h helper, opt *ListOptions, ck *check, known []string,
) (*cursor.Cursor, error) {
	ck.database(db)
	ck.common(&opt.Common, listOptions, known)
	if ck.err != nil {
		return nil, ck.err
	}
	h.common = &opt.Common
	more := h.add
	h.add = func(b *bson.Builder) {
		if more != nil {
			more(b)
		}
		b.OpenDocument("cursor")
		if opt.BatchSize != nil {
			b.Int32("batchSize", *opt.BatchSize)
		}
		b.Close()
	}
	comment := opt.Comment
	if h.name == "listCollections" { // whose getMores take none
		comment = bson.Value{}
	}
	lifetime := opt.TimeoutMode != Iteration
	op := operation.Operation{
		Database: db, Collection: h.collection(), Command: &h, Session: opt.session(),
		MaxTimeMS:         opt.MaxTimeMS,
		Retry:             true,
		DeadlineAsMaxTime: lifetime, RunOn: opt.RunOn, Caller: opt.Caller,
	}
	return cursor.Open(ctx, &c.runner, op, cursor.Options{
		BatchSize: valueOf(opt.BatchSize), Comment: comment, Timeout: opt.Timeout,
		Lifetime: lifetime,
	})
}

// names reads a cursor to its end, and returns the field "name" of all its documents.
func names(ctx context.Context, cur *cursor.Cursor) ([]string, error) {
	all := []string{}
	for batch, err := range cur.Batches(ctx) {
		if err != nil {
			return nil, err
		}
		for _, doc := range batch.Documents {
			name, err := nameIn(doc, cur.Server())
			if err != nil {
				return nil, err
			}
			all = append(all, name)
		}
	}
	return all, nil
}

func nameIn(doc bson.Raw, from address.Address) (string, error) {
	v, _ := doc.Lookup("name")
	name, ok := v.Str()
	if !ok {
		r := replyReader{from: from}
		r.fail("name", "is missing or no text")
		return "", r.err
	}
	return name, nil
}
