package rest

import (
	"net/http"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// The etag of a document is strong: it begins with the digest of the BSON, and goes on with the
// form of the text and its coding, since other bytes have another etag (RFC 9110, 8.8.3.3). A
// precondition of a change is about the BSON alone.

const (
	ifMatch           = "If-Match"
	ifNoneMatch       = "If-None-Match"
	ifUnmodifiedSince = "If-Unmodified-Since"
)

// entityTag represents one element of If-Match or If-None-Match: an etag, or *.
type entityTag struct {
	opaque string // without the quotes; empty for *
	weak   bool
	star   bool
}

func (t entityTag) any() bool { return t.star }

// String returns the tag as a header has it.
func (t entityTag) String() string {
	switch {
	case t.star:
		return "*"
	case t.weak:
		return `W/"` + t.opaque + `"`
	}
	return `"` + t.opaque + `"`
}

// state returns the part of the tag that names the BSON. Weak tags name none, since they compare
// as different to all (RFC 9110, 13.1.1). The etag "*" is no star, and names none either.
func (t entityTag) state() string {
	if t.star || t.weak {
		return t.String()
	}
	digest, _, _ := strings.Cut(t.opaque, ".")
	if digest == "" || digest == "*" {
		return t.String() // which is no digest
	}
	return digest
}

// parseTags parses the header of a precondition: a star alone, or a list of etags.
func parseTags(name string, lines []string) ([]entityTag, error) {
	if len(lines) == 0 {
		return nil, nil
	}
	malformed := refuseField(name, `is neither * nor a list of etags, such as "abc"`)
	text := strings.TrimSpace(strings.Join(lines, ","))
	if text == "*" {
		return []entityTag{{star: true}}, nil
	}
	var tags []entityTag
	for text = skipCommas(text); text != ""; text = skipCommas(text) {
		rest, weak := strings.CutPrefix(text, "W/")
		rest, ok := strings.CutPrefix(rest, `"`)
		opaque, after, closed := strings.Cut(rest, `"`)
		after = strings.TrimLeft(after, " \t")
		if !ok || !closed || strings.ContainsFunc(opaque, isNoTagChar) ||
			after != "" && after[0] != ',' {
			return nil, malformed
		}
		tags = append(tags, entityTag{opaque: opaque, weak: weak})
		text = after
	}
	if len(tags) == 0 {
		return nil, malformed
	}
	return tags, nil
}

func skipCommas(text string) string { return strings.TrimLeft(text, ", \t") }

func isNoTagChar(c rune) bool { return c <= ' ' || c == 0x7f }

// forms has the letter of each form of a document in an etag.
var forms = map[extjson.Mode]string{
	extjson.RelaxedSafe: "s", extjson.Relaxed: "r", extjson.Canonical: "c", extjson.Plain: "p",
}

// refusePreconditions refuses the preconditions of a call that is about no single document. If they
// were ignored, the call would change what its client has excluded. The response of a GET has no
// etag here, so If-None-Match excludes it only with *.
func refusePreconditions(method string, h http.Header) error {
	if err := refuseDates(h); err != nil {
		return err
	}
	if method == http.MethodGet && len(h[ifMatch]) == 0 {
		tags, err := parseTags(ifNoneMatch, h[ifNoneMatch])
		if err != nil || !slices.ContainsFunc(tags, entityTag.any) {
			return err
		}
	}
	for _, name := range [...]string{ifMatch, ifNoneMatch} {
		if len(h[name]) > 0 {
			return refuseField(name, "this call takes none: PUT, PATCH and DELETE of "+
				resourcePath+" do")
		}
	}
	return nil
}

// refuseDates refuses the precondition that compares dates. If-Match beside it replaces it (RFC
// 9110, 13.1.4).
func refuseDates(h http.Header) error {
	if len(h[ifUnmodifiedSince]) == 0 || len(h[ifMatch]) > 0 {
		return nil
	}
	return refuseField(ifUnmodifiedSince, "documents have no date of their last change: send "+
		"the ETag of "+resourcePath+" as "+ifMatch)
}

// tag returns the etag of the response in a coding.
func (c *call) tag(in coding.Coding) entityTag {
	form := forms[c.format.mode]
	if c.format.media == mediaBSON {
		form = "b"
	}
	opaque := c.etag + "." + form
	if in != coding.Identity {
		opaque += "." + in.String()
	}
	return entityTag{opaque: opaque}
}

// decide decides the preconditions of a GET whose response has this etag, none if that is the zero
// value. It returns the status that they ask for; 0: the response is sent.
func (c *call) decide(current entityTag) (status int, err error) {
	matches := func(t entityTag) bool { return t.star || t == current && t.opaque != "" }
	if len(c.match) > 0 && !slices.ContainsFunc(c.match, matches) {
		return 0, refuse(rpcerr.PreconditionFailed, "the document has another etag")
	}
	// If-None-Match compares weakly.
	matches = func(t entityTag) bool {
		return t.star || t.opaque == current.opaque && t.opaque != ""
	}
	if slices.ContainsFunc(c.noneMatch, matches) {
		return http.StatusNotModified, nil
	}
	return 0, nil
}
