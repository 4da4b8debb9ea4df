package docdb

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// position says where a stream goes on: behind the part of a commit. Each change of a commit has
// two parts: itself, and the invalidate event that may follow it.
type position struct {
	lsn  uint64
	part uint32
}

// whole is behind all parts of a commit.
const whole = 1<<32 - 1

// token returns the resume token from which a stream goes on there. That of an invalidate event is
// another kind.
func (p position) token(invalidates bool) bson.Raw {
	kind := 0
	if invalidates {
		kind = 1
	}
	return bson.NewBuilder(nil).String("_data", fmt.Sprintf("%016X%08X%02X", p.lsn, p.part, kind)).
		Finish()
}

// parseToken reads what token has made.
func parseToken(token bson.Raw) (p position, invalidates bool, err error) {
	data := text(token, "_data")
	if _, err := hex.DecodeString(data); err != nil || len(data) != 26 {
		return position{}, false, failure.InvalidResumeToken.Errorf("no resume token: %q", data)
	}
	lsn, _ := strconv.ParseUint(data[:16], 16, 64)
	part, _ := strconv.ParseUint(data[16:24], 16, 32)
	return position{lsn, uint32(part)}, data[24:] == "01", nil
}

// stream holds a change stream: what it is about, and how far it has come.
type stream struct {
	front    *Front
	ns       namespace // coll is "" for a database, db for all
	stages   []bson.Raw
	expanded bool
	// after is what fullDocument says of images, and before fullDocumentBeforeChange.
	after, before string

	next  position
	rest  []bson.Raw // events that are ready
	ended bool       // by an invalidate event
}

// stagesOfStreams are those that may follow $changeStream.
var stagesOfStreams = []string{
	"$match", "$project", "$addFields", "$set", "$unset", "$replaceRoot", "$replaceWith", "$redact",
}

// aggregate opens a change stream, or else a cursor of the engine.
func (r *request) aggregate() (bson.Raw, error) {
	pipeline, _ := field(r.body, "pipeline").Array()
	stages := slices.Collect(pipeline.Documents())
	if len(stages) == 0 || stages[0].FirstKey() != "$changeStream" {
		return r.open()
	}
	if r.within != nil {
		return nil, failure.OperationNotSupportedInTransaction.Errorf(
			"$changeStream cannot be in a transaction")
	}
	c := &stream{front: r.front, ns: namespace{db: r.Database}, stages: stages[1:]}
	c.ns.coll = text(r.body, "aggregate")
	for _, s := range c.stages {
		if !slices.Contains(stagesOfStreams, s.FirstKey()) {
			return nil, failure.UnknownStage.Errorf("%s cannot follow $changeStream in a pipeline",
				s.FirstKey())
		}
	}
	now, err := r.front.now(r.on)
	if err != nil {
		return nil, err
	}
	c.next = position{lsn: now}
	// A commit of nothing, which all streams pass: so those that wait come to the same token.
	if err := r.emit("opened", nil); err != nil {
		return nil, err
	}
	if err := c.set(document(stages[0], "$changeStream")); err != nil {
		return nil, err
	}
	none := bson.NewBuilder(nil).Document("_id", c.next.token(false)).Finish()
	if _, err := c.shape([]bson.Raw{none}); err != nil { // which refuses stages that are wrong
		return nil, err
	}
	return r.firstBatch(c)
}

// The values of fullDocument and of fullDocumentBeforeChange.
var (
	afterImages  = []string{"default", "updateLookup", "whenAvailable", "required"}
	beforeImages = []string{"off", "whenAvailable", "required"}
)

// set applies the options of the stage.
func (c *stream) set(options bson.Raw) error {
	starts := 0
	for key, v := range options.All() {
		doc, _ := v.Document()
		name, _ := v.Str()
		on, _ := v.Bool()
		switch key {
		case "resumeAfter", "startAfter":
			starts++
			p, invalidates, err := parseToken(doc)
			if err != nil {
				return err
			}
			if invalidates && key == "resumeAfter" {
				return failure.InvalidResumeToken.Errorf(
					"resumeAfter cannot follow an invalidate event")
			}
			c.next = p
		case "startAtOperationTime":
			starts++
			c.next = position{lsn: c.front.clock.position(v)}
		case "allChangesForCluster":
			if on {
				c.ns = namespace{}
			}
		case "showExpandedEvents":
			c.expanded = on
		case "fullDocument":
			c.after = name
			if !slices.Contains(afterImages, name) {
				return failure.BadValue.Errorf("fullDocument cannot be %q", name)
			}
		case "fullDocumentBeforeChange":
			if c.before = name; !slices.Contains(beforeImages, name) {
				return failure.BadValue.Errorf("fullDocumentBeforeChange cannot be %q", name)
			}
		default:
			return failure.UnknownField.Errorf(
				"BSON field '$changeStream.%s' is an unknown field", key)
		}
	}
	if starts > 1 {
		return failure.InvalidOptions.Errorf("only one of the options to resume is allowed")
	}
	return nil
}

// mostEvents is how many events are made at a time.
const mostEvents = 1000

