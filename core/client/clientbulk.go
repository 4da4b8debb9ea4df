package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
)

// NamespacedWriteModel describes one write of ClientBulkWrite.
type NamespacedWriteModel struct {
	Namespace Namespace
	WriteModel
}

// NamespacedBulkWriteOptions holds the options of ClientBulkWrite. Of Common it takes all but
// ReadConcern and ReadPreference. Without acknowledgement, Ordered must be false and VerboseResults
// must not be true.
type NamespacedBulkWriteOptions struct {
	Common
	// Ordered runs the writes in their order and stops at the first error; unset is true.
	Ordered *bool
	// BypassDocumentValidation goes with inserts, updates and replacements.
	BypassDocumentValidation *bool
	// Let goes with updates, replacements and deletions.
	Let bson.Raw
	// VerboseResults asks for the result of each write; unset is false.
	VerboseResults *bool
}

// NamespacedBulkWriteResult holds the outcome of ClientBulkWrite, in part or in full.
type NamespacedBulkWriteResult struct {
	// Acknowledged is false for writes with w: 0, of which nothing else is known.
	Acknowledged bool
	// AnySucceeded reports whether at least one write is known to be done. If it is false, the
	// other fields say nothing.
	AnySucceeded  bool
	InsertedCount int64
	// MatchedCount does not include upserted documents.
	MatchedCount  int64
	ModifiedCount int64
	DeletedCount  int64
	UpsertedCount int64
	// Verbose reports whether the fields below have the results of all writes that succeeded, in
	// the caller's order. Otherwise they are empty.
	Verbose       bool
	InsertResults []IndexedID
	UpdateResults []IndexedUpdate
	DeleteResults []IndexedDelete
}

// IndexedUpdate holds the result of one update or replacement.
type IndexedUpdate struct {
	// Index is the write's position in the caller's list.
	Index int
	// MatchedCount includes an upserted document, as the server counts it.
	MatchedCount, ModifiedCount int64
	// UpsertedID is the upserted document's _id (which may be BSON null); the zero Value: no
	// upsert.
	UpsertedID bson.Value
}

// IndexedDelete holds the result of one deletion.
type IndexedDelete struct {
	// Index is the write's position in the caller's list.
	Index        int
	DeletedCount int64
}

// NamespacedBulkWriteError reports a ClientBulkWrite of which something was done, or that got an
// answer that is not a success.
type NamespacedBulkWriteError struct {
	// Err ended the operation before its end; nil: nothing did but write errors.
	Err error
	// WriteErrors are all that the servers reported, numbered as in the caller's list.
	WriteErrors []mongoerr.WriteError
	// WriteConcernErrors has at most one for each command that was sent. They do not end the
	// operation.
	WriteConcernErrors []*mongoerr.WriteConcernError
}

func (e *NamespacedBulkWriteError) Error() string { return e.text(error.Error) }

// Outline returns the text without the messages of servers (see mongoerr.Outline).
func (e *NamespacedBulkWriteError) Outline() string { return e.text(mongoerr.Outline) }

func (e *NamespacedBulkWriteError) text(of func(error) string) string {
	var parts []string
	if e.Err != nil {
		parts = append(parts, of(e.Err))
	}
	if n := len(e.WriteErrors); n > 0 {
		first := of(e.WriteErrors[0])
		if n > 1 {
			first += fmt.Sprintf(" (and %d more)", n-1)
		}
		parts = append(parts, first)
	}
	for _, wce := range e.WriteConcernErrors {
		parts = append(parts, of(wce))
	}
	return "bulk write: " + strings.Join(parts, "; ")
}

// Delivery returns mongoerr.Unanswered if Err says so, else mongoerr.Executed, since a command was.
func (e *NamespacedBulkWriteError) Delivery() mongoerr.Delivery {
	if mongoerr.Judge(e.Err).Delivery == mongoerr.Unanswered {
		return mongoerr.Unanswered
	}
	return mongoerr.Executed
}

// Unwrap returns Err, and then the write concern errors.
func (e *NamespacedBulkWriteError) Unwrap() []error {
	var all []error
	if e.Err != nil {
		all = append(all, e.Err)
	}
	for _, wce := range e.WriteConcernErrors {
		all = append(all, wce)
	}
	return all
}

