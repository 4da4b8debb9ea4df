package docdb

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// position says where a stream goes on: behind the part of a commit. Each change of a commit has
// two parts: itself, and the invalidate event that may follow it, whose number is even.
type position struct {
	lsn  uint64
	part uint32
}

// whole is behind all parts of a commit.
const whole = 1<<32 - 1

func (p position) before(o position) bool {
	return cmp.Or(cmp.Compare(p.lsn, o.lsn), cmp.Compare(p.part, o.part)) < 0
}

func (p position) invalidates() bool { return p.part > 0 && p.part%2 == 0 }

// token returns the resume token from which a stream goes on there.
func (p position) token() bson.Raw {
	return bson.NewBuilder(nil).String("_data", fmt.Sprintf("%016X%08X", p.lsn, p.part)).Finish()
}

// parseToken reads what token has made.
func parseToken(token bson.Raw) (p position, err error) {
	data := text(token, "_data")
	_, err = fmt.Sscanf(data, "%016X%08X", &p.lsn, &p.part)
	if err != nil || text(p.token(), "_data") != data {
		return p, failure.InvalidResumeToken.Errorf("no resume token: %q", data)
	}
	return p, nil
}

// stream holds a change stream: what it is about, and how far it has come.
type stream struct {
	front    *Front
	ns       namespace // coll is "" for a database, db for all
	stages   []bson.Raw
	expanded bool
	images   map[string]string // what the options for images say

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
	stages := r.Documents("pipeline")
	if len(stages) == 0 || stages[0].FirstKey() != "$changeStream" {
		return r.open()
	}
	if r.within != nil {
		return nil, failure.OperationNotSupportedInTransaction.Errorf(
			"$changeStream cannot be in a transaction")
	}
	c := &stream{
		front: r.front, ns: namespace{db: r.Database}, stages: stages[1:],
		images: map[string]string{},
	}
	c.ns.coll = text(r.Body, "aggregate")
	for _, s := range c.stages {
		if !slices.Contains(stagesOfStreams, s.FirstKey()) {
			return nil, failure.UnknownStage.Errorf("%s cannot follow $changeStream in a pipeline",
				s.FirstKey())
		}
	}
	// A commit of nothing, which all streams pass: so those that wait come to the same token.
	now, err := r.emit("opened", nil)
	if err != nil {
		return nil, err
	}
	c.next = position{lsn: now}
	if err := c.set(document(stages[0], "$changeStream")); err != nil {
		return nil, err
	}
	none := bson.NewBuilder(nil).Document("_id", c.next.token()).Finish()
	if _, err := c.shape([]bson.Raw{none}); err != nil { // which refuses stages that are wrong
		return nil, err
	}
	if _, _, _, err := r.front.log.from(c.next); err != nil {
		return nil, err
	}
	id, name := rand.Int64(), cmp.Or(text(r.Body, "aggregate"), "$cmd.aggregate")
	kept := &cursor{namespace: r.Database + "." + name, lsid: r.lsid, stream: c}
	r.front.keep(id, kept)
	return c.reply(id, kept.namespace, "firstBatch", 0), nil
}

// imageOptions are the options for images, and their values.
var imageOptions = map[string][]string{
	"fullDocument":             {"default", "updateLookup", "whenAvailable", "required"},
	"fullDocumentBeforeChange": {"off", "whenAvailable", "required"},
}

