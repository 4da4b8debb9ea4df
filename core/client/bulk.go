package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/wire"
)

// BulkWrite runs writes of several kinds on a collection, in as few commands as their order and the
// limits of the servers allow. All commands share the time of the operation. Everything that can
// be checked is checked before anything is sent. With an error the result has what is known to be
// done. If writes failed, the error is a *mongoerr.WriteException with all write errors, numbered
// as in models; any other error ended the operation.
func (c *Client) BulkWrite(
	ctx context.Context, ns Namespace, models []WriteModel, opt BulkWriteOptions,
) (BulkWriteResult, error) {
	var ck check
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
		collection: ns.Collection, ordered: opt.Ordered == nil || *opt.Ordered, opt: &opt,
		writeConcern: wc, models: models,
		ids: newIDs(len(models), func(i int) *WriteModel { return &models[i] }),
	}
	cmd.order = cmd.newOrder()
	op := write(ns, &cmd, wc, &opt.Common)
	op.ID = operation.NewID()
	run := bulkRun{client: c, cmd: &cmd, op: &op}
	run.result.Acknowledged = !op.Unacknowledged
	ctx, done := c.runner.Begin(ctx, opt.Timeout, time.Time{})
	defer done()
	err := run.all(ctx)
	return run.result, err
}

// newIDs returns the _ids of the documents that are inserted, by the place of their model.
func newIDs(n int, model func(int) *WriteModel) []newID {
	ids := make([]newID, n)
	for i := range ids {
		if m := model(i); m.Kind == InsertOne {
			assignIDs([]bson.Raw{m.Document}, ids[i:i+1])
		}
	}
	return ids
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
}

// all runs one command after the other, until all writes are sent, an ordered bulk has a write
// error, or another error occurs.
func (r *bulkRun) all(ctx context.Context) error {
	for len(r.cmd.order) > 0 {
		res, err := r.client.runner.Run(ctx, r.op)
		if err := r.take(res, err); err != nil {
			return err
		}
		if r.failed != nil && r.cmd.ordered {
			break
		}
		r.cmd.order = r.cmd.order[r.cmd.sent:]
	}
	return r.exception()
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
	if r.cmd.kind() == "insert" {
		for i, place := range r.cmd.order[:done] {
			if _, ok := not[i]; !ok {
				id := IndexedID{Index: place, ID: r.cmd.ids[place].value}
				r.result.InsertedIDs = append(r.result.InsertedIDs, id)
			}
		}
	}
	return nil
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
		we.Index = r.cmd.order[we.Index]
		r.result.WriteErrors = append(r.result.WriteErrors, we)
	}
	r.failed, r.labels = failed, append(r.labels, failed.Labels...)
	return tried, not
}

// counts adds what a reply counts.
func (r *bulkRun) counts(d bson.Raw, reply *replyReader) {
	n := reply.count(d, "n", "n")
	switch r.cmd.kind() {
	case "insert":
		r.result.InsertedCount += n
	case "delete":
		r.result.DeletedCount += n
	case "update":
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
			IndexedID{Index: r.cmd.order[place], ID: id})
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

// bulk builds the insert, update or delete command for the next writes of a bulk. It sends as many
// of those as fit.
type bulk struct {
	collection   string
	ordered      bool
	opt          *BulkWriteOptions
	writeConcern WriteConcern
	models       []WriteModel
	ids          []newID

	// order has the places of the models that are not sent yet. Those that one command can send are
	// beside each other.
	order []int
	// sent is the number of writes in the last message.
	sent int
	// checked are the limits of the last server; the zero value: there was none yet.
	checked checkedLimits
}

// checkedLimits holds the limits of a server that all models not sent yet keep to.
type checkedLimits struct {
	size int
	wire int32
}

// newOrder returns the order in which the models are sent: as they are, or, where the order does
// not matter, by their commands.
func (c *bulk) newOrder() []int {
	order := make([]int, len(c.models))
	for i := range order {
		order[i] = i
	}
	if !c.ordered {
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Compare(c.models[a].Kind.command(), c.models[b].Kind.command())
		})
	}
	return order
}