// ClientBulkWrite runs writes on any collections, in as few commands as the limits of the servers
// allow. Servers before 8.0 have no such command: an *ArgumentError says so. All commands share the
// time of the operation. All arguments are checked before anything is sent.
//
// With an error the result has what is known to be done. If writes failed, a write concern was not
// satisfied, or something was done before another error, the error is a *NamespacedBulkWriteError.
func (c *Client) ClientBulkWrite(
	ctx context.Context, models []NamespacedWriteModel, opt NamespacedBulkWriteOptions,
) (_ NamespacedBulkWriteResult, err error) {
	ck := check{client: c}
	ck.common(&opt.Common, writeOptions, clientBulkFields)
	if len(models) == 0 {
		ck.refuse("models", "is empty")
	}
	for i := range models {
		ck.clientModel(i, &models[i])
	}
	wc := c.writeConcernFor(ctx, &opt.Common, &ck)
	ordered, verbose := opt.Ordered == nil || *opt.Ordered, isTrue(opt.VerboseResults)
	ck.unacknowledgedBulk(wc, ordered, verbose)
	if ck.err != nil {
		return NamespacedBulkWriteResult{}, ck.err
	}
	cmd := clientBulk{
		ordered: ordered, verbose: verbose, opt: &opt, writeConcern: wc, models: models,
		ids: newIDs(len(models), func(i int) bson.Raw { return models[i].inserted() }),
	}
	op := write(Namespace{Database: "admin"}, &cmd, wc, &opt.Common)
	op.Retry = true
	op.ID = operation.NewID()
	run := clientBulkRun{client: c, cmd: &cmd, op: &op}
	run.result.Acknowledged, run.result.Verbose = !op.Unacknowledged, verbose
	ctx, done := c.runner.Begin(ctx, opt.Timeout, time.Time{})
	defer done()
	end := c.runner.Trace(ctx, &op)
	defer func() { end(err) }()
	err = run.all(ctx)
	return run.result, err
}

// unacknowledgedBulk objects to what cannot be had without acknowledgement.
func (c *check) unacknowledgedBulk(wc WriteConcern, ordered, verbose bool) {
	switch {
	case !unacknowledged(wc):
	case verbose:
		c.refuse("verboseResults",
			"cannot request unacknowledged write concern and verbose results")
	case ordered:
		c.refuse("ordered", "cannot request unacknowledged write concern and ordered writes")
	}
}

// clientModel objects to what is wrong in one of the models.
func (c *check) clientModel(i int, m *NamespacedWriteModel) {
	var one check
	one.namespace(m.Namespace)
	one.model(&m.WriteModel)
	c.within("models", i, one)
}

// clientBulkRun holds the state of one ClientBulkWrite.
type clientBulkRun struct {
	client *Client
	cmd    *clientBulk
	op     *operation.Operation
	result NamespacedBulkWriteResult
	failed NamespacedBulkWriteError
	// unread says that commands without acknowledgement were sent.
	unread bool
}

// all runs one command after the other, until all writes are sent, an ordered bulk has a write
// error, or another error occurs.
func (r *clientBulkRun) all(ctx context.Context) error {
	for r.cmd.next < len(r.cmd.models) && r.failed.Err == nil {
		r.failed.Err = r.command(ctx)
		if r.cmd.ordered && len(r.failed.WriteErrors) > 0 {
			break
		}
		r.cmd.advance()
	}
	return r.end()
}

// command runs one command and reads its results. It keeps write errors and write concern errors
// for the end, and returns every other error.
func (r *clientBulkRun) command(ctx context.Context) error {
	if r.op.Unacknowledged {
		_, err := r.client.runner.Run(ctx, r.op)
		r.unread = r.unread || err == nil
		return err
	}
	cur, res, err := cursor.OpenResult(ctx, &r.client.runner, *r.op, cursor.Options{
		Timeout: r.cmd.opt.Timeout, Lifetime: true,
	})
	if res.WriteConcernError != nil {
		r.failed.WriteConcernErrors = append(r.failed.WriteConcernErrors, res.WriteConcernError)
	}
	if err != nil {
		return err
	}
	if err := r.summary(&res); err != nil {
		return r.abandon(ctx, cur, err)
	}
	return r.results(ctx, cur, &res)
}

// summary adds what the reply counts.
func (r *clientBulkRun) summary(res *operation.Result) error {
	reply := replyReader{from: res.Server}
	for _, field := range []struct {
		key string
		sum *int64
	}{
		{"nInserted", &r.result.InsertedCount},
		{"nMatched", &r.result.MatchedCount},
		{"nModified", &r.result.ModifiedCount},
		{"nDeleted", &r.result.DeletedCount},
		{"nUpserted", &r.result.UpsertedCount},
	} {
		n := reply.count(res.Reply, field.key, field.key)
		*field.sum += n
		r.result.AnySucceeded = r.result.AnySucceeded || n > 0
	}
	most := int64(r.cmd.sent) // errors without a success
	if r.cmd.ordered {
		most = 1
	}
	if reply.count(res.Reply, "nErrors", "nErrors") < most && reply.err == nil {
		r.result.AnySucceeded = true
	}
	return reply.written()
}

