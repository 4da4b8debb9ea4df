package rest

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/etag"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/payload"
)

// A document resource has no annotation: the body is the document, or the update, the options are
// in the query, preconditions are headers, and the _id in the path is no string. This file serves
// DocumentResourceService.

// resourceParams lists the query parameters of the methods of a document, as far as their requests
// have the field, beside idTypeParam.
var resourceParams = map[string]queryParam{
	"options":        asJSON,
	"comment":        asString,
	"readPreference": asString,
	"readConcern":    asString,
	"writeConcern":   asJSON,
	"maxTimeMS":      asJSON,
	"let":            asJSON,
	"filter":         asJSON,
	"projection":     asJSON,
	"arrayFilters":   asJSON,

	"bypassDocumentValidation": asJSON,
}

// idTypeParam says that the _id in the path is text: idType=string.
const idTypeParam = "idType"

// resourceRoutes returns the routes of DocumentResourceService.
func resourceRoutes(plans planner) []*route {
	const (
		get    = mooringv1.DocumentResourceService_GetDocument_FullMethodName
		put    = mooringv1.DocumentResourceService_PutDocument_FullMethodName
		patch  = mooringv1.DocumentResourceService_PatchDocument_FullMethodName
		remove = mooringv1.DocumentResourceService_DeleteDocument_FullMethodName
	)
	list := []struct{ rpc, method, bodyField string }{
		{get, http.MethodGet, ""},
		{put, http.MethodPut, "replacement"},
		{patch, http.MethodPatch, "update"},
		{remove, http.MethodDelete, ""},
	}
	routes := make([]*route, len(list))
	for i, l := range list {
		r := newRoute(plans,
			methodOf(mooringv1.File_mooring_v1_document_resource_service_proto, l.rpc))
		r.method, r.path, r.bodyField, r.resource = l.method, etag.ResourcePath, l.bodyField, true
		r.params, r.offers, r.build = resourceParams, offerDocument, (*call).buildResource
		if r.bodyField != "" {
			r.bodies = jsonBodies
		}
		routes[i] = r
	}
	return routes
}

