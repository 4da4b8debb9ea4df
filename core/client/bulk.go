package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
)

// BulkWrite runs writes of several kinds on a collection, in as few commands as their order and the
// limits of the servers allow. All commands share the time of the operation. Everything that can
// be checked is checked before anything is sent. With an error the result has what is known to be
// done. If writes failed, the error is a *mongoerr.WriteException with all write errors, numbered
// as in models; any other error ended the operation.
func (c *Client) BulkWrite(
	ctx context.Context, ns Namespace, models []WriteModel, opt BulkWriteOptions,
) (BulkWriteResult, error) {
	ck := check{client: c}
	ck.namespace(ns)
	ck.common(&opt.Common, writeOptions, bulkFields)
	if len(models) == 0 {
		ck.refuse("requests", "is empty")
	}
	for i := range models {
		var one check
		one.model(&models[i])
		ck.within("requests", i, one)
	}
	wc := c.writeConcernFor(ctx, &opt.Common, &ck)
	if ck.err != nil {
		return BulkWriteResult{}, ck.err
	}
	cmd := bulk{
		collection: ns.Collection, ordered: opt.Ordered == nil || *opt.Ordered,
		common: &opt.Common, bypass: opt.BypassDocumentValidation, let: opt.Let,
		writeConcern: wc, models: models,
		ids: newIDs(len(models), func(i int) bson.Raw { return models[i].inserted() }),
	}
	cmd.sort()
	return c.bulkWrite(ctx, ns, &cmd)
}

var bulkFields = []string{
	"insert", "update", "delete", "documents", "updates", "deletes", "ordered",
	"bypassDocumentValidation", "comment", "let",
}

// bulkWrite runs the commands of a bulk.
func (c *Client) bulkWrite(
	ctx context.Context, ns Namespace, cmd *bulk,
) (_ BulkWriteResult, err error) {
	op := write(ns, cmd, cmd.writeConcern, cmd.common)
	op.Retry = true
	op.ID = operation.NewID()
	run := bulkRun{client: c, cmd: cmd, op: &op}
	run.result.Acknowledged = !op.Unacknowledged
	ctx, done := c.runner.Begin(ctx, cmd.common.Timeout, time.Time{})
	defer done()
	end := c.runner.Trace(ctx, &op)
	defer func() { end(err) }()
	err = run.all(ctx)
	return run.result, err
}

// bulkRun holds the state of one BulkWrite.
type bulkRun struct {
	client *Client
	cmd    *bulk
	op     *operation.Operation
	result BulkWriteResult
	// failed is the last reply with write errors; labels are those of all.
	failed *mongoerr.WriteException
	labels []string
	// unread says that commands without acknowledgement were sent.
	unread bool
}

// all runs one command after the other, until all writes are sent, an ordered bulk has a write
// error, or another error occurs.
func (r *bulkRun) all(ctx context.Context) error {
	for r.cmd.left() > 0 {
		res, err := r.client.runner.Run(ctx, r.op)
		if err := r.take(res, err); err != nil {
			return ofSeveral(err, r.unread || r.result.changed())
		}
		if r.failed != nil && r.cmd.ordered {
			break
		}
		r.unread = r.op.Unacknowledged
		r.cmd.advance()
	}
	return r.exception()
}

// ofSeveral returns the error of one of several commands for all of them: if one before it has
// changed something, the error does not say that nothing was done.
func ofSeveral(err error, changed bool) error {
	switch mongoerr.Judge(err).Delivery {
	case mongoerr.Unsent, mongoerr.Refused:
		if changed {
			return mongoerr.WithDelivery(err, mongoerr.Executed)
		}
	default:
	}
	return err
}

// take adds the outcome of one command. It keeps write errors for the end, and returns every other
// error.
func (r *bulkRun) take(res operation.Result, err error) error {
	if res.WriteConcernError != nil {
		r.result.WriteConcernErrors = append(r.result.WriteConcernErrors, res.WriteConcernError)
	}
	failed, ok := errors.AsType[*mongoerr.WriteException](err)
	if err != nil && !ok {
		return err
	}
	reply := replyReader{from: res.Server}
	done := r.cmd.sent
	var not map[int]struct{}
	if failed != nil {
		done, not = r.takeErrors(failed, &reply)
	}
	if r.result.Acknowledged && reply.err == nil {
		r.counts(res.Reply, &reply)
	}
	if reply.err != nil {
		return reply.written()
	}
	if r.cmd.command() == insertCommand {
		r.inserted(done, not)
	}
	return nil
}

