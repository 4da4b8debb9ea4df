package rest

import (
	"net/http"
	"slices"

	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/etag"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// The etag of a document is strong: it begins with the digest of the BSON, and goes on with the
// form of the text and its coding, since other bytes have another etag (RFC 9110, 8.8.3.3). A
// precondition of a change is about the BSON alone.

// forms has the letter of each form of a document in an etag.
var forms = map[extjson.Mode]string{
	extjson.RelaxedSafe: "s", extjson.Relaxed: "r", extjson.Canonical: "c", extjson.Plain: "p",
}

// precondition holds what a request demands of the etag of its document.
type precondition struct {
	match, noneMatch []etag.Tag // of a GET
	etag             string     // the digest of the document; empty: it has none
}

// tag returns the etag of the response in a form and a coding.
func (p *precondition) tag(of media.Format, in coding.Coding) etag.Tag {
	form := forms[of.Mode]
	if of.Type == media.BSON {
		form = "b"
	}
	opaque := p.etag + "." + form
	if in != coding.Identity {
		opaque += "." + in.String()
	}
	return etag.Tag{Opaque: opaque}
}

// decide decides the preconditions of a GET whose response has this etag, none if that is the zero
// value. It returns the status that they ask for; 0: the response is sent. If-Match takes the etag
// of any form, as in a change; If-None-Match is about the bytes that a cache has.
func (p *precondition) decide(current etag.Tag) (status int, err error) {
	matches := func(t etag.Tag) bool { return t.Star || t.State() == p.etag }
	if len(p.match) > 0 && !slices.ContainsFunc(p.match, matches) {
		return 0, refuse(rpcerr.PreconditionFailed, "the document has another etag")
	}
	// If-None-Match compares weakly.
	matches = func(t etag.Tag) bool {
		return t.Star || t.Opaque == current.Opaque && t.Opaque != ""
	}
	if slices.ContainsFunc(p.noneMatch, matches) {
		return http.StatusNotModified, nil
	}
	return 0, nil
}