// buildResource returns the request of a document's route.
func (c *call) buildResource() (message, error) {
	m, plan := c.route.requestType.New(), c.route.request
	last := len(c.path) - 1
	id, err := parseID(c.path[last].value, c.query)
	if err != nil {
		return nil, err
	}
	m.Set(plan.byName["id"].fd, protoreflect.ValueOfMessage(payload.NewValue(id).ProtoReflect()))
	c.path = c.path[:last]
	c.setPath(m)
	if err := c.demand(m); err != nil {
		return nil, err
	}
	if c.route.bodyField != "" {
		if err := c.decodeBare(plan.byName[c.route.bodyField], m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// decodeBare reads the whole body as the value of a field.
func (c *call) decodeBare(f *field, m message) error {
	body, err := c.x.Body.ReadAll()
	if err != nil {
		return err
	}
	defer body.Free()
	c.make = payload.NewMaker(&c.x.Memory, len(body.B))
	return c.x.Work(len(body.B), func() error {
		return decodeField(f, m, body.B, &c.make,
			itemLimit{c.x.MaxItems(), &c.x.Memory})
	})
}

// objectIDDigits is the number of hexadecimal digits of an ObjectId.
const objectIDDigits = 24

// parseID returns the _id that a segment of a path stands for.
func parseID(segment string, query url.Values) (bson.Value, error) {
	if kind, ok := query[idTypeParam]; ok {
		if kind[0] != "string" {
			return bson.Value{}, refuseField(idTypeParam,
				"must be string, not "+strconv.Quote(kind[0]))
		}
		return bson.StringValue(segment), nil
	}
	if len(segment) == objectIDDigits {
		if id, err := bson.ParseObjectID(segment); err == nil {
			return bson.ObjectIDValue(id), nil
		}
	}
	v, _, err := payload.MaxDocument.ParseValue(nil, []byte(segment))
	if err != nil {
		return bson.Value{}, refuseField("id", "is neither 24 hexadecimal digits nor Extended "+
			"JSON. Put quotes (%22 in a path) around a string, or add the query "+
			"idType=string")
	}
	return v, nil
}

// demand sets the preconditions of a change, which are headers. Those of a GET are decided when
// its etag is known.
func (c *call) demand(m message) error {
	if err := etag.RefuseDates(c.r.Header); err != nil {
		return err
	}
	match, err := etag.Parse(etag.IfMatch, c.r.Header[etag.IfMatch])
	if err != nil {
		return err
	}
	noneMatch, err := etag.Parse(etag.IfNoneMatch, c.r.Header[etag.IfNoneMatch])
	if err != nil {
		return err
	}
	if c.route.method == http.MethodGet {
		c.document.match, c.document.noneMatch = match, noneMatch
		return nil
	}
	if len(match) > 0 {
		tags := m.Mutable(c.route.request.byName["ifMatch"].fd).List()
		for _, t := range match {
			tags.Append(protoreflect.ValueOfString(t.State()))
		}
	}
	only := c.route.request.byName["onlyCreate"]
	switch {
	case len(noneMatch) == 0:
	case only == nil:
		return refuseField(etag.IfNoneMatch, "a "+c.r.Method+" does not take it")
	case !noneMatch[0].Any():
		return refuseField(etag.IfNoneMatch, "must be *, any document, for a PUT")
	case len(match) > 0:
		return refuseField(etag.IfNoneMatch, "cannot be used together with "+etag.IfMatch)
	default:
		m.Set(only.fd, protoreflect.ValueOfBool(true))
	}
	return nil
}

// hasDocument describes the responses that are a document.
type hasDocument interface {
	GetDocument() *mooringv1.Document
	GetEtag() string
}

// respondDocument writes the response of a document's route.
func (c *call) respondDocument(m proto.Message) error {
	h := c.x.Response.Header()
	if failed, ok := m.(interface {
		GetWriteConcernError() *mooringv1.WriteConcernError
	}); ok && failed.GetWriteConcernError() != nil {
		e := failed.GetWriteConcernError()
		h.Set(front.WriteConcernErrorHeader, strconv.Itoa(int(e.GetCode()))+" "+e.GetCodeName())
	}
	code := http.StatusOK
	if put, ok := m.(*mooringv1.PutDocumentResponse); ok && put.GetCreated() {
		code = http.StatusCreated
		h.Set("Location", c.location())
	}
	document, ok := m.(hasDocument)
	if !ok {
		c.writeEmpty(m, http.StatusNoContent)
		return nil
	}
	c.document.etag = document.GetEtag()
	preferred := ""
	if c.route.method != http.MethodGet {
		preferred = preferredReturn(c.r.Header["Prefer"])
	}
	if preferred != "" {
		h.Set("Preference-Applied", "return="+preferred)
	}
	if preferred == "minimal" {
		if c.document.etag != "" {
			h.Set("Etag", c.document.tag(c.format, coding.Identity).String())
		}
		if code == http.StatusOK {
			code = http.StatusNoContent
		}
		c.writeEmpty(m, code)
		return nil
	}
	c.code = code
	return c.writeResponse(m)
}

// location returns the path of the document that the request has created.
func (c *call) location() string {
	path := c.r.URL.EscapedPath()
	if c.query.Has(idTypeParam) {
		path += "?" + idTypeParam + "=" + c.query.Get(idTypeParam)
	}
	return path
}

// writeEmpty writes a response without a body.
func (c *call) writeEmpty(m proto.Message, code int) {
	c.writeTokens(m)
	c.applyMetadata()
	if code != http.StatusNoContent {
		c.x.Response.Header().Set("Content-Length", "0")
	}
	c.begun = true
	c.x.Response.WriteHeader(code)
}

// preferredReturn returns what the client wants a change to answer with (RFC 7240, 4.2): minimal,
// representation, or "" if it has not said.
func preferredReturn(header []string) string {
	for _, line := range header {
		for preference := range strings.SplitSeq(line, ",") {
			preference, _, _ = strings.Cut(preference, ";")
			name, value, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "return") {
				continue
			}
			switch value = strings.Trim(strings.TrimSpace(value), `"`); value {
			case "minimal", "representation":
				return value
			}
			return ""
		}
	}
	return ""
}
