package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/wire"
)

// InsertOne inserts a document, with a generated _id in front if it has none.
func (c *Client) InsertOne(
	ctx context.Context, ns Namespace, doc bson.Raw, opt InsertOneOptions,
) (InsertOneResult, error) {
	var ck check
	ck.namespace(ns)
	ck.common(&opt.Common, writeOptions, insertFields)
	if len(doc) < emptyDocumentSize {
		ck.refuse("document", "is missing")
	}
	wc := c.writeConcernFor(ctx, &opt.Common, &ck)
	if ck.err != nil {
		return InsertOneResult{}, ck.err
	}
	docs, ids := [1]bson.Raw{doc}, [1]newID{}
	assignIDs(docs[:], ids[:])
	cmd := insert{
		collection: ns.Collection, ordered: true, bypass: opt.BypassDocumentValidation,
		comment:      opt.Comment,
		writeConcern: wc, common: &opt.Common, docs: docs[:], ids: ids[:], single: true,
	}
	op := write(ns, &cmd, wc, &opt.Common)
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
	var ck check
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
	assignIDs(docs, ids)
	cmd := insert{
		collection: ns.Collection, ordered: opt.Ordered == nil || *opt.Ordered,
		bypass:  opt.BypassDocumentValidation,
		comment: opt.Comment, writeConcern: wc, common: &opt.Common, docs: docs, ids: ids,
	}
	op := write(ns, &cmd, wc, &opt.Common)
	op.ID = operation.NewID()
	run := insertRun{client: c, cmd: &cmd, op: &op}
	run.result.Acknowledged = !op.Unacknowledged
	run.result.InsertedIDs = make([]IndexedID, 0, len(docs))
	ctx, done := c.runner.Begin(ctx, opt.Timeout, time.Time{})
	defer done()
	err := run.all(ctx)
	return run.result, err
}

// insertRun holds the state of one InsertMany.
type insertRun struct {
	client *Client
	cmd    *insert
	op     *operation.Operation
	result InsertManyResult
	// failed is the last reply with write errors; labels are those of all.
	failed *mongoerr.WriteException
	labels []string
}

// all runs one command after the other, until all documents are sent, an ordered insert has a
// write error, or another error occurs.
func (r *insertRun) all(ctx context.Context) error {
	for len(r.cmd.docs) > 0 {
		res, err := r.client.runner.Run(ctx, r.op)
		if err := r.take(res, err); err != nil {
			return err
		}
		if r.failed != nil && r.cmd.ordered {
			break
		}
		r.cmd.advance()
	}
	return r.exception()
}

// take adds the outcome of one command. It keeps write errors for the end, and returns every other
// error.
func (r *insertRun) take(res operation.Result, err error) error {
	if res.WriteConcernError != nil {
		r.result.WriteConcernErrors = append(r.result.WriteConcernErrors, res.WriteConcernError)
	}
	if failed, ok := errors.AsType[*mongoerr.WriteException](err); ok {
		return r.takeErrors(failed)
	}
	if err == nil {
		r.inserted(r.cmd.sent, nil)
	}
	return err
}

func (r *insertRun) takeErrors(failed *mongoerr.WriteException) error {
	for _, we := range failed.WriteErrors {
		if we.Index < 0 || we.Index >= r.cmd.sent {
			reply := replyReader{from: failed.Address}
			reply.fail("writeErrors.index",
				fmt.Sprintf("%d is not one of %d documents", we.Index, r.cmd.sent))
			return reply.written()
		}
	}
	n := r.cmd.sent
	if r.cmd.ordered {
		n = failed.WriteErrors[0].Index
	}
	r.inserted(n, failed.WriteErrors)
	for _, we := range failed.WriteErrors {
		we.Index += r.cmd.offset
		r.result.WriteErrors = append(r.result.WriteErrors, we)
	}
	r.failed, r.labels = failed, append(r.labels, failed.Labels...)
	return nil
}

// inserted records the ids of the first n documents of this command, without those that failed.
func (r *insertRun) inserted(n int, failed []mongoerr.WriteError) {
	var not map[int]struct{}
	if len(failed) > 0 {
		not = make(map[int]struct{}, len(failed))
		for _, we := range failed {
			not[we.Index] = struct{}{}
		}
	}
	for i, id := range r.cmd.ids[:n] {
		if _, ok := not[i]; !ok {
			r.result.InsertedIDs = append(r.result.InsertedIDs,
				IndexedID{Index: r.cmd.offset + i, ID: id.value})
		}
	}
}

