// Package media chooses the form of a response by Accept: a media type, and how documents are
// written in it. It writes nothing.
package media

import (
	"mime"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson/extjson"
)

// Type identifies a media type of responses.
type Type uint8

// The media types of responses.
const (
	JSON   Type = iota // application/json: relaxed Extended JSON
	EJSON              // application/ejson: canonical Extended JSON
	BSON               // application/bson: a page's documents, one after the other
	NDJSON             // application/x-ndjson: a stream, one object a line
	SSE                // text/event-stream: a stream of events
	CSV                // text/csv: rows with the fields of documents
)

var names = [...]string{
	JSON: "application/json", EJSON: "application/ejson", BSON: "application/bson",
	NDJSON: "application/x-ndjson", SSE: "text/event-stream", CSV: "text/csv",
}

func (m Type) String() string { return names[m] }

// Format describes the form of a response.
type Format struct {
	Type Type
	Mode extjson.Mode
	// Bare says that there are documents only, and nothing that ends them: always of CSV.
	Bare bool
	// Guard says that a spreadsheet runs no text of CSV.
	Guard bool
}

// Accept chooses one of the offers: by the client's weights, then by how exactly a range matches
// it, then in the offers' order. ok is false if no offer is acceptable.
func Accept(header []string, offers []Type) (chosen Format, ok bool) {
	if len(header) == 0 ||
		len(header) == 1 && (header[0] == "*/*" || header[0] == offers[0].String()) {
		return (&mediaRange{}).format(offers[0]), true
	}
	ranges := parseAccept(header)
	if len(ranges) == 0 {
		return (&mediaRange{}).format(offers[0]), true
	}
	best := candidate{}
	for _, m := range offers {
		// Of the ranges that match, the most exact one has the weight (RFC 9110, 12.5.1).
		var says candidate
		for i := range ranges {
			if c := ranges[i].match(m); c.exactness > says.exactness {
				says = c
			}
		}
		if says.weight > 0 && (says.weight > best.weight ||
			says.weight == best.weight && says.exactness > best.exactness) {
			best, chosen = says, says.accepted.format(m)
		}
	}
	return chosen, best.weight > 0
}

// candidate describes a range that matches an offer.
type candidate struct {
	accepted  *mediaRange
	exactness int // 0: no match, 1: */*, 2: type/*, 3: type/subtype, 4 and more: with parameters
	weight    float64
}

// mediaRange describes one element of an Accept header.
type mediaRange struct {
	name    string
	weight  float64
	params  int // but for q and charset
	int64   bool
	bare    bool
	guard   bool
	canon   bool
	plain   bool
	refused bool // it has a parameter that nothing here matches
}

func parseAccept(header []string) []mediaRange {
	var ranges []mediaRange
	for _, line := range header {
		for text := range strings.SplitSeq(line, ",") {
			if strings.TrimSpace(text) != "" {
				ranges = append(ranges, parseRange(text))
			}
		}
	}
	return ranges
}

func parseRange(text string) mediaRange {
	name, params, err := mime.ParseMediaType(text)
	if err != nil {
		return mediaRange{refused: true}
	}
	r := mediaRange{name: name, weight: 1}
	for key, value := range params {
		value = strings.ToLower(value)
		known := true
		switch key {
		case "q":
			r.weight, err = strconv.ParseFloat(value, 64)
			known = err == nil && r.weight >= 0 && r.weight <= 1
			r.params--
		case "charset":
			known = value == "utf-8" || value == "utf8"
			r.params--
		case "int64":
			r.int64, known = true, value == "number"
		case "bare":
			r.bare, known = value == "true", value == "true" || value == "false"
		case "guard":
			r.guard, known = value == "true", value == "true" || value == "false"
		case "header":
			known = value == "present"
			r.params--
		case "profile":
			r.canon, r.plain = value == "canonical", value == "plain"
			known = r.canon || r.plain
		}
		r.params++
		r.refused = r.refused || !known
	}
	return r
}

func (r *mediaRange) match(m Type) candidate {
	name := m.String()
	major, _, _ := strings.Cut(name, "/")
	c := candidate{accepted: r, weight: r.weight}
	switch {
	case r.refused, r.plain && m == EJSON:
		return candidate{}
	case r.name == name:
		c.exactness = 3 + r.params
	case r.name == major+"/*":
		c.exactness = 2
	case r.name == "*/*":
		c.exactness = 1
	}
	return c
}

func (r *mediaRange) format(m Type) Format {
	f := Format{
		Type: m, Mode: extjson.RelaxedSafe, Bare: r.bare && m == NDJSON || m == CSV,
		Guard: r.guard && m == CSV,
	}
	switch {
	case m == EJSON || r.canon:
		f.Mode = extjson.Canonical
	case r.plain:
		f.Mode = extjson.Plain
	case r.int64:
		f.Mode = extjson.Relaxed
	}
	return f
}