// set applies the options of the stage.
func (c *stream) set(options bson.Raw) (err error) {
	starts := 0
	for key, v := range options.All() {
		doc, _ := v.Document()
		name, _ := v.Str()
		on, _ := v.Bool()
		switch key {
		case "resumeAfter", "startAfter":
			starts++
			if c.next, err = parseToken(doc); err != nil {
				return err
			}
			if c.next.invalidates() && key == "resumeAfter" {
				return failure.InvalidResumeToken.Errorf(
					"resumeAfter cannot follow an invalidate event")
			}
		case "startAtOperationTime":
			starts++
			c.next = position{lsn: c.front.clock.position(v)}
		case "allChangesForCluster":
			if on {
				c.ns = namespace{}
			}
		case "showExpandedEvents":
			c.expanded = on
		case "fullDocument", "fullDocumentBeforeChange":
			if c.images[key] = name; !slices.Contains(imageOptions[key], name) {
				return failure.BadValue.Errorf("%s cannot be %q", key, name)
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

// collect makes the events that have come since the last call, unless some are ready. changed is
// closed once there may be more.
func (c *stream) collect() (changed <-chan struct{}, err error) {
	for len(c.rest) == 0 && !c.ended {
		entries, last, changed, err := c.front.log.from(c.next)
		if err != nil {
			return nil, err
		}
		events, err := c.events(entries, last)
		if err != nil {
			return nil, err
		}
		if c.rest, err = c.shape(events); err != nil || !c.next.before(position{last, whole}) {
			return changed, err
		}
	}
	return nil, nil
}

// events makes events of what is behind the stream, until they are enough, one ends it, or they
// have come to the last commit.
func (c *stream) events(entries []entry, last uint64) (events []bson.Raw, err error) {
	c.front.clock.saw(last + 1) // no event is behind the time of its reply
	size := 0
	for _, e := range entries {
		for i := range 2 * len(e.changes) {
			at := position{e.lsn, uint32(i + 1)}
			if !c.next.before(at) {
				continue
			}
			event, err := c.event(e, e.changes[i/2], at)
			if err != nil {
				return nil, err
			}
			if event == nil {
				continue
			}
			// The page that the engine makes of them must hold them, and a batch, too.
			if size += len(event); size > 1<<20 && len(events) > 0 {
				return events, nil
			}
			events, c.next = append(events, event), at
			if c.ended = at.invalidates(); c.ended {
				return events, nil
			}
		}
		c.next = position{e.lsn, whole}
	}
	if end := (position{last, whole}); c.next.before(end) {
		c.next = end
	}
	return events, nil
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

// event returns what the stream says of a part of a commit; nil: nothing.
func (c *stream) event(e entry, change change, at position) (event bson.Raw, err error) {
	kind, tells := change.kind, c.sees(change)
	if at.invalidates() {
		kind, tells = "invalidate", c.invalidates(change)
	}
	if !tells {
		return nil, nil
	}
	b := bson.NewBuilder(nil).Document("_id", at.token()).String("operationType", kind).
		Value("clusterTime", c.front.clock.value(e.lsn)).DateTime("wallTime", e.at.UnixMilli())
	if at.invalidates() {
		return b.Finish(), nil
	}
	b.AppendElements(e.about)
	switch change.kind {
	case "insert", "replace":
		b.Document("fullDocument", change.after)
	case "update":
		if err = c.appendAfter(b, change); err != nil {
			return nil, err
		}
	}
	change.ns.append(b, "ns")
	if change.kind == "rename" {
		change.to.append(b, "to")
	}
	id := field(change.after, "_id")
	if change.after == nil {
		id = field(change.before, "_id")
	}
	if !id.IsZero() {
		b.OpenDocument("documentKey").Value("_id", id).Close()
	}
	if change.kind == "update" {
		b.Document("updateDescription", deployment.UpdateDescription(
			change.before, change.after, true, c.expanded))
	}
	if change.before != nil {
		const key = "fullDocumentBeforeChange"
		err = deployment.AppendImage(b, key, c.images[key], change.images, change.before)
	}
	return b.Finish(), err
}

// appendAfter appends the document behind an update, as the option for it says.
func (c *stream) appendAfter(b *bson.Builder, e change) error {
	if want := c.images["fullDocument"]; want != "updateLookup" {
		return deployment.AppendImage(b, "fullDocument", want, e.images, e.after)
	}
	page, err := c.front.ask(e.ns.db, bson.NewBuilder(nil).String("find", e.ns.coll).
		OpenDocument("filter").OpenDocument("_id").Value("$eq", field(e.after, "_id")).
		Close().Close().Int32("limit", 1).Bool("singleBatch", true).Finish())
	now := field(page, "cursor", "firstBatch", "0")
	if now.IsZero() {
		now = bson.NullValue()
	}
	b.Value("fullDocument", now)
	return err
}

// shape has the engine run the stages of the pipeline on events.
func (c *stream) shape(events []bson.Raw) ([]bson.Raw, error) {
	if len(c.stages) == 0 || len(events) == 0 {
		return events, nil
	}
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
	page, err := c.front.ask("admin", b.Finish())
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

// nextEvents answers with the next batch, once there is one, or with an empty one in the end.
func (r *request) nextEvents(id int64, kept *cursor) (bson.Raw, error) {
	wait := cmp.Or(integer(r.Body, "maxTimeMS"), 1000)
	timeout := time.NewTimer(time.Duration(wait) * time.Millisecond)
	defer timeout.Stop()
	c := kept.stream
	size := cmp.Or(integer(r.Body, "batchSize"), math.MaxInt32)
	for over := false; ; {
		changed, err := c.collect()
		if err != nil {
			return nil, err
		}
		if len(c.rest) > 0 || c.ended || over {
			return c.reply(id, kept.namespace, "nextBatch", int(size)), nil
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

// reply takes as many events as are ready, up to most. The last batch of a stream that has ended
// closes the cursor.
func (c *stream) reply(id int64, ns, name string, most int) bson.Raw {
	batch := c.rest[:min(most, len(c.rest))]
	c.rest = c.rest[len(batch):]
	token := c.next.token()
	if len(c.rest) > 0 {
		token = document(batch[len(batch)-1], "_id")
	} else if c.ended {
		id = 0
	}
	b := bson.NewBuilder(nil).OpenDocument("cursor")
	appendList(b, name, batch, b.Document).Int64("id", id).String("ns", ns)
	return b.Document("postBatchResumeToken", token).Close().Double("ok", 1).Finish()
}
