package rest

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// The media types of the kinds of routes, the default first.
var (
	offerSingle = []media.Type{media.JSON, media.EJSON}
	offerPage   = []media.Type{media.JSON, media.EJSON, media.BSON}
	offerStream = []media.Type{media.NDJSON, media.SSE}
	offerRows   = []media.Type{media.NDJSON, media.SSE, media.CSV} // streams of documents

	offerDocument = []media.Type{media.JSON, media.EJSON, media.BSON}
)

// jsonBodies lists the types of the bodies that are one JSON object.
var jsonBodies = []string{media.JSON.String(), media.EJSON.String()}

// checkContentType refuses bodies of other types than these. A page of another origin can send a
// body without a type, or with one of a form, and no browser asks the gateway before.
func checkContentType(h http.Header, types []string, inflates bool) error {
	name := h.Get("Content-Encoding")
	in, ok := coding.Of(name)
	switch {
	case in != coding.Identity && !inflates:
		return refuse(rpcerr.UnsupportedMediaType,
			"Content-Encoding "+strconv.Quote(name)+" is not supported here")
	case !ok || len(h["Content-Encoding"]) > 1:
		return refuse(rpcerr.UnsupportedMediaType,
			"Content-Encoding "+strconv.Quote(name)+" is not supported")
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

func offered(offers []media.Type) string {
	names := make([]string, len(offers))
	for i, m := range offers {
		names[i] = m.String()
	}
	return strings.Join(names, " or ")
}