// results reads the cursor to its end. Its first error ends the bulk, ordered or not.
func (r *clientBulkRun) results(
	ctx context.Context, cur *cursor.Cursor, res *operation.Result,
) error {
	for {
		batch, err := cur.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		reply := replyReader{from: res.Server}
		for _, doc := range batch.Documents {
			r.one(doc, &reply)
		}
		if err == nil {
			err = reply.written()
		}
		if err != nil {
			return r.abandon(ctx, cur, err)
		}
	}
}

// abandon closes the cursor after an error, and returns that, with the error of the closing if
// there is one.
func (r *clientBulkRun) abandon(ctx context.Context, cur *cursor.Cursor, err error) error {
	if killed := cur.Kill(ctx, nil); killed != nil {
		return fmt.Errorf("%w (then its cursor could not be closed: %w)", err, killed)
	}
	return err
}

// one adds the result of one write.
func (r *clientBulkRun) one(doc bson.Raw, reply *replyReader) {
	index := reply.count(doc, "idx", "cursor.idx")
	if index < 0 || index >= int64(r.cmd.sent) {
		reply.fail("cursor.idx", fmt.Sprintf("%d is not one of %d writes", index, r.cmd.sent))
	}
	ok := reply.count(doc, "ok", "cursor.ok")
	if reply.err != nil {
		return
	}
	place := r.cmd.next + int(index)
	if ok == 0 {
		r.result.AnySucceeded = r.result.AnySucceeded || r.cmd.ordered && index > 0
		r.failed.WriteErrors = append(r.failed.WriteErrors, writeErrorOf(place, doc))
		return
	}
	r.result.AnySucceeded = true
	if r.cmd.verbose {
		r.done(place, doc, reply)
	}
}

// writeErrorOf reads the error of one write.
func writeErrorOf(place int, doc bson.Raw) mongoerr.WriteError {
	we := mongoerr.WriteError{Index: place, Raw: doc}
	for key, v := range doc.All() {
		switch key {
		case "code":
			code, _ := v.AsInt64()
			we.Code = int32(code)
		case "errmsg":
			we.Message, _ = v.Str()
		case "errInfo":
			we.Details, _ = v.Document()
		}
	}
	return we
}

// done adds the verbose result of one write that succeeded.
func (r *clientBulkRun) done(place int, doc bson.Raw, reply *replyReader) {
	switch r.cmd.models[place].Kind.command() {
	case insertCommand:
		r.result.InsertResults = append(r.result.InsertResults,
			IndexedID{Index: place, ID: r.cmd.ids[place].value})
	case deletesCommand:
		r.result.DeleteResults = append(r.result.DeleteResults,
			IndexedDelete{Index: place, DeletedCount: reply.count(doc, "n", "cursor.n")})
	case updatesCommand:
		u := IndexedUpdate{
			Index: place, MatchedCount: reply.count(doc, "n", "cursor.n"),
			ModifiedCount: reply.count(doc, "nModified", "cursor.nModified"),
		}
		if upserted, ok := doc.Lookup("upserted"); ok {
			entry, _ := upserted.Document()
			if u.UpsertedID, ok = entry.Lookup("_id"); !ok {
				reply.fail("cursor.upserted._id", "is missing")
			}
		}
		r.result.UpdateResults = append(r.result.UpdateResults, u)
	}
}

// end puts everything into the caller's order, and returns the error of the bulk.
func (r *clientBulkRun) end() error {
	slices.SortFunc(r.result.InsertResults,
		func(a, b IndexedID) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortFunc(r.result.UpdateResults,
		func(a, b IndexedUpdate) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortFunc(r.result.DeleteResults,
		func(a, b IndexedDelete) int { return cmp.Compare(a.Index, b.Index) })
	slices.SortFunc(r.failed.WriteErrors,
		func(a, b mongoerr.WriteError) int { return cmp.Compare(a.Index, b.Index) })
	alone := len(r.failed.WriteErrors) == 0 && len(r.failed.WriteConcernErrors) == 0
	if alone && (r.failed.Err == nil || !r.result.AnySucceeded) {
		return ofSeveral(r.failed.Err, r.unread)
	}
	return &r.failed
}
