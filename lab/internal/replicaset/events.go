package replicaset

import (
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// sees reports whether a stream tells of a change.
func (st *stream) sees(c change) bool {
	return (st.ns.db == "" || st.ns.db == c.ns.db) && (st.ns.coll == "" || st.ns.coll == c.ns.coll)
}

// isEndedBy reports whether a change ends the stream.
func (st *stream) isEndedBy(c change) bool {
	switch {
	case st.ns.coll != "":
		return (c.kind == "drop" || c.kind == "rename") && (c.ns == st.ns || c.to == st.ns)
	case st.ns.db != "":
		return c.kind == "dropDatabase" && c.ns.db == st.ns.db
	}
	return false
}

// event returns what a stream says of a change.
func (s *Server) event(st *stream, c change) (bson.Raw, error) {
	b := bson.NewBuilder(nil).Document("_id", position{at: c.at, part: c.part}.token()).
		String("operationType", c.kind).Value("clusterTime", c.at.value()).Time("wallTime", c.wall)
	if c.whole {
		b.Int64("txnNumber", c.txn).Document("lsid", c.lsid)
	}
	if c.kind != "update" && c.after != nil {
		b.Document("fullDocument", c.after)
	}
	if c.kind == "update" && st.nullAfter {
		b.Null("fullDocument")
	}
	if c.kind == "update" && st.lookup {
		doc, err := s.lookup(c)
		if err != nil {
			return nil, err
		}
		b.Value("fullDocument", doc)
	}
	appendNamespace(b, "ns", c.ns)
	if c.kind == "rename" {
		appendNamespace(b, "to", c.to)
	}
	if id := c.id(); !id.IsZero() {
		b.OpenDocument("documentKey").Value("_id", id).Close()
	}
	if c.kind == "update" {
		var d difference
		d.documents("", c.before, c.after)
		d.append(b)
	}
	if st.nullThen && c.before != nil {
		b.Null("fullDocumentBeforeChange")
	}
	return b.Finish(), nil
}

// lookup returns the document as it is now, or null.
func (s *Server) lookup(c change) (bson.Value, error) {
	s.data.RLock()
	defer s.data.RUnlock()
	docs, err := s.all(bson.NewBuilder(nil).String("find", c.ns.coll).
		Document("filter", byID(c.after)), c.ns)
	if err != nil || len(docs) == 0 {
		return bson.NullValue(), err
	}
	return bson.DocumentValue(docs[0]), nil
}

func appendNamespace(b *bson.Builder, key string, ns namespace) {
	b.OpenDocument(key).String("db", ns.db)
	if ns.coll != "" {
		b.String("coll", ns.coll)
	}
	b.Close()
}

// difference holds what an update has changed.
type difference struct {
	updated   bson.Builder
	removed   []string
	truncated []truncation
}

type truncation struct {
	path string
	size int
}

func (d *difference) append(b *bson.Builder) {
	b.OpenDocument("updateDescription").Document("updatedFields", d.updated.Finish()).
		OpenArray("removedFields")
	for _, path := range d.removed {
		b.String("", path)
	}
	b.Close().OpenArray("truncatedArrays")
	for _, t := range d.truncated {
		b.OpenDocument("").String("field", t.path).Int32("newSize", int32(t.size)).Close()
	}
	b.Close().Close()
}

func (d *difference) documents(prefix string, before, after bson.Raw) {
	for key, v := range after.All() {
		d.values(prefix+key, field(before, key), v)
	}
	for key := range before.All() {
		if !after.Has(key) {
			d.removed = append(d.removed, prefix+key)
		}
	}
}

func (d *difference) values(path string, before, after bson.Value) {
	was, wasDoc := before.Document()
	is, isDoc := after.Document()
	list, wasList := before.Array()
	now, isList := after.Array()
	switch {
	case before.Equal(after):
	case wasDoc && isDoc:
		d.documents(path+".", was, is)
	case wasList && isList:
		if now.Len() < list.Len() {
			d.truncated = append(d.truncated, truncation{path, now.Len()})
		}
		for i, v := range now.All() {
			key := strconv.Itoa(i)
			d.values(path+"."+key, field(bson.Raw(list), key), v)
		}
	default:
		d.updated.Value(path, after)
	}
}

// dot stands for the dots in keys of updatedFields, which the backend does not take.
const dot = "\uff0e"

// shaped has the backend run the stages of a change stream on events.
func (s *Server) shaped(events, stages []bson.Raw) ([]bson.Raw, error) {
	if len(stages) == 0 {
		return events, nil
	}
	p := s.newCopy(namespace{})
	known := map[string]bool{}
	escaped := make([]bson.Raw, len(events))
	for i, event := range events {
		escaped[i] = renamed(event, ".", dot)
		known[keyOf(idOf(event))] = true
	}
	if len(events) > 0 {
		defer s.dropCopy(p)
		if err := s.fill(p, escaped); err != nil {
			return nil, err
		}
	}
	b := bson.NewBuilder(nil).String("aggregate", p.at.coll).OpenArray("pipeline")
	for _, stage := range stages {
		b.Document("", stage)
	}
	out, err := s.all(b.Close().OpenDocument("cursor").Int32("batchSize", 10_000).Close(), p.at)
	if err != nil {
		return nil, err
	}
	for i, event := range out {
		if !known[keyOf(idOf(event))] {
			return nil, failure.ChangeStreamFatalError.Errorf(
				"Encountered an event whose _id field, which contains the resume token, was " +
					"modified by the pipeline.")
		}
		out[i] = renamed(event, dot, ".")
	}
	return out, nil
}

// renamed returns an event whose updatedFields have other keys.
func renamed(event bson.Raw, from, to string) bson.Raw {
	description := document(event, "updateDescription")
	fields := document(description, "updatedFields")
	if fields.IsEmpty() {
		return event.Clone()
	}
	b := new(bson.Builder)
	for key, v := range fields.All() {
		b.Value(strings.ReplaceAll(key, from, to), v)
	}
	description = bson.With(description, "updatedFields", bson.DocumentValue(b.Finish()))
	return bson.With(event, "updateDescription", bson.DocumentValue(description))
}
