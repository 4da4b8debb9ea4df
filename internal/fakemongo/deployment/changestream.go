package deployment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// changeStream holds how far a cursor has come in the log of a deployment. Each entry has two
// numbers: 2n is the event, and 2n+1 the invalidate event that may follow it.
type changeStream struct {
	deployment *Deployment
	pipeline   pipeline
	stages     []bson.Raw // behind $changeStream
	database   string     // whose changes it sees; "": all
	collection string     // "": all of the database
	expanded   bool       // showExpandedEvents
	lookup     bool       // fullDocument: "updateLookup"
	// after is fullDocument, and before is fullDocumentBeforeChange: what events say of images.
	after, before string
	next          int  // the number of the next event
	ended         bool // by an invalidate event
}

// The values of options for images; any other asks for none.
const (
	whenAvailable = "whenAvailable"
	required      = "required"
)

// openStream answers an aggregate whose first stage is $changeStream.
func (h *host) openStream(cmd *request, options bson.Raw, stages []bson.Raw) (reply, error) {
	d := h.deployment
	if d.topology == Single {
		return reply{}, failure.OnlyReplicaSets.Errorf(
			"The $changeStream stage is only supported on replica sets")
	}
	sc, err := newScope(cmd.Body, document(cmd.Body, "collation"))
	if err != nil {
		return reply{}, err
	}
	c := &changeStream{
		deployment: d, stages: stages, database: cmd.Database,
		pipeline: pipeline{store: d.store, scope: sc, database: cmd.Database},
	}
	c.collection, _ = field(cmd.Body, "aggregate").Str()
	for _, stage := range stages {
		name := stage.FirstKey()
		if known := pipelineStages[name]; known != nil && name != "$match" {
			return reply{}, failure.IllegalOperation.Errorf(
				"%s is not permitted in a $changeStream pipeline", name)
		}
	}
	d.store.mu.Lock()
	c.next = 2 * len(d.store.log)
	_, err = c.pipeline.stagesLocked(nil, stages)
	if err == nil {
		err = c.setLocked(options)
	}
	d.store.mu.Unlock()
	if err != nil {
		return reply{}, err
	}
	events, err := c.collect()
	if err != nil {
		return reply{}, err
	}
	ns := cmd.Database + "." + c.collection
	if c.collection == "" {
		ns = cmd.Database + ".$cmd.aggregate"
	}
	return h.first(cmd, &cursor{namespace: ns, rest: events, stream: c, awaitData: true},
		field(cmd.Body, "cursor", "batchSize"), false)
}

// setLocked applies the options of the stage.
func (c *changeStream) setLocked(options bson.Raw) error {
	starts := 0
	for key, v := range options.All() {
		doc, _ := v.Document()
		switch key {
		case "resumeAfter", "startAfter":
			starts++
			text, _ := field(doc, "_data").Str()
			n, err := strconv.ParseInt(text, 16, 32)
			if err != nil {
				return failure.InvalidResumeToken.Errorf("no resume token: %q", text)
			}
			if n%2 == 0 && n > 0 && key == "resumeAfter" && c.isInvalidateLocked(int(n)-1) {
				return failure.InvalidResumeToken.Errorf(
					"Attempting to resume a change stream using 'resumeAfter' is not allowed " +
						"from an invalidate notification.")
			}
			c.next = int(n)
		case "startAtOperationTime":
			starts++
			at := timestampOf(v)
			log := slices.Concat(c.deployment.store.log, []entry{{at: later}})
			c.next = 2 * slices.IndexFunc(log, func(e entry) bool { return !at.after(e.at) })
		case "allChangesForCluster":
			if all, _ := v.Bool(); all {
				c.database = ""
			}
		case "showExpandedEvents":
			c.expanded, _ = v.Bool()
		case "fullDocument", "fullDocumentBeforeChange":
			name, _ := v.Str()
			if err := c.setImages(key, name); err != nil {
				return err
			}
		default:
			return failure.UnknownField.Errorf(
				"BSON field '$changeStream.%s' is an unknown field", key)
		}
	}
	if starts > 1 {
		return failure.InvalidOptions.Errorf("Only one type of resume option is allowed")
	}
	return nil
}

// setImages applies the options for documents.
func (c *changeStream) setImages(key, name string) error {
	known := c.deployment.wire >= wire60
	switch {
	case key == "fullDocument" && (name == "default" || name == "updateLookup"):
		c.lookup = name == "updateLookup"
	case known && key == "fullDocumentBeforeChange" && name == "off":
	case known && (name == whenAvailable || name == required):
		if key == "fullDocument" {
			c.after = name
		} else {
			c.before = name
		}
	case !known && key == "fullDocumentBeforeChange":
		return failure.UnknownField.Errorf("BSON field '$changeStream.%s' is an unknown field", key)
	default:
		return failure.BadValue.Errorf("%s cannot be %q", key, name)
	}
	return nil
}

// AppendImage appends the image of a changed document under a key, as the option for it wants it:
// whenAvailable, required, or not at all. kept says that the collection keeps images.
func AppendImage(b *bson.Builder, key, want string, kept bool, image bson.Raw) error {
	switch {
	case want != whenAvailable && want != required:
	case kept:
		b.Document(key, image)
	case want == required:
		return failure.NoMatchingDocument.Errorf(
			"Change stream was configured to require the %s of all changes, but it was not found",
			key)
	default:
		b.Null(key)
	}
	return nil
}

// later is after all times.
var later = timestamp{1<<32 - 1, 1<<32 - 1}

