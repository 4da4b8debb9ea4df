package rest

import (
	"encoding/base64"
	"net/http"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// A change stream can go on where it was interrupted. As a stream of events it does so by itself:
// the id of each event is its resume token, which EventSource sends back when it reconnects. An id
// that is no token would make it lose its place, so only the last event of a stream that cannot go
// on has one, endEventID.

// lastEventID is the header with the id of the last event that EventSource has received.
const lastEventID = "Last-Event-Id"

// watchParams lists the parameters that a GET of changes may have in its query.
var watchParams = map[string]queryParam{
	"pipeline":                 asJSON,
	"fullDocument":             asString,
	"fullDocumentBeforeChange": asString,
	"resumeAfter":              asJSON,
	"startAfter":               asJSON,
	"startAtOperationTime":     asJSON,
	"batchSize":                asJSON,
	"maxAwaitTimeMS":           asJSON,
	"collation":                asJSON,
	"comment":                  asString,
	"showExpandedEvents":       asJSON,
	"readPreference":           asString,
	"readConcern":              asString,
}

// liveParams lists the parameters that a GET of live documents may have in its query.
var liveParams = map[string]queryParam{
	"filter":     asJSON,
	"projection": asJSON,
	"comment":    asString,
}

// liveFrame returns the text around the documents of a message of live documents. Its events have
// no id: a stream that EventSource opens again begins with all documents.
func (s *stream) liveFrame(kind string) frame {
	if s.c.format.Type == media.SSE {
		return frame{"event: " + kind + "\ndata: ", "\n\n"}
	}
	return frame{`{"` + kind + `":`, "}\n"}
}

// eventIDOf returns the id of an event of a change stream: its resume token.
func eventIDOf(event *mooringv1.Document) string {
	id, _ := bson.Raw(event.GetBson()).Lookup("_id")
	token, _ := id.Document()
	return eventID(token)
}

// eventID returns a resume token as the id of an event: base64url of its BSON.
func eventID(token bson.Raw) string { return base64.RawURLEncoding.EncodeToString(token) }

// appendProgress writes a resume token that is no event's, or nothing if there is none yet. It must
// not be lost, because the stream may have passed many events that its pipeline drops.
func (s *stream) appendProgress(e *encoder, m *mooringv1.WatchResponse) error {
	token := m.GetResumeToken()
	if token == nil || s.c.format.Bare {
		return nil
	}
	around := frame{`{"progress":{"resumeToken":`, "}}\n"}
	switch {
	case s.c.format.Type == media.SSE:
		// Without data EventSource would keep the id, but show it to no page.
		around.before = "id: " + eventID(token.GetBson()) + "\nevent: progress\n" +
			`data: {"resumeToken":`
		around.after = "}\n\n"
		if m.GetShared() {
			around.before = ": shared\n" + around.before
		}
	case m.GetShared():
		around.after = `,"shared":true}}` + "\n"
	}
	return e.framed(around, func() error { return e.document(token) })
}

// goOn makes a request start after the event with this id, wherever it would start without; an
// empty id changes nothing.
func goOn(r *mooringv1.WatchRequest, id string) error {
	if id == "" {
		return nil
	}
	token, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err == nil {
		err = bson.Raw(token).Validate()
	}
	if err != nil {
		return refuseField(lastEventID, "is not the id of an event of a change stream")
	}
	r.StartAfter = payload.NewDocument(token)
	r.ResumeAfter, r.StartAtOperationTime = nil, nil
	return nil
}

// isEvent reports whether the failure of a stream of changes is an event. Otherwise it is a
// status, at which EventSource gives up: an event would make it repeat a request that is refused.
func (s *stream) isEvent(failed rpcerr.Response) bool {
	return s.c.begun || s.c.r.Method == http.MethodGet &&
		(isTransient(failed) || failed.Code == http.StatusGone)
}

// isTransient reports whether a stream of changes that failed so may go on after its last event.
func isTransient(failed rpcerr.Response) bool {
	switch failed.Code {
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusGone:
		return false
	}
	return failed.Body.GetError().GetRetry() != string(rpcerr.Never)
}