// collect makes the events that have come since the last call, unless some are ready. changed is
// closed once there may be more.
func (c *stream) collect() (changed <-chan struct{}, err error) {
	if len(c.rest) > 0 || c.ended {
		return nil, nil
	}
	entries, last, changed, err := c.front.log.from(c.next)
	if err != nil {
		return nil, err
	}
	var events []bson.Raw
	for _, e := range entries {
		made, err := c.entry(e)
		if err != nil {
			return nil, err
		}
		if events = append(events, made...); c.ended {
			break
		}
		if c.next = (position{e.lsn, whole}); len(events) >= mostEvents {
			last = 0
			break
		}
	}
	if !c.ended && last > c.next.lsn {
		c.next = position{last, whole}
	}
	c.rest, err = c.shape(events)
	return changed, err
}

// entry makes the events of a commit that are not behind the stream.
func (c *stream) entry(e entry) (events []bson.Raw, err error) {
	for i, change := range e.changes {
		at := position{e.lsn, uint32(2*i + 1)}
		if at.lsn == c.next.lsn && at.part <= c.next.part {
			if at.part == c.next.part && c.invalidates(change) { // it was the last one seen
				c.end(e, at, &events)
			}
			continue
		}
		event, err := c.event(e, change, at)
		if err != nil {
			return nil, err
		}
		if event != nil {
			events = append(events, event)
		}
		if c.invalidates(change) {
			c.end(e, at, &events)
			break
		}
	}
	return events, nil
}

// end adds the invalidate event behind a position, which ends the stream.
func (c *stream) end(e entry, behind position, events *[]bson.Raw) {
	c.next = position{behind.lsn, behind.part + 1}
	c.ended = true
	*events = append(*events, bson.NewBuilder(nil).Document("_id", c.next.token(true)).
		String("operationType", "invalidate").Value("clusterTime", c.front.clock.value(e.lsn)).
		DateTime("wallTime", e.at.UnixMilli()).Finish())
}

// invalidates reports whether a change ends what the stream is about.
func (c *stream) invalidates(e change) bool {
	switch {
	case c.ns.db == "":
		return false
	case c.ns.coll == "":
		return e.kind == "dropDatabase" && e.ns.db == c.ns.db
	}
	return e.kind == "drop" && e.ns == c.ns || e.kind == "rename" && (e.ns == c.ns || e.to == c.ns)
}

// sees reports whether the stream tells of a change.
func (c *stream) sees(e change) bool {
	switch {
	case e.kind == "create" && !c.expanded:
		return false
	case c.ns.db != "" && e.ns.db != c.ns.db && e.to.db != c.ns.db:
		return false
	}
	return c.ns.coll == "" || e.ns == c.ns || e.to == c.ns
}

// event returns what the stream says of a change; nil: nothing.
func (c *stream) event(e entry, change change, at position) (bson.Raw, error) {
	if !c.sees(change) {
		return nil, nil
	}
	b := bson.NewBuilder(nil).Document("_id", at.token(false)).String("operationType", change.kind)
	b.Value("clusterTime", c.front.clock.value(e.lsn)).AppendElements(e.about)
	b.DateTime("wallTime", e.at.UnixMilli())
	isDocument := change.before != nil || change.after != nil
	switch change.kind {
	case "insert", "replace":
		b.Document("fullDocument", change.after)
	case "update":
		if err := c.appendAfter(b, change); err != nil {
			return nil, err
		}
	}
	change.ns.append(b, "ns")
	if change.kind == "rename" {
		change.to.append(b, "to")
	}
	if isDocument {
		key := change.after
		if key == nil {
			key = change.before
		}
		b.OpenDocument("documentKey").Value("_id", field(key, "_id")).Close()
	}
	if change.kind == "update" {
		b.Document("updateDescription", deployment.UpdateDescription(
			change.before, change.after, true, c.expanded))
	}
	if change.before != nil {
		err := c.appendImage(b, "fullDocumentBeforeChange", c.before, change, change.before)
		if err != nil {
			return nil, err
		}
	}
	return b.Finish(), nil
}

// appendAfter appends the document behind an update, as the option for it says.
func (c *stream) appendAfter(b *bson.Builder, e change) error {
	if c.after != "updateLookup" {
		return c.appendImage(b, "fullDocument", c.after, e, e.after)
	}
	found, err := c.front.current(e.ns, field(e.after, "_id"))
	if err != nil {
		return err
	}
	if found == nil {
		b.Null("fullDocument")
	} else {
		b.Document("fullDocument", found)
	}
	return nil
}

func (c *stream) appendImage(b *bson.Builder, key, want string, e change, image bson.Raw) error {
	switch {
	case want != "whenAvailable" && want != "required":
	case e.images:
		b.Document(key, image)
	case want == "required":
		return failure.NoMatchingDocument.Errorf("the collection does not keep %s", key)
	default:
		b.Null(key)
	}
	return nil
}