// isInvalidateLocked reports whether that number is an invalidate event's.
func (c *changeStream) isInvalidateLocked(number int) bool {
	if number < 0 || number/2 >= len(c.deployment.store.log) || number%2 == 0 {
		return false
	}
	e := c.deployment.store.log[number/2]
	if c.collection == "" {
		return e.kind == "dropDatabase" && e.namespace == c.database
	}
	return e.namespace == c.database+"."+c.collection && (e.kind == "drop" || e.kind == "rename")
}

// collect returns the events that have come since the last call.
func (c *changeStream) collect() ([]bson.Raw, error) {
	s := c.deployment.store
	s.mu.Lock()
	defer s.mu.Unlock()
	var events []bson.Raw
	for !c.ended && c.next < 2*len(s.log) {
		number := c.next
		c.next++
		event, err := c.eventLocked(s.log[number/2], number)
		if err != nil {
			return nil, err
		}
		if event == nil {
			continue
		}
		shaped, err := c.pipeline.stagesLocked([]bson.Raw{event}, c.stages)
		if err != nil {
			return nil, err
		}
		for _, doc := range shaped {
			if !field(doc, "_id").Equal(field(event, "_id")) {
				return nil, errNoToken
			}
			events = append(events, doc)
		}
		c.ended = number%2 == 1
	}
	return events, nil
}

var errNoToken = failure.ChangeStreamFatalError.Errorf(
	"Encountered an event whose _id field, which contains the resume token, was modified by the " +
		"pipeline.")

// tokenAfter returns the resume token of an event.
func tokenAfter(number int) bson.Raw {
	return bson.NewBuilder(nil).String("_data", fmt.Sprintf("%016x", number+1)).Finish()
}

// resumeToken returns the one from which a stream goes on behind a batch, before these events.
func (c *changeStream) resumeToken(before []bson.Raw) bson.Raw {
	if len(before) == 0 {
		return tokenAfter(c.next - 1)
	}
	text, _ := field(before[0], "_id", "_data").Str()
	n, _ := strconv.ParseInt(text, 16, 32)
	return tokenAfter(int(n) - 2)
}

// eventLocked returns what the stream says of an entry; nil: nothing.
func (c *changeStream) eventLocked(e entry, number int) (bson.Raw, error) {
	database, collection, _ := strings.Cut(e.namespace, ".")
	b := bson.NewBuilder(nil).Document("_id", tokenAfter(number))
	if number%2 == 1 {
		if !c.isInvalidateLocked(number) {
			return nil, nil
		}
		return b.String("operationType", "invalidate").Value("clusterTime", e.at.value()).
			Finish(), nil
	}
	plain := slices.Contains(plainEvents, e.kind)
	if e.kind == "" || !plain && !c.expanded || c.database != "" && c.database != database ||
		c.collection != "" && c.collection != collection {
		return nil, nil
	}
	b.String("operationType", e.kind).Value("clusterTime", e.at.value())
	if c.deployment.wire >= wire60 {
		b.DateTime("wallTime", time.Unix(int64(e.at.t), 0).UnixMilli())
	}
	appendNamespace(b, "ns", e.namespace)
	if e.kind == "rename" {
		appendNamespace(b, "to", e.target)
	}
	if e.kind == "create" && c.deployment.wire >= wire81 {
		b.String("nsType", e.nsType)
	}
	if id := e.id(); !id.IsZero() {
		b.OpenDocument("documentKey").Value("_id", id).Close()
	}
	if err := c.appendDocumentLocked(b, e); err != nil {
		return nil, err
	}
	if e.before != nil {
		err := AppendImage(b, "fullDocumentBeforeChange", c.before, e.images, e.before)
		if err != nil {
			return nil, err
		}
	}
	return b.Finish(), nil
}

// plainEvents are those that streams see without showExpandedEvents.
var plainEvents = []string{
	"insert", "update", "replace", "delete", "drop", "rename", "dropDatabase",
}

func appendNamespace(b *bson.Builder, key, namespace string) {
	database, collection, _ := strings.Cut(namespace, ".")
	b.OpenDocument(key).String("db", database)
	if collection != "" {
		b.String("coll", collection)
	}
	b.Close()
}

// appendDocumentLocked appends the document of an event, or how it has changed.
func (c *changeStream) appendDocumentLocked(b *bson.Builder, e entry) error {
	if e.kind != "update" {
		if e.after != nil {
			b.Document("fullDocument", e.after)
		}
		return nil
	}
	if err := AppendImage(b, "fullDocument", c.after, e.images, e.after); err != nil {
		return err
	}
	if c.lookup {
		in := c.deployment.store.lookLocked(e.namespace)
		if i := in.index(e.id()); i >= 0 {
			b.Document("fullDocument", in.docs[i])
		} else {
			b.Null("fullDocument")
		}
	}
	b.Document("updateDescription", UpdateDescription(e.before, e.after,
		c.deployment.wire >= wire50, c.expanded && c.deployment.wire >= wire60))
	return nil
}

// resumable are the errors that a server labels ResumableChangeStreamError.
var resumable = []failure.Code{
	6, 7, 63, 89, 91, 133, 150, 189, 234, 262, 9001, 10107, 11600, 11602, 13388, 13435, 13436,
}

// resumes reports whether a getMore that fails with this code is a change stream's, which resumes
// then. Servers say so since 4.4.
func (h *host) resumes(cmd *fakemongo.Command, code failure.Code) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.cursors[integer(cmd.Body, "getMore")]
	return c != nil && c.stream != nil && h.wire >= wire44 && slices.Contains(resumable, code)
}