// exception returns all write errors in one error, nil if there are none.
func (r *insertRun) exception() error {
	if r.failed == nil {
		return nil
	}
	e := &mongoerr.WriteException{
		WriteErrors: r.result.WriteErrors, Labels: r.labels, Address: r.failed.Address,
		Reply: r.failed.Reply,
	}
	if wces := r.result.WriteConcernErrors; len(wces) > 0 {
		e.WriteConcernError = wces[len(wces)-1]
	}
	return e
}

// newID holds the _id of a document that is inserted.
type newID struct {
	value     bson.Value
	generated bool
}

// assignIDs finds the _ids of the documents, and generates those that are missing.
func assignIDs(docs []bson.Raw, ids []newID) {
	for i, doc := range docs {
		if v, ok := doc.Lookup("_id"); ok {
			ids[i].value = v
		} else {
			ids[i] = newID{value: bson.ObjectIDValue(bson.NewObjectID()), generated: true}
		}
	}
}

// insert builds the insert command. It sends as many of docs as fit; advance drops those.
type insert struct {
	collection   string
	ordered      bool
	single       bool // from InsertOne
	bypass       *bool
	comment      bson.Value
	writeConcern WriteConcern
	common       *Common

	// docs are not sent yet; ids are theirs, and offset is the first one's place in the caller's
	// list.
	docs   []bson.Raw
	ids    []newID
	offset int
	// sent is the number of docs in the last message.
	sent int
	// checked is the limit that no document of docs exceeds; 0: none was compared yet.
	checked int
}

var insertFields = []string{
	"insert", "documents", "ordered", "bypassDocumentValidation", "comment",
}

func (i *insert) advance() {
	i.docs, i.ids, i.offset = i.docs[i.sent:], i.ids[i.sent:], i.offset+i.sent
}

func (*insert) Name() string { return "insert" }

func (i *insert) Append(b *bson.Builder, to operation.Target) error {
	b.String("insert", i.collection).Bool("ordered", i.ordered)
	appendBool(b, "bypassDocumentValidation", i.bypass)
	appendValue(b, "comment", i.comment)
	appendWriteConcern(b, i.writeConcern)
	i.common.appendTo(b, to)
	return nil
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

// AppendSequences appends as many documents as fit.
func (i *insert) AppendSequences(msg []byte, to operation.Target) ([]byte, error) {
	err := i.checkSizes(limit(to.Hello.MaxBSONObjectSize, defaultMaxBSONObjectSize))
	if err != nil {
		return nil, err
	}
	msg, start := wire.BeginSequence(msg, "documents")
	maxMessage := limit(to.Hello.MaxMessageSize, defaultMaxMessageSize)
	maxDocs := min(len(i.docs), limit(to.Hello.MaxWriteBatchSize, defaultMaxWriteBatchSize))
	i.sent = 0
	for i.sent < maxDocs {
		size := i.size(i.sent)
		if i.sent > 0 && len(msg)+size > maxMessage {
			break
		}
		msg = appendInserted(msg, i.docs[i.sent], i.ids[i.sent])
		i.sent++
	}
	return wire.EndSequence(msg, start), nil
}

// checkSizes objects to a document that is larger than this server takes. Another server may take
// less than the one before.
func (i *insert) checkSizes(most int) error {
	if i.checked != 0 && i.checked <= most {
		return nil
	}
	for n := range i.docs {
		if size := i.size(n); size > most {
			argument := "documents." + strconv.Itoa(i.offset+n)
			if i.single {
				argument = "document"
			}
			return &ArgumentError{
				Argument: argument,
				Problem:  fmt.Sprintf("has %d bytes; the server takes %d", size, most),
				TooLarge: true,
			}
		}
	}
	i.checked = most
	return nil
}

func (i *insert) size(n int) int {
	if i.ids[n].generated {
		return len(i.docs[n]) + generatedIDSize
	}
	return len(i.docs[n])
}

// appendInserted appends a document, with its generated _id in front.
func appendInserted(msg []byte, doc bson.Raw, id newID) []byte {
	if !id.generated {
		return append(msg, doc...)
	}
	size := len(doc) + generatedIDSize
	msg = append(msg, byte(size), byte(size>>8), byte(size>>16), byte(size>>24))
	msg = append(msg, idPrefix...)
	msg = append(msg, id.value.Data...)
	return append(msg, doc[documentLengthSize:]...)
}
