package rest

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// queryParam converts the text of a query parameter to the JSON of the field with the same name.
type queryParam func(text string) ([]byte, error)

// queryParams lists the parameters that a GET may have in its query, beside timeout.
var queryParams = map[string]queryParam{
	"filter":         asJSON,
	"projection":     asJSON,
	"sort":           asJSON,
	"hint":           asJSON,
	"collation":      asJSON,
	"limit":          asJSON,
	"skip":           asJSON,
	"batchSize":      asJSON,
	"maxTimeMS":      asJSON,
	"comment":        asString,
	"readPreference": asString,
	"readConcern":    asString,
	"principal":      asString,
	"namespace":      asString,
	"pinned":         asJSON,
	"cursor":         asString,
	"nameOnly":       asJSON,
	"name":           asString,

	"authorizedDatabases":   asJSON,
	"authorizedCollections": asJSON,
}

func asJSON(text string) ([]byte, error) { return []byte(text), nil }

func asString(text string) ([]byte, error) {
	return extjson.AppendValue(nil, bson.StringValue(text), extjson.Relaxed)
}

// parseQuery parses a request's query. It refuses parameters that the route does not know, and
// parameters that occur twice.
func parseQuery(r *route, raw string) (url.Values, error) {
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, refuse(rpcerr.InvalidArgument, "the query cannot be parsed: "+err.Error())
	}
	if r.fields {
		return values, nil // see readConditions
	}
	for name, all := range values {
		if !r.hasParam(name) {
			return nil, refuseField(name,
				"there is no such query parameter"+meant(name, r.queryNames()))
		}
		if len(all) > 1 {
			return nil, refuseField(name, "the query parameter is repeated")
		}
	}
	return values, nil
}

// hasParam reports whether the route knows a query parameter.
func (r *route) hasParam(name string) bool {
	return name == front.TimeoutParam || name == idTypeParam && r.resource ||
		slices.Contains(r.own, name) || r.params[name] != nil && r.request.byName[name] != nil
}

// queryNames lists the query parameters of the route.
func (r *route) queryNames() []string {
	names := []string{front.TimeoutParam, idTypeParam}
	names = append(slices.AppendSeq(names, maps.Keys(r.params)), r.own...)
	return slices.DeleteFunc(names, func(name string) bool { return !r.hasParam(name) })
}

// applyQuery sets the fields of m that the query has.
func applyQuery(r *route, m message, values url.Values, make *payload.Maker) error {
	for name, all := range values {
		if r.params[name] == nil || r.request.byName[name] == nil {
			continue // it is not a field of the request
		}
		json, err := r.params[name](all[0])
		if err != nil {
			return refuseField(name, err.Error())
		}
		f := r.request.byName[name]
		most := itemLimit{most: front.DefaultMaxItems}
		if err := decodeField(f, m, json, make, most); err != nil {
			return inParam(f, all[0], err)
		}
	}
	return nil
}

// inParam returns the error of a query parameter. What is wrong with a number or a switch is not
// that it is malformed JSON.
func inParam(f *field, text string, err error) error {
	switch {
	case f.kind == kindBool && !f.repeated:
		return refuseField(f.name, quoted(text)+" is neither true nor false")
	case !f.isNumber():
		return err
	case strings.Trim(strings.TrimPrefix(text, "-"), "0123456789") == "" && text != "":
		return refuseField(f.name, quoted(text)+" is too large an integer")
	}
	return refuseField(f.name, quoted(text)+" is not an integer")
}
