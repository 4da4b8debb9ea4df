package changestream

import (
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/hub"
	"github.com/mooringdb/mooring/service/match"
)

// sharedFields lists the fields that a request may have whose stream shares a cursor. What else a
// client sets may make the server do something that it does not do for others.
var sharedFields = map[protoreflect.Name]bool{
	"database": true, "collection": true, "pipeline": true, "batch_size": true,
	"full_document": true, "full_document_before_change": true, "show_expanded_events": true,
	"resume_after": true, "start_after": true,
}

// maxSharedFilter is how many bytes a filter may have that is evaluated here.
const maxSharedFilter = 16 << 10

// share describes a stream that can share a cursor.
type share struct {
	key hub.Key
	// filter decides about events; nil: all are kept. text is what it was compiled of.
	filter *match.Filter
	text   string
	after  bson.Raw
	// marks says that the client may see no token of an event that it does not get.
	marks bool
}

// sharing returns how the stream of a request can share a cursor, and whether it can: its pipeline
// is empty, or one $match that is evaluated here as servers do, and nothing else tells it from
// other streams of its namespace.
func sharing(
	req *mooringv1.WatchRequest, ns client.Namespace, opt *client.WatchOptions, of serversOf,
) (share, bool) {
	known := req.ResumeAfter == nil || req.StartAfter == nil
	req.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		known = known && sharedFields[f.Name()]
		return known
	})
	if !known {
		return share{}, false
	}
	made := share{key: hub.Key{
		Database: ns.Database, Collection: ns.Collection,
		FullDocument:             opt.FullDocument,
		FullDocumentBeforeChange: opt.FullDocumentBeforeChange,
	}}
	if expanded := opt.ShowExpandedEvents; expanded != nil {
		made.key.Options = strconv.FormatBool(*expanded)
	}
	if made.after = opt.StartAfter; made.after == nil {
		made.after = opt.ResumeAfter
	}
	if opt.Pipeline.IsEmpty() {
		return made, true
	}
	filter, ok := onlyMatch(opt.Pipeline)
	if !ok || len(filter) > maxSharedFilter || of.compareByCollection(ns) {
		return share{}, false
	}
	compiled, err := match.Compile(filter)
	made.filter, made.text = compiled, string(filter)
	return made, err == nil
}

// onlyMatch returns the filter of a pipeline that is one $match.
func onlyMatch(pipeline bson.Array) (filter bson.Raw, ok bool) {
	if pipeline.Len() != 1 {
		return nil, false
	}
	for stage := range pipeline.Documents() {
		v, _ := stage.Lookup("$match")
		filter, ok = v.Document()
		ok = ok && stage.Len() == 1
	}
	return filter, ok
}

// serversOf lists the servers of a deployment, as far as they are known.
type serversOf []*description.Server

// wireVersion42 is the first whose servers compare texts in change streams by their bytes, whatever
// the collection's default collation is.
const wireVersion42 = 8

// compareByCollection reports whether a server may compare the texts of events of a collection by
// its default collation.
func (s serversOf) compareByCollection(ns client.Namespace) bool {
	for _, server := range s {
		if ns.Collection != "" && server.IsAvailable() &&
			server.Kind != description.ServerLoadBalancer &&
			server.MaxWireVersion < wireVersion42 {
			return true
		}
	}
	return false
}

// hubFilter returns the filter for a hub. It keeps what this process cannot decide about, and
// invalidate events, which end the stream.
func (s *share) hubFilter() hub.Filter {
	f := hub.Filter{Text: s.text, Marks: s.marks}
	if s.filter != nil {
		f.Match = func(event bson.Raw) bool {
			return s.filter.Match(event) != match.No || isInvalidate(event)
		}
		f.Within = func(event bson.Raw, steps int) (keeps bool, took int) {
			answer, took := s.filter.MatchWithin(event, min(steps, match.MaxSteps))
			if steps >= match.MaxSteps {
				took = min(took, match.MaxSteps) // it is kept if it is undecided
			}
			return answer != match.No || isInvalidate(event), took
		}
	}
	return f
}

// undecided reports whether only the server can decide about an event.
func (s *share) undecided(event bson.Raw) bool {
	return s.filter != nil && s.filter.Match(event) == match.Unknown && !isInvalidate(event)
}

// needNot reports whether a shared cursor has failed at an event that is larger than a server may
// send, and that the stream's own $match may leave out.
func (s *share) needNot(err error) bool {
	return s.filter != nil && isRefusal(err, bsonObjectTooLarge)
}

func isInvalidate(event bson.Raw) bool {
	v, _ := event.Lookup("operationType")
	kind, _ := v.Str()
	return kind == "invalidate"
}
