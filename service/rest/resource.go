package rest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/payload"
)

// A document resource has no annotation: the body is the document, or the update, the options are
// in the query, preconditions are headers, and the _id in the path is no string. This file serves
// DocumentResourceService.

const resourcePath = "/v1/databases/{database}/collections/{collection}/documents/{id}"

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
func resourceRoutes(plans planner, cc callConn) []*route {
	get := &route{
		rpc: mooringv1.DocumentResourceService_GetDocument_FullMethodName, method: http.MethodGet,
	}
	put := &route{
		rpc: mooringv1.DocumentResourceService_PutDocument_FullMethodName, method: http.MethodPut,
		bodies: jsonBodies, bodyField: "replacement",
	}
	patch := &route{
		rpc:    mooringv1.DocumentResourceService_PatchDocument_FullMethodName,
		method: http.MethodPatch, bodies: jsonBodies, bodyField: "update",
	}
	remove := &route{
		rpc:    mooringv1.DocumentResourceService_DeleteDocument_FullMethodName,
		method: http.MethodDelete,
	}
	messages := map[*route][2]proto.Message{
		get:    {(*mooringv1.GetDocumentRequest)(nil), (*mooringv1.GetDocumentResponse)(nil)},
		put:    {(*mooringv1.PutDocumentRequest)(nil), (*mooringv1.PutDocumentResponse)(nil)},
		patch:  {(*mooringv1.PatchDocumentRequest)(nil), (*mooringv1.PatchDocumentResponse)(nil)},
		remove: {(*mooringv1.DeleteDocumentRequest)(nil), (*mooringv1.DeleteDocumentResponse)(nil)},
	}
	routes := []*route{get, put, patch, remove}
	for _, r := range routes {
		request, reply := messages[r][0].ProtoReflect(), messages[r][1].ProtoReflect()
		r.path, r.params, r.offers = resourcePath, resourceParams, offerDocument
		r.request, r.requestType = plans.plan(request.Descriptor()), request.Type()
		r.reply, r.replyType = plans.plan(reply.Descriptor()), reply.Type()
		r.handle = func(_ http.ResponseWriter, r *http.Request, params map[string]string) {
			c := callFrom(r.Context())
			if err := c.resource(r.Context(), cc, params); err != nil {
				c.fail(err)
			}
		}
	}
	return routes
}

// isResource reports whether the route is a document's.
func (r *route) isResource() bool { return r.requestType != nil }

// resource makes the call of a document's route, and writes the response.
func (c *call) resource(ctx context.Context, cc callConn, params map[string]string) error {
	m, plan := c.route.requestType.New(), c.route.request
	id, err := parseID(params["id"], c.query)
	if err != nil {
		return err
	}
	m.Set(plan.byName["database"].fd, protoreflect.ValueOfString(params["database"]))
	m.Set(plan.byName["collection"].fd, protoreflect.ValueOfString(params["collection"]))
	m.Set(plan.byName["id"].fd, protoreflect.ValueOfMessage(payload.NewValue(id).ProtoReflect()))
	if err := c.demand(m); err != nil {
		return err
	}
	if c.route.bodyField != "" {
		//nolint:contextcheck // the body is charged under the request's own context
		if err := c.decodeBare(plan.byName[c.route.bodyField], m); err != nil {
			return err
		}
	}
	reply := c.route.replyType.New().Interface()
	var header metadata.MD
	err = cc.Invoke(ctx, c.route.rpc, m.Interface(), reply, grpc.Header(&header))
	if err != nil {
		return err
	}
	return c.respond(ctx, reply)
}

// decodeBare reads the whole body as the value of a field.
func (c *call) decodeBare(f *field, m message) error {
	body, err := c.readBody()
	if err != nil {
		return err
	}
	defer c.handler.buffers.put(body)
	return c.work(len(body.b), func() error {
		return decodeField(f, m, body.b, itemLimit{c.handler.config.MaxItems, c})
	})
}

// objectIDDigits is the number of hexadecimal digits of an ObjectId.
const objectIDDigits = 24

// parseID returns the _id that a segment of a path stands for.
func parseID(segment string, query url.Values) (bson.Value, error) {
	if kind, ok := query[idTypeParam]; ok {
		if kind[0] != "string" {
			return bson.Value{}, refuseField(idTypeParam, strconv.Quote(kind[0])+" is not string")
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
			"JSON. A text has quotes, which are %22 in a path, or the path has the query "+
			"idType=string")
	}
	return v, nil
}

// demand sets the preconditions of a change, which are headers. Those of a GET are decided when
// its etag is known.
func (c *call) demand(m message) error {
	if err := refuseDates(c.r.Header); err != nil {
		return err
	}
	match, err := parseTags(ifMatch, c.r.Header[ifMatch])
	if err != nil {
		return err
	}
	noneMatch, err := parseTags(ifNoneMatch, c.r.Header[ifNoneMatch])
	if err != nil {
		return err
	}
	if c.route.method == http.MethodGet {
		c.match, c.noneMatch = match, noneMatch
		return nil
	}
	if len(match) > 0 {
		tags := m.Mutable(c.route.request.byName["ifMatch"].fd).List()
		for _, t := range match {
			tags.Append(protoreflect.ValueOfString(t.state()))
		}
	}
	only := c.route.request.byName["onlyCreate"]
	switch {
	case len(noneMatch) == 0:
	case only == nil:
		return refuseField(ifNoneMatch, "a "+c.r.Method+" takes none")
	case !noneMatch[0].any():
		return refuseField(ifNoneMatch, "a PUT takes only *, which stands for any document")
	case len(match) > 0:
		return refuseField(ifNoneMatch, "excludes "+ifMatch)
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
	h := c.w.Header()
	if failed, ok := m.(interface {
		GetWriteConcernError() *mooringv1.WriteConcernError
	}); ok && failed.GetWriteConcernError() != nil {
		e := failed.GetWriteConcernError()
		h.Set(writeConcernErrorHeader, strconv.Itoa(int(e.GetCode()))+" "+e.GetCodeName())
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
	c.etag = document.GetEtag()
	preferred := ""
	if c.route.method != http.MethodGet {
		preferred = preferredReturn(c.r.Header["Prefer"])
	}
	if preferred != "" {
		h.Set("Preference-Applied", "return="+preferred)
	}
	if preferred == "minimal" {
		if c.etag != "" {
			h.Set("Etag", c.tag(coding.Identity).String())
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

// writeConcernErrorHeader tells that a write is not acknowledged as its write concern asks. Its
// value is the server's code and its name.
const writeConcernErrorHeader = "Mooring-Write-Concern-Error"

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
		c.w.Header().Set("Content-Length", "0")
	}
	c.begun = true
	c.w.WriteHeader(code)
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