// kind returns the name of the next command.
func (c *bulk) kind() string { return kinds[c.models[c.order[0]].Kind.command()].name }

var bulkFields = []string{
	"insert", "update", "delete", "documents", "updates", "deletes", "ordered",
	"bypassDocumentValidation", "comment", "let",
}

func (c *bulk) Name() string { return c.kind() }

func (c *bulk) Append(b *bson.Builder, to operation.Target) error {
	if err := c.check(to); err != nil {
		return err
	}
	kind := c.kind()
	b.String(kind, c.collection).Bool("ordered", c.ordered)
	if kind != "delete" {
		appendBool(b, "bypassDocumentValidation", c.opt.BypassDocumentValidation)
	}
	if kind != "insert" {
		appendDocument(b, "let", c.opt.Let)
	}
	appendValue(b, "comment", c.opt.Comment)
	appendWriteConcern(b, c.writeConcern)
	c.opt.appendTo(b, to)
	return nil
}

// check compares all models that are not sent yet with what this server takes, so that nothing is
// sent of a bulk that would be refused later. Another server may take less than the one before.
func (c *bulk) check(to operation.Target) error {
	limits := checkedLimits{
		size: limit(to.Hello.MaxBSONObjectSize, defaultMaxBSONObjectSize),
		wire: to.Hello.MaxWireVersion,
	}
	if limits == c.checked {
		return nil
	}
	for _, place := range c.order {
		m := &c.models[place]
		if err := tooLarge("requests", place, m, c.ids[place], limits.size); err != nil {
			return err
		}
		if !unacknowledged(c.writeConcern) {
			continue
		}
		if err := hintGate(m.Hint, limits.wire, kinds[m.Kind.command()].hintsUnseen); err != nil {
			return err
		}
	}
	c.checked = limits
	return nil
}

// tooLarge objects to a document of a model that is larger than the server takes.
func tooLarge(list string, place int, m *WriteModel, id newID, most int) error {
	size := len(m.Document)
	if id.generated {
		size += generatedIDSize
	}
	if size <= most {
		return nil
	}
	return &ArgumentError{
		Argument: list + "." + strconv.Itoa(place), TooLarge: true,
		Problem: fmt.Sprintf("has a document of %d bytes; the server takes %d", size, most),
	}
}

// AppendSequences appends as many of the next writes as fit.
func (c *bulk) AppendSequences(msg []byte, to operation.Target) ([]byte, error) {
	msg, start := wire.BeginSequence(msg, kinds[c.models[c.order[0]].Kind.command()].sequence)
	maxMessage := limit(to.Hello.MaxMessageSize, defaultMaxMessageSize)
	maxWrites := min(len(c.order), limit(to.Hello.MaxWriteBatchSize, defaultMaxWriteBatchSize))
	command := c.models[c.order[0]].Kind.command()
	c.sent = 0
	for c.sent < maxWrites {
		place := c.order[c.sent]
		if c.models[place].Kind.command() != command {
			break
		}
		before := len(msg)
		msg = c.appendStatement(msg, place)
		if c.sent > 0 && len(msg) > maxMessage {
			msg = msg[:before]
			break
		}
		c.sent++
	}
	return wire.EndSequence(msg, start), nil
}

// appendStatement appends a write as its command has it.
func (c *bulk) appendStatement(msg []byte, place int) []byte {
	m := &c.models[place]
	if m.Kind == InsertOne {
		return appendInserted(msg, m.Document, c.ids[place])
	}
	b := bson.NewBuilder(msg)
	b.Document("q", m.Filter)
	switch m.Kind {
	case DeleteOne:
		b.Int32("limit", 1)
	case DeleteMany:
		b.Int32("limit", 0)
	default:
		b.Value("u", m.update())
		if m.Kind == UpdateMany {
			b.Bool("multi", true)
		}
		appendBool(b, "upsert", m.Upsert)
		appendArray(b, "arrayFilters", m.ArrayFilters)
	}
	appendDocument(b, "collation", m.Collation)
	appendValue(b, "hint", m.Hint)
	appendDocument(b, "sort", m.Sort)
	b.Finish()
	return b.Bytes()
}
