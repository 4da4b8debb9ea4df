package policy

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
)

// watchAction is the action that each event of a change stream is decided as.
const watchAction = "Watch"

// watch checks a request whose events are decided one by one: it must not change them, nor look at
// what a rule could hide.
func (c *Call) watch(m protoreflect.Message, l *limits) error {
	request, ok := m.Interface().(*mooringv1.WatchRequest)
	if !ok {
		return problem("is not known")
	}
	r := reader{call: c, limits: *l}
	stages, err := c.decoder.List("pipeline", request.GetPipeline())
	switch {
	case err != nil:
		return err
	case len(m.GetUnknown()) > 0:
		return problem("has a field that the policy does not support")
	case request.GetCollation().GetEncoding() != nil:
		return &partError{"collation", problem("is not possible where a rule limits events")}
	}
	if err := r.options(request.GetOptions()); err != nil {
		return err
	}
	for _, stage := range stages {
		v, _ := stage.Lookup("$match")
		filter, ok := v.Document()
		if !ok || stage.Len() != 1 || !aboutKind(filter) {
			return &partError{"pipeline", problem("has more than $match on operationType, ns and " +
				"clusterTime, which is not possible where a rule limits events")}
		}
	}
	c.perEvent, c.quiet = true, true
	return nil
}

// aboutKind reports whether a filter looks only at what each event tells of itself.
func aboutKind(filter bson.Raw) bool {
	for key, v := range filter.All() {
		name, _, _ := strings.Cut(key, ".")
		switch {
		case key == "$and" || key == "$or" || key == "$nor":
			list, _ := v.Array()
			for _, item := range list.All() {
				if sub, ok := item.Document(); !ok || !aboutKind(sub) {
					return false
				}
			}
		case name != "operationType" && name != "ns" && name != "clusterTime":
			return false
		}
	}
	return true
}

// PerEvent reports whether Event must decide about each event of the change stream.
func (c *Call) PerEvent() bool { return c.perEvent }

// Event returns what a client may see of an event of a change stream, by the rules as they are now.
// It returns false if the client may not see the event.
func (e *Enforcer) Event(who *caller.Identity, event bson.Raw) (bson.Raw, bool) {
	s := e.state.Load()
	kind, _ := event.Lookup("operationType")
	name, _ := kind.Str()
	if name == "invalidate" { // the stream ends, which the client sees anyway
		return event, true
	}
	var limited *Decision
	for i, at := range []string{"ns", "to"} {
		on, ok := namespaceOf(event, at)
		if !ok && i > 0 {
			continue
		}
		d := s.decide(question{who, watchAction, on})
		if !ok || !d.Allowed {
			return nil, false
		}
		if d.Restricted() {
			limited = d
		}
	}
	if limited == nil {
		return event, true
	}
	return limitEvent(event, name, limited)
}

// namespaceOf returns the collection or the database in a field of an event.
func namespaceOf(event bson.Raw, field string) (on Resource, ok bool) {
	v, _ := event.Lookup(field)
	ns, ok := v.Document()
	if !ok {
		return on, false
	}
	database, _ := ns.Lookup("db")
	on.Database, ok = database.Str()
	if coll, found := ns.Lookup("coll"); found && ok {
		on.Collection, ok = coll.Str()
	}
	return on, ok && on.Database != ""
}

// plainFields lists the fields of events that tell nothing of documents.
var plainFields = []string{
	"_id", "operationType", "clusterTime", "wallTime", "ns", "nsType", "to", "collectionUUID",
}

// limitEvent returns an event of a collection with limits. Under a filter, a document that does not
// match does not show; what an update has changed tells of the document as it was between, and does
// not show either.
func limitEvent(event bson.Raw, kind string, limits *Decision) (bson.Raw, bool) {
	filter, hidden := limits.Filter, limits.Hidden
	document := kind == "insert" || kind == "update" || kind == "replace" || kind == "delete"
	after := documentIn(event, "fullDocument")
	before := documentIn(event, "fullDocumentBeforeChange")
	if document && filter != nil {
		known := after
		if kind == "delete" {
			known = before
		}
		if known == nil || !limits.matches(known) {
			return nil, false
		}
		if before != nil && !limits.matches(before) {
			before = nil
		}
	}
	b := bson.NewBuilder(make([]byte, 0, len(event)))
	for key, v := range event.All() {
		d, _ := v.Document()
		switch {
		case slices.Contains(plainFields, key):
			b.Value(key, v)
		case !document:
		case key == "fullDocument" && after != nil:
			b.Document(key, without(after, hidden))
		case key == "fullDocumentBeforeChange" && before != nil:
			b.Document(key, without(before, hidden))
		case key == "documentKey":
			b.Document(key, without(d, hidden))
		case key == "updateDescription" && filter == nil:
			b.Document(key, describeUpdate(d, hidden))
		}
	}
	return b.Finish(), true
}

func documentIn(event bson.Raw, field string) bson.Raw {
	v, _ := event.Lookup(field)
	d, _ := v.Document()
	return d
}

// describeUpdate returns what an update has changed, without what touches hidden fields.
func describeUpdate(d bson.Raw, hidden []string) bson.Raw {
	b := bson.NewBuilder(make([]byte, 0, len(d)))
	for key, v := range d.All() {
		switch key {
		case "updatedFields":
			fields, _ := v.Document()
			b.OpenDocument(key)
			for path, value := range fields.All() {
				if !touches(path, hidden) {
					b.Value(path, value)
				}
			}
			b.Close()
		case "removedFields", "truncatedArrays":
			list, _ := v.Array()
			b.OpenArray(key)
			for _, item := range list.All() {
				path, ok := item.Str()
				if d, isDocument := item.Document(); isDocument {
					field, _ := d.Lookup("field")
					path, ok = field.Str()
				}
				if ok && !touches(path, hidden) {
					b.Value("", item)
				}
			}
			b.Close()
		}
	}
	return b.Finish()
}

// without returns a document without the fields at paths, also where they are in arrays.
func without(d bson.Raw, paths []string) bson.Raw {
	b := bson.NewBuilder(make([]byte, 0, len(d)))
	for key, v := range d.All() {
		inner, gone := pathsIn(key, paths)
		if !gone {
			b.Value(key, withoutIn(v, inner))
		}
	}
	return b.Finish()
}

// pathsIn returns the rest of the paths that go on in a field, and whether one ends there. A key
// with dots is taken for the path that it looks like.
func pathsIn(key string, paths []string) (inner []string, gone bool) {
	for _, path := range paths {
		if within(key, path) {
			return nil, true
		}
		if rest, ok := strings.CutPrefix(path, key+"."); ok {
			inner = append(inner, rest)
		}
	}
	return inner, false
}

func withoutIn(v bson.Value, paths []string) bson.Value {
	if len(paths) == 0 {
		return v
	}
	if d, ok := v.Document(); ok {
		return bson.DocumentValue(without(d, paths))
	}
	list, ok := v.Array()
	if !ok {
		return v
	}
	b := bson.NewBuilder(make([]byte, 0, len(list))).OpenArray("a")
	for _, item := range list.All() {
		b.Value("", withoutIn(item, paths))
	}
	made, _ := b.Close().Finish().Lookup("a")
	return made
}
