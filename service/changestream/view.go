package changestream

import (
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/service/match"
	"github.com/mooringdb/mooring/service/projection"
)

// view decides what the events of a collection mean to a client that has the documents which match
// a filter. It does no I/O.
type view struct {
	filter     *match.Filter // nil: all documents match
	projection *projection.Projection
	// shown has the ids of the documents that the client has, which take so many bytes.
	shown map[string]struct{}
	bytes int64
	// since is the time of the snapshot that the client has; zero: not known. Events until then are
	// in it.
	since session.Timestamp
}

// What a client is told of documents.
const (
	kindAdded   = "added"
	kindChanged = "changed"
	kindRemoved = "removed"
	kindReady   = "ready"
)

// change says what has become of a document. Its zero value is nothing.
type change struct {
	kind     string
	document bson.Raw
}

// question asks a server whether a document matches, of which only a server can say that.
type question struct {
	// id is the document's, and document what it was at the event; nil: a shard has deleted it.
	id, document bson.Raw
	at           session.Timestamp // when the event was; zero: not known
}

// idCost is how many bytes an id takes beside its own.
const idCost = 64

// key returns what stands for an _id in shown.
func key(id bson.Value) string { return string(append([]byte{byte(id.Type)}, id.Data...)) }

// cost returns how many bytes the _id of a document takes in shown.
func cost(id bson.Value) int64 { return int64(idCost + len(id.Data)) }

// show records that the client gets a document, and reports whether it had it.
func (v *view) show(document bson.Raw) (had bool) {
	id, _ := document.Lookup("_id")
	k := key(id)
	if _, had = v.shown[k]; !had {
		v.shown[k] = struct{}{}
		v.bytes += cost(id)
	}
	return had
}

// isEnd reports whether an event takes all documents away.
func isEnd(kind string) bool {
	switch kind {
	case "drop", "rename", "dropDatabase", "invalidate":
		return true
	}
	return false
}

// event returns what an event tells the client: a change, or the question that it raises.
func (v *view) event(kind string, event bson.Raw) (told change, asked *question) {
	if isUntil(event, v.since) {
		return change{}, nil
	}
	id := documentKey(event)
	switch kind {
	case "delete":
		if v.has(id) && isSharded(event) {
			return change{}, &question{id, nil, timeOf(event)}
		}
		return v.remove(id), nil
	case "insert", "update", "replace":
	default:
		return change{}, nil
	}
	found, _ := event.Lookup("fullDocument")
	document, ok := found.Document()
	if !ok { // it was deleted meanwhile, of which an event follows
		return change{}, nil
	}
	if v.filter == nil {
		return v.add(document), nil
	}
	switch v.filter.Match(document) {
	case match.Yes:
		return v.add(document), nil
	case match.No:
		return v.remove(id), nil
	case match.Unknown:
	}
	return change{}, &question{id, document, timeOf(event)}
}

// isSharded reports whether a document may be at another shard when one has deleted it: its _id
// alone does not say where it is.
func isSharded(event bson.Raw) bool {
	found, _ := event.Lookup("documentKey")
	of, _ := found.Document()
	return of.Len() > 1
}

// documentKey returns the _id of an event's document, as a document.
func documentKey(event bson.Raw) bson.Raw {
	found, _ := event.Lookup("documentKey")
	of, _ := found.Document()
	id, _ := of.Lookup("_id")
	return bson.NewBuilder(nil).Value("_id", id).Finish()
}

// has reports whether the client has a document.
func (v *view) has(id bson.Raw) bool {
	value, _ := id.Lookup("_id")
	_, has := v.shown[key(value)]
	return has
}

// add returns that a document matches.
func (v *view) add(document bson.Raw) change {
	told := change{kindAdded, v.projection.Apply(document)}
	if v.show(document) {
		told.kind = kindChanged
	}
	return told
}

// remove returns that a document does not match any more, if the client has it. A client does not
// learn of others.
func (v *view) remove(id bson.Raw) change {
	if !v.has(id) {
		return change{}
	}
	value, _ := id.Lookup("_id")
	delete(v.shown, key(value))
	v.bytes -= cost(value)
	return change{kindRemoved, id}
}

// clear forgets all documents, and returns their ids.
func (v *view) clear() []bson.Raw {
	ids := make([]bson.Raw, 0, len(v.shown))
	for k := range v.shown {
		id := bson.Value{Type: bson.Type(k[0]), Data: []byte(k[1:])}
		ids = append(ids, bson.NewBuilder(nil).Value("_id", id).Finish())
	}
	clear(v.shown)
	v.bytes = 0
	return ids
}
