package client

import (
	"context"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
)

// InsertOne inserts a document, with a generated _id in front if it has none.
func (c *Client) InsertOne(
	ctx context.Context, ns Namespace, doc bson.Raw, opt InsertOneOptions,
) (InsertOneResult, error) {
	ck := check{client: c}
	ck.namespace(ns)
	ck.common(&opt.Common, writeOptions, insertFields)
	if len(doc) < emptyDocumentSize {
		ck.refuse("document", "is missing")
	}
	wc := c.writeConcernFor(ctx, &opt.Common, &ck)
	if ck.err != nil {
		return InsertOneResult{}, ck.err
	}
	docs, ids := [1]bson.Raw{doc}, [1]newID{newIDOf(doc)}
	cmd := bulk{
		collection: ns.Collection, ordered: true, common: &opt.Common,
		bypass: opt.BypassDocumentValidation, writeConcern: wc, docs: docs[:], ids: ids[:],
		single: true,
	}
	op := write(ns, &cmd, wc, &opt.Common)
	op.Retry = true
	res, err := c.run(ctx, &op, &opt.Common)
	out := InsertOneResult{
		Acknowledged: !unacknowledged(wc), InsertedID: ids[0].value,
		WriteConcernError: res.WriteConcernError,
	}
	if err != nil {
		out.InsertedID = bson.Value{}
	}
	return out, err
}

// InsertMany inserts documents in as few commands as the limits of the servers allow. All commands
// share the time of the operation. With an error the result has what is known to be done. If
// documents failed, the error is a *mongoerr.WriteException with all write errors, numbered as in
// docs; any other error ended the operation.
func (c *Client) InsertMany(
	ctx context.Context, ns Namespace, docs []bson.Raw, opt InsertManyOptions,
) (InsertManyResult, error) {
	ck := check{client: c}
	ck.namespace(ns)
	ck.common(&opt.Common, writeOptions, insertFields)
	if len(docs) == 0 {
		ck.refuse("documents", "is empty")
	}
	for i, doc := range docs {
		if len(doc) < emptyDocumentSize {
			ck.refuse("documents."+strconv.Itoa(i), "is missing")
		}
	}
	wc := c.writeConcernFor(ctx, &opt.Common, &ck)
	if ck.err != nil {
		return InsertManyResult{}, ck.err
	}
	ids := make([]newID, len(docs))
	for i, doc := range docs {
		ids[i] = newIDOf(doc)
	}
	cmd := bulk{
		collection: ns.Collection, ordered: opt.Ordered == nil || *opt.Ordered,
		common: &opt.Common, bypass: opt.BypassDocumentValidation, writeConcern: wc,
		docs: docs, ids: ids,
	}
	res, err := c.bulkWrite(ctx, ns, &cmd)
	return InsertManyResult{
		Acknowledged: res.Acknowledged, InsertedIDs: res.InsertedIDs,
		WriteErrors: res.WriteErrors, WriteConcernErrors: res.WriteConcernErrors,
	}, err
}

var insertFields = []string{
	"insert", "documents", "ordered", "bypassDocumentValidation", "comment",
}

// newID holds the _id of a document that is inserted.
type newID struct {
	value     bson.Value
	generated bool
}

// newIDOf finds the _id of a document, and generates one that is missing.
func newIDOf(doc bson.Raw) newID {
	if v, ok := doc.Lookup("_id"); ok {
		return newID{value: v}
	}
	return newID{value: bson.ObjectIDValue(bson.NewObjectID()), generated: true}
}

// newIDs returns the _ids of the documents that models insert, by the place of the model.
func newIDs(n int, model func(int) *WriteModel) []newID {
	ids := make([]newID, n)
	for i := range ids {
		if m := model(i); m.Kind == InsertOne {
			ids[i] = newIDOf(m.Document)
		}
	}
	return ids
}

// The limits of a server that reports none.
const (
	defaultMaxBSONObjectSize = 16 << 20
	defaultMaxMessageSize    = 48_000_000
	defaultMaxWriteBatchSize = 100_000
)

func limit(reported int32, otherwise int) int {
	if reported > 0 {
		return int(reported)
	}
	return otherwise
}

const (
	emptyDocumentSize  = 5
	idPrefix           = "\x07_id\x00" // the type and key of an ObjectId
	generatedIDSize    = len(idPrefix) + len(bson.ObjectID{})
	documentLengthSize = 4
)

// insertedSize returns the size of a document with its generated _id.
func insertedSize(doc bson.Raw, id newID) int {
	if id.generated {
		return len(doc) + generatedIDSize
	}
	return len(doc)
}

// appendInserted appends a document, with its generated _id in front.
func appendInserted(msg []byte, doc bson.Raw, id newID) []byte {
	if !id.generated {
		return append(msg, doc...)
	}
	size := insertedSize(doc, id)
	msg = append(msg, byte(size), byte(size>>8), byte(size>>16), byte(size>>24))
	msg = append(msg, idPrefix...)
	msg = append(msg, id.value.Data...)
	return append(msg, doc[documentLengthSize:]...)
}
