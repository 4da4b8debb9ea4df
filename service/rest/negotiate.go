package rest

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// media identifies a media type of responses.
type media uint8

const (
	mediaJSON   media = iota // application/json: relaxed Extended JSON
	mediaEJSON               // application/ejson: canonical Extended JSON
	mediaBSON                // application/bson: a page's documents, one after the other
	mediaNDJSON              // application/x-ndjson: a stream, one object a line
	mediaSSE                 // text/event-stream: a stream of events
)

var mediaTypes = [...]string{
	mediaJSON: "application/json", mediaEJSON: "application/ejson", mediaBSON: "application/bson",
	mediaNDJSON: "application/x-ndjson", mediaSSE: "text/event-stream",
}

func (m media) String() string { return mediaTypes[m] }

// The media types of the kinds of routes, the default first.
var (
	offerSingle = []media{mediaJSON, mediaEJSON}
	offerPage   = []media{mediaJSON, mediaEJSON, mediaBSON}
	offerStream = []media{mediaNDJSON, mediaSSE}

	offerDocument = []media{mediaJSON, mediaEJSON, mediaBSON}
)

// format describes the form of a response, which the client's Accept chooses.
type format struct {
	media media
	mode  extjson.Mode
	bare  bool // NDJSON: documents only
}

// accept chooses one of the offers: by the client's weights, then by how exactly a range matches
// it, then in the offers' order. ok is false if no offer is acceptable.
func accept(header []string, offers []media) (chosen format, ok bool) {
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
	params  int // understood ones, but for charset
	int64   bool
	bare    bool
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
		case "profile":
			r.canon, r.plain = value == "canonical", value == "plain"
			known = r.canon || r.plain
		}
		r.params++
		r.refused = r.refused || !known
	}
	return r
}

func (r *mediaRange) match(m media) candidate {
	name := m.String()
	major, _, _ := strings.Cut(name, "/")
	c := candidate{accepted: r, weight: r.weight}
	switch {
	case r.refused, r.plain && m == mediaEJSON:
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

func (r *mediaRange) format(m media) format {
	f := format{media: m, mode: extjson.RelaxedSafe, bare: r.bare && m == mediaNDJSON}
	switch {
	case m == mediaEJSON || r.canon:
		f.mode = extjson.Canonical
	case r.plain:
		f.mode = extjson.Plain
	case r.int64:
		f.mode = extjson.Relaxed
	}
	return f
}

// jsonBodies lists the types of the bodies that are one JSON object.
var jsonBodies = []string{mediaTypes[mediaJSON], mediaTypes[mediaEJSON]}

// checkContentType refuses bodies of other types than these. A page of another origin can send a
// body without a type, or with one of a form, and no browser asks the gateway before.
func checkContentType(h http.Header, types []string) error {
	if coding := h.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return refuse(rpcerr.UnsupportedMediaType,
			"Content-Encoding "+strconv.Quote(coding)+" is not supported")
	}
	text := h.Get("Content-Type")
	if text == types[0] {
		return nil
	}
	if text == "" {
		return refuse(rpcerr.UnsupportedMediaType,
			"the request has no Content-Type: send "+strings.Join(types, " or "))
	}
	name, params, err := mime.ParseMediaType(text)
	charset := strings.ToLower(params["charset"])
	if err != nil || !slices.Contains(types, name) ||
		charset != "" && charset != "utf-8" && charset != "utf8" {
		return refuse(rpcerr.UnsupportedMediaType, "Content-Type "+strconv.Quote(text)+
			" is not supported: send "+strings.Join(types, " or "))
	}
	return nil
}

func offered(offers []media) string {
	names := make([]string, len(offers))
	for i, m := range offers {
		names[i] = m.String()
	}
	return strings.Join(names, " or ")
}
