// Package etag parses the preconditions of requests: If-Match and If-None-Match (RFC 9110, 13.1).
// It does not decide them, since it knows no document.
package etag

import (
	"net/http"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/service/rpcerr"
)

// The headers of preconditions.
const (
	IfMatch     = "If-Match"
	IfNoneMatch = "If-None-Match"

	ifUnmodifiedSince = "If-Unmodified-Since"
)

// ResourcePath is the template of the paths whose requests take preconditions.
const ResourcePath = "/v1/databases/{database}/collections/{collection}/documents/{id}"

// Tag represents one element of If-Match or If-None-Match: an etag, or *.
type Tag struct {
	Opaque string // without the quotes; empty for *
	Weak   bool
	Star   bool
}

// Any reports whether the tag stands for any document.
func (t Tag) Any() bool { return t.Star }

// String returns the tag as a header has it.
func (t Tag) String() string {
	switch {
	case t.Star:
		return "*"
	case t.Weak:
		return `W/"` + t.Opaque + `"`
	}
	return `"` + t.Opaque + `"`
}

// State returns the part of the tag that names the BSON. Weak tags name none, since they compare
// as different to all (RFC 9110, 13.1.1). The etag "*" is not a star, and names none either.
func (t Tag) State() string {
	if t.Star || t.Weak {
		return t.String()
	}
	digest, _, _ := strings.Cut(t.Opaque, ".")
	if digest == "" || digest == "*" {
		return t.String() // which is not a digest
	}
	return digest
}

// Parse parses the header of a precondition: a star alone, or a list of etags.
func Parse(name string, lines []string) ([]Tag, error) {
	if len(lines) == 0 {
		return nil, nil
	}
	malformed := refuse(name, `is neither * nor a list of etags, such as "abc"`)
	text := strings.TrimSpace(strings.Join(lines, ","))
	if text == "*" {
		return []Tag{{Star: true}}, nil
	}
	var tags []Tag
	for text = skipCommas(text); text != ""; text = skipCommas(text) {
		rest, weak := strings.CutPrefix(text, "W/")
		rest, ok := strings.CutPrefix(rest, `"`)
		opaque, after, closed := strings.Cut(rest, `"`)
		after = strings.TrimLeft(after, " \t")
		if !ok || !closed || strings.ContainsFunc(opaque, isNoTagChar) ||
			after != "" && after[0] != ',' {
			return nil, malformed
		}
		tags = append(tags, Tag{Opaque: opaque, Weak: weak})
		text = after
	}
	if len(tags) == 0 {
		return nil, malformed
	}
	return tags, nil
}

func skipCommas(text string) string { return strings.TrimLeft(text, ", \t") }

func isNoTagChar(c rune) bool { return c <= ' ' || c == 0x7f }

// Refuse refuses the preconditions of a call that is about no single document. If they
// were ignored, the call would change what its client has excluded. The response of a GET has no
// etag here, so If-None-Match excludes it only with *.
func Refuse(method string, h http.Header) error {
	if err := RefuseDates(h); err != nil {
		return err
	}
	if method == http.MethodGet && len(h[IfMatch]) == 0 {
		tags, err := Parse(IfNoneMatch, h[IfNoneMatch])
		if err != nil || !slices.ContainsFunc(tags, Tag.Any) {
			return err
		}
	}
	for _, name := range [...]string{IfMatch, IfNoneMatch} {
		if len(h[name]) > 0 {
			return refuse(name, "only PUT, PATCH and DELETE of "+ResourcePath+" take it")
		}
	}
	return nil
}

// RefuseDates refuses the precondition that compares dates. If-Match beside it replaces it (RFC
// 9110, 13.1.4).
func RefuseDates(h http.Header) error {
	if len(h[ifUnmodifiedSince]) == 0 || len(h[IfMatch]) > 0 {
		return nil
	}
	return refuse(ifUnmodifiedSince, "documents have no modification date: send "+
		"the ETag of "+ResourcePath+" as "+IfMatch)
}

func refuse(header, message string) error {
	return &rpcerr.Error{Reason: rpcerr.InvalidArgument, Field: header, Message: message}
}
