package client

import (
	"context"
	"slices"
	"strconv"
	"time"

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
	docs := [1]bson.Raw{doc}
	ids := newIDs(1, func(int) bson.Raw { return doc })
	cmd := bulk{
		collection: ns.Collection, ordered: true, common: &opt.Common,
		bypass: opt.BypassDocumentValidation, writeConcern: wc, docs: docs[:], ids: ids,
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
	cmd := bulk{
		collection: ns.Collection, ordered: opt.Ordered == nil || *opt.Ordered,
		common: &opt.Common, bypass: opt.BypassDocumentValidation, writeConcern: wc,
		docs: docs, ids: newIDs(len(docs), func(i int) bson.Raw { return docs[i] }),
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

// newIDs finds the _ids of n documents, and generates those that are missing. A document that is
// nil is not inserted, and has none.
func newIDs(n int, document func(int) bson.Raw) []newID {
	ids := make([]newID, n)
	var now time.Time
	var generated []byte
	for i := range ids {
		doc := document(i)
		if doc == nil {
			continue
		}
		if v, ok := doc.Lookup("_id"); ok {
			ids[i].value = v
			continue
		}
		if generated == nil {
			now, generated = time.Now(), make([]byte, 0, (n-i)*len(bson.ObjectID{}))
		}
		id := bson.NewObjectIDAt(now)
		generated = append(generated, id[:]...)
		data := slices.Clip(generated[len(generated)-len(id):])
		ids[i] = newID{bson.Value{Type: bson.TypeObjectID, Data: data}, true}
	}
	return ids
}

// inserted returns the document that a model inserts, nil if it is of another kind.
func (m *WriteModel) inserted() bson.Raw {
	if m.Kind != InsertOne {
		return nil
	}
	return m.Document
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