// current returns a document as it is now; nil: there is none.
func (f *Front) current(ns namespace, id bson.Value) (bson.Raw, error) {
	find := bson.NewBuilder(nil).String("find", ns.coll).OpenDocument("filter").
		OpenDocument("_id").Value("$eq", id).Close().Close().
		Int32("limit", 1).Bool("singleBatch", true).Finish()
	r := &request{front: f, on: f.pool}
	page, err := r.column("cursorpage", "find_cursor_first_page", ns.db, find)
	return document(page, "cursor", "firstBatch", "0"), err
}

// mostShaped is how many bytes of events the engine gets at a time: its page must hold what it
// makes of them.
const mostShaped = 4 << 20

// shape has the engine run the stages of the pipeline on events.
func (c *stream) shape(events []bson.Raw) (shaped []bson.Raw, err error) {
	if len(c.stages) == 0 {
		return events, nil
	}
	for len(events) > 0 {
		size, n := 0, 0
		for ; n < len(events) && (n == 0 || size+len(events[n]) <= mostShaped); n++ {
			size += len(events[n])
		}
		some, err := c.shapeSome(events[:n])
		if err != nil {
			return nil, err
		}
		shaped, events = append(shaped, some...), events[n:]
	}
	return shaped, nil
}

func (c *stream) shapeSome(events []bson.Raw) ([]bson.Raw, error) {
	b := bson.NewBuilder(nil).Int32("aggregate", 1).OpenArray("pipeline")
	b.OpenDocument("").OpenArray("$documents")
	for _, e := range events {
		b.OpenDocument("").Document("$literal", e).Close()
	}
	b.Close().Close()
	for _, s := range c.stages {
		b.Document("", s)
	}
	b.Close().OpenDocument("cursor").Int32("batchSize", int32(len(events)+1)).Close()
	r := &request{front: c.front, on: c.front.pool}
	page, err := r.column("cursorpage", "aggregate_cursor_first_page", "admin", b.Finish())
	if err != nil {
		return nil, err
	}
	batch, _ := field(page, "cursor", "firstBatch").Array()
	shaped := slices.Collect(batch.Documents())
	i := 0
	for _, doc := range shaped {
		for i < len(events) && !field(events[i], "_id").Equal(field(doc, "_id")) {
			i++
		}
		if i == len(events) {
			return nil, failure.ChangeStreamFatalError.Errorf(
				"the pipeline has changed the _id of an event")
		}
	}
	if integer(page, "cursor", "id") != 0 {
		return nil, failure.ChangeStreamFatalError.Errorf("the pipeline makes events too large")
	}
	return shaped, nil
}

// firstBatch answers with a first batch that is empty.
func (r *request) firstBatch(c *stream) (bson.Raw, error) {
	if _, _, _, err := r.front.log.from(c.next); err != nil {
		return nil, err
	}
	name := c.ns.coll
	if name == "" || field(r.body, "aggregate").IsZero() {
		name = "$cmd.aggregate"
	}
	kept := &cursor{database: r.Database, lsid: r.lsid, stream: c}
	kept.namespace = r.Database + "." + name
	id := r.front.newCursor()
	r.front.keep(id, kept)
	return c.reply(id, kept.namespace, "firstBatch", nil), nil
}

// defaultAwait is how long a getMore without maxTimeMS waits for events.
const defaultAwait = time.Second

// nextEvents answers with the next batch, once there is one, or with an empty one in the end.
func (r *request) nextEvents(id int64, kept *cursor) (bson.Raw, error) {
	limit := defaultAwait
	if ms := integer(r.body, "maxTimeMS"); ms > 0 {
		limit = time.Duration(ms) * time.Millisecond
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	c := kept.stream
	size, given := field(r.body, "batchSize").AsInt64()
	if !given || size == 0 {
		size = mostEvents
	}
	for over := false; ; {
		changed, err := c.collect()
		if err != nil {
			r.front.forget(id)
			return nil, err
		}
		if len(c.rest) > 0 || c.ended || over {
			batch := c.take(size)
			if c.ended && len(c.rest) == 0 { // no more will come
				r.front.forget(id)
				id = 0
			}
			return c.reply(id, kept.namespace, "nextBatch", batch), nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			over = true
		case <-r.front.ctx.Done():
			return nil, failure.InterruptedAtShutdown.Errorf("interrupted at shutdown")
		}
	}
}

// mostBytes is how large a batch may be, unless one event is larger.
const mostBytes = 15 << 20

func (c *stream) take(n int64) []bson.Raw {
	size, i := 0, 0
	for ; i < len(c.rest) && int64(i) < n; i++ {
		if size += len(c.rest[i]); size > mostBytes && i > 0 {
			break
		}
	}
	batch := c.rest[:i]
	c.rest = c.rest[i:]
	return batch
}

func (c *stream) reply(id int64, ns, name string, batch []bson.Raw) bson.Raw {
	b := bson.NewBuilder(nil).OpenDocument("cursor")
	appendList(b, name, batch, b.Document).Int64("id", id).String("ns", ns)
	token := c.next.token(c.ended)
	if len(c.rest) > 0 {
		token = document(batch[len(batch)-1], "_id")
	}
	return b.Document("postBatchResumeToken", token).Close().Double("ok", 1).Finish()
}