// inserted adds the ids of the first n documents of the command, without those that failed.
func (r *bulkRun) inserted(n int, not map[int]struct{}) {
	r.result.InsertedIDs = slices.Grow(r.result.InsertedIDs, n)
	for i := range n {
		if _, ok := not[i]; !ok {
			place := r.cmd.place(i)
			id := IndexedID{Index: place, ID: r.cmd.ids[place].value}
			r.result.InsertedIDs = append(r.result.InsertedIDs, id)
		}
	}
}

// takeErrors adds the write errors of a command. It returns how many of its writes were tried, and
// which of those failed.
func (r *bulkRun) takeErrors(
	failed *mongoerr.WriteException, reply *replyReader,
) (tried int, not map[int]struct{}) {
	tried, not = r.cmd.sent, make(map[int]struct{}, len(failed.WriteErrors))
	for _, we := range failed.WriteErrors {
		if we.Index < 0 || we.Index >= r.cmd.sent {
			reply.fail("writeErrors.index", fmt.Sprintf("%d is not one of %d writes", we.Index,
				r.cmd.sent))
			return 0, nil
		}
		not[we.Index] = struct{}{}
		if r.cmd.ordered {
			tried = min(tried, we.Index)
		}
		we.Index = r.cmd.place(we.Index)
		r.result.WriteErrors = append(r.result.WriteErrors, we)
	}
	r.failed, r.labels = failed, append(r.labels, failed.Labels...)
	return tried, not
}

// counts adds what a reply counts.
func (r *bulkRun) counts(d bson.Raw, reply *replyReader) {
	n := reply.count(d, "n", "n")
	switch r.cmd.command() {
	case insertCommand:
		r.result.InsertedCount += n
	case deletesCommand:
		r.result.DeletedCount += n
	case updatesCommand:
		r.result.ModifiedCount += reply.count(d, "nModified", "nModified")
		upserted := r.upserted(d, reply)
		r.result.UpsertedCount += upserted
		r.result.MatchedCount += n - upserted
	}
}

func (r *bulkRun) upserted(d bson.Raw, reply *replyReader) (n int64) {
	v, ok := d.Lookup("upserted")
	if !ok {
		return 0
	}
	list, ok := v.Array()
	if !ok {
		reply.wrongType("upserted", v)
	}
	for _, v := range list.All() {
		entry, _ := v.Document()
		place := reply.count(entry, "index", "upserted.index")
		id, ok := entry.Lookup("_id")
		if !ok || place < 0 || place >= int64(r.cmd.sent) {
			reply.fail("upserted", "has an entry without an _id, or with an index that was not "+
				"sent")
			return n
		}
		r.result.UpsertedIDs = append(r.result.UpsertedIDs,
			IndexedID{Index: r.cmd.place(int(place)), ID: id})
		n++
	}
	return n
}

// exception returns all write errors in one error, nil if there are none.
func (r *bulkRun) exception() error {
	byIndex := func(a, b IndexedID) int { return cmp.Compare(a.Index, b.Index) }
	slices.SortFunc(r.result.InsertedIDs, byIndex)
	slices.SortFunc(r.result.UpsertedIDs, byIndex)
	if r.failed == nil {
		return nil
	}
	slices.SortFunc(r.result.WriteErrors, func(a, b mongoerr.WriteError) int {
		return cmp.Compare(a.Index, b.Index)
	})
	e := &mongoerr.WriteException{
		WriteErrors: r.result.WriteErrors, Labels: r.labels, Address: r.failed.Address,
		Reply: r.failed.Reply,
	}
	if wces := r.result.WriteConcernErrors; len(wces) > 0 {
		e.WriteConcernError = wces[len(wces)-1]
	}
	return e
}
