package rest_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
)

// resources serves DocumentResourceService with one document, and records the requests.
type resources struct {
	mooringv1.UnsafeDocumentResourceServiceServer
	document string              // JSON
	ready    *mooringv1.Document // in its place; nil: none
	etag     *string
	created  bool
	failed   *mooringv1.WriteConcernError
	get      *mooringv1.GetDocumentRequest
	put      *mooringv1.PutDocumentRequest
	patch    *mooringv1.PatchDocumentRequest
	remove   *mooringv1.DeleteDocumentRequest
	key      string // the metadata
	t        testing.TB
}

func (r *resources) message() *mooringv1.Document {
	if r.ready != nil {
		return r.ready
	}
	return payload.NewDocument(ejson(r.t, r.document))
}

func (r *resources) GetDocument(
	_ context.Context, req *mooringv1.GetDocumentRequest,
) (*mooringv1.GetDocumentResponse, error) {
	r.get = req
	return &mooringv1.GetDocumentResponse{Document: r.message(), Etag: r.etag}, nil
}

func (r *resources) PutDocument(
	ctx context.Context, req *mooringv1.PutDocumentRequest,
) (*mooringv1.PutDocumentResponse, error) {
	r.put, r.key = req, incoming(ctx, "idempotency-key")
	return &mooringv1.PutDocumentResponse{
		Document: r.message(), Etag: r.etag, Created: r.created, WriteConcernError: r.failed,
	}, nil
}

func (r *resources) PatchDocument(
	_ context.Context, req *mooringv1.PatchDocumentRequest,
) (*mooringv1.PatchDocumentResponse, error) {
	r.patch = req
	return &mooringv1.PatchDocumentResponse{Document: r.message(), Etag: r.etag}, nil
}

func (r *resources) DeleteDocument(
	_ context.Context, req *mooringv1.DeleteDocumentRequest,
) (*mooringv1.DeleteDocumentResponse, error) {
	r.remove = req
	return &mooringv1.DeleteDocumentResponse{Session: new("s2")}, nil
}

// newResources returns a handler before one document, {"_id":7}, whose etag is E.
func newResources(t testing.TB) (http.Handler, *resources) {
	r := &resources{document: `{"_id": 7}`, etag: new("E"), t: t}
	return newHandler(t, &fake{resources: r}), r
}

// TestResourceIDs reads the forms of an _id in a path.
func TestResourceIDs(t *testing.T) {
	h, r := newResources(t)
	for _, row := range []struct{ path, want string }{
		{"/507f1f77bcf86cd799439011", `{"v":{"$oid":"507f1f77bcf86cd799439011"}}`},
		{"/507F1F77BCF86CD799439011", `{"v":{"$oid":"507f1f77bcf86cd799439011"}}`},
		{"/7", `{"v":{"$numberInt":"7"}}`},
		{"/-1.5", `{"v":{"$numberDouble":"-1.5"}}`},
		{"/%22user-1%22", `{"v":"user-1"}`},
		{"/true", `{"v":true}`},
		{"/null", `{"v":null}`},
		{"/%7B%22$uuid%22%3A%22c8edabc3-f738-4ca3-b68d-ab92a91478a3%22%7D", `{"v":{"$binary":{"base64":"yO2rw/c4TKO2jauSqRR4ow==","subType":"04"}}}`},
		{"/%7B%22a%22%3A1%7D", `{"v":{"a":{"$numberInt":"1"}}}`},
		{"/user-1?idType=string", `{"v":"user-1"}`},
		{"/507f1f77bcf86cd799439011?idType=string", `{"v":"507f1f77bcf86cd799439011"}`},
		{"/a%2Fb%3Ac%25?idType=string", `{"v":"a/b:c%"}`},
		{"/~Nw", `{"v":{"$numberInt":"7"}}`},  // 7
		{"/~ImEvYiI", `{"v":"a/b"}`},          // "a/b"
		{"/~Li4?idType=string", `{"v":".."}`}, // ..
		{"/~fmE?idType=string", `{"v":"~a"}`}, // ~a
		{"/~NTA3ZjFmNzdiY2Y4NmNkNzk5NDM5MDEx", `{"v":{"$oid":"507f1f77bcf86cd799439011"}}`},
	} {
		r.get = nil
		w := do(h, "GET", documents+row.path, "")
		if w.Code != 200 || r.get == nil {
			t.Errorf("%s: %d %s", row.path, w.Code, w.Body)
			continue
		}
		if got := canonical(t, payload.NewDocument(r.get.GetId().GetBson())); got != row.want {
			t.Errorf("%s: _id %s, want %s", row.path, got, row.want)
		}
	}
	for _, row := range []struct {
		path, field string
		code        int
	}{
		{"/user-1", "id", 400},
		{"/507f1f77bcf86cd79943901", "id", 400}, // 23 digits
		{"/507f1f77bcf86cd79943901g", "id", 400},
		{"/%7B", "id", 400},
		{"/1%202", "id", 400},
		{"/x?idType=text", "idType", 400},
		{"/x?idType=", "idType", 400},
		{"/x?idType=string&idType=string", "idType", 400},
		{"/~", "", 400},
		{"/~!", "", 400},
		{"/~_w", "", 400},    // not UTF-8
		{"/~Nx", "", 400},    // leftover bits
		{"/", "", 400},       // an empty segment
		{"/..", "", 400},     //
		{"/%zz", "", 400},    //
		{"/7/8", "", 404},    //
		{"/7:find", "", 404}, // a verb
	} {
		u := requestOf("GET", documents+row.path)
		if u == nil {
			continue // no server would receive it
		}
		w := serve(h, u)
		if e := errorOf(t, w.Code, w.Body.Bytes(), row.code); e.Field != row.field {
			t.Errorf("%s: field %q, want %q", row.path, e.Field, row.field)
		}
	}
}

// TestResourceResponses: the status and the headers of each method.
func TestResourceResponses(t *testing.T) {
	minimal, whole := []string{"Prefer", "return=minimal"},
		[]string{"Prefer", `foo, return="representation"; x=1`}
	h, r := newResources(t)
	for _, row := range []struct {
		name, method, path, body string
		header                   []string
		change                   func()
		code                     int
		want                     map[string]string // headers; "" is none
		text                     string
	}{
		{
			"GET", "GET", "/7", "", nil, nil, 200,
			map[string]string{"Etag": `"E.s"`, "Content-Type": "application/json", "Cache-Control": "private, no-cache", "Content-Length": "9", "Location": ""},
			`{"_id":7}`,
		},
		{"HEAD", "HEAD", "/7", "", nil, nil, 200, map[string]string{"Etag": `"E.s"`, "Content-Length": "9"}, ``},
		{"canonical", "GET", "/7", "", []string{"Accept", "application/ejson"}, nil, 200, map[string]string{"Etag": `"E.c"`}, `{"_id":{"$numberInt":"7"}}`},
		{"plain", "GET", "/7", "", []string{"Accept", "application/json;profile=plain"}, nil, 200, map[string]string{"Etag": `"E.p"`}, `{"_id":7}`},
		{"BSON", "GET", "/7", "", []string{"Accept", "application/bson"}, nil, 200, map[string]string{"Etag": `"E.b"`, "Content-Type": "application/bson"}, "\x0e\x00\x00\x00\x10_id\x00\x07\x00\x00\x00\x00"},
		{"no etag", "GET", `/7?projection={"a":1}`, "", nil, func() { r.etag = nil }, 200, map[string]string{"Etag": ""}, `{"_id":7}`},
		{"unmodified", "GET", "/7", "", []string{"If-None-Match", `"x", "E.s"`}, nil, 304, map[string]string{"Etag": `"E.s"`, "Content-Type": "", "Content-Length": ""}, ``},
		{"unmodified, weakly", "GET", "/7", "", []string{"If-None-Match", `W/"E.s"`}, nil, 304, nil, ``},
		{"unmodified, any", "GET", "/7", "", []string{"If-None-Match", `*`}, nil, 304, nil, ``},
		{"HEAD of unmodified", "HEAD", "/7", "", []string{"If-None-Match", `"E.s"`}, nil, 304, nil, ``},
		{"modified", "GET", "/7", "", []string{"If-None-Match", `"E.c"`}, nil, 200, map[string]string{"Etag": `"E.s"`}, `{"_id":7}`},
		{"no etag to compare", "GET", "/7", "", []string{"If-None-Match", `""`}, func() { r.etag = nil }, 200, nil, `{"_id":7}`},
		{"matched", "GET", "/7", "", []string{"If-Match", `"E.s"`}, nil, 200, nil, `{"_id":7}`},
		{"matched in another form", "GET", "/7", "", []string{"If-Match", `"x", "E.c.gzip"`}, nil, 200, map[string]string{"Etag": `"E.s"`}, `{"_id":7}`},
		{"unmatched", "GET", "/7", "", []string{"If-Match", `W/"E.s"`}, nil, 412, map[string]string{"Etag": ""}, `PreconditionFailed`},
		{"unmatched, without an etag", "GET", "/7", "", []string{"If-Match", `"", "E.s"`}, func() { r.etag = nil }, 412, nil, `PreconditionFailed`},
		{"PUT", "PUT", "/7", `{"a":1}`, nil, nil, 200, map[string]string{"Etag": `"E.s"`, "Cache-Control": "no-store", "Location": "", "Preference-Applied": ""}, `{"_id":7}`},
		{"PUT, created", "PUT", "/%37", `{}`, nil, func() { r.created = true }, 201, map[string]string{"Location": documents + "/%37"}, `{"_id":7}`},
		{"PUT, created by text", "PUT", "/x?idType=string&filter={}", `{}`, nil, func() { r.created = true }, 201, map[string]string{"Location": documents + "/x?idType=string"}, `{"_id":7}`},
		{"PUT, minimal", "PUT", "/7", `{}`, minimal, nil, 204, map[string]string{"Etag": `"E.s"`, "Preference-Applied": "return=minimal", "Content-Type": ""}, ``},
		{
			"PUT, created, minimal", "PUT", "/7", `{}`, minimal, func() { r.created = true }, 201,
			map[string]string{"Etag": `"E.s"`, "Location": documents + "/7", "Content-Length": "0"},
			``,
		},
		{"PUT, whole", "PUT", "/7", `{}`, whole, nil, 200, map[string]string{"Preference-Applied": "return=representation"}, `{"_id":7}`},
		{"PUT, other preferences", "PUT", "/7", `{}`, []string{"Prefer", "return=x, wait=5"}, nil, 200, map[string]string{"Preference-Applied": ""}, `{"_id":7}`},
		{
			"PUT, not acknowledged as asked", "PUT", "/7", `{}`, nil, func() { r.failed = &mooringv1.WriteConcernError{Code: 64, CodeName: "WriteConcernTimeout"} }, 200,
			map[string]string{"Mooring-Write-Concern-Error": "64 WriteConcernTimeout"},
			`{"_id":7}`,
		},
		{"PATCH", "PATCH", "/7", `{"$set":{"a":1}}`, nil, nil, 200, map[string]string{"Etag": `"E.s"`}, `{"_id":7}`},
		{"PATCH, minimal", "PATCH", "/7", `[{"$set":{"a":1}}]`, minimal, nil, 204, nil, ``},
		{"DELETE", "DELETE", "/7", ``, nil, nil, 204, map[string]string{"Content-Length": "", "Mooring-Session": "s2"}, ``},
		{"POST", "POST", "/7", `{}`, nil, nil, 405, map[string]string{"Allow": "DELETE, GET, HEAD, PATCH, PUT"}, `MethodNotAllowed`},
		{
			"PATCH of another type", "PATCH", "/7", `{}`,
			[]string{"Content-Type", "application/merge-patch+json"},
			nil, 415,
			map[string]string{"Accept-Patch": "application/json, application/ejson"},
			`UnsupportedMediaType`,
		},
		{"PUT of another type", "PUT", "/7", `{}`, []string{"Content-Type", "text/plain"}, nil, 415, map[string]string{"Accept-Patch": ""}, `UnsupportedMediaType`},
		{"PUT of nothing", "PUT", "/7", ``, nil, nil, 400, nil, `"field":"replacement"`},
		{"PUT of a list", "PUT", "/7", `[]`, nil, nil, 400, nil, `"field":"replacement"`},
		{"PUT of two", "PUT", "/7", `{} {}`, nil, nil, 400, nil, `"field":"replacement"`},
		{"PUT of what is not JSON", "PUT", "/7", `{"a":{"b":}}`, nil, nil, 400, nil, `"field":"replacement.a.b"`},
		{"PATCH of nothing", "PATCH", "/7", ``, nil, nil, 400, nil, `"field":"update"`},
		{"DELETE with a body", "DELETE", "/7", `{}`, nil, nil, 400, nil, `must not have a body`},
		{"PUT of an etag that must not be", "PUT", "/7", `{}`, []string{"If-None-Match", `"x"`}, nil, 400, nil, `"field":"If-None-Match"`},
		{"PATCH of what must not be", "PATCH", "/7", `{"$set":{}}`, []string{"If-None-Match", `*`}, nil, 400, nil, `"field":"If-None-Match"`},
		{"a word as an etag", "DELETE", "/7", ``, []string{"If-Match", `x`}, nil, 400, nil, `"field":"If-Match"`},
		{"a half etag", "DELETE", "/7", ``, []string{"If-Match", `"x`}, nil, 400, nil, `"field":"If-Match"`},
		{"two etags without a comma", "DELETE", "/7", ``, []string{"If-Match", `"x" "y"`}, nil, 400, nil, `"field":"If-Match"`},
		{"a date", "PUT", "/7", `{}`, []string{"If-Unmodified-Since", "Sat, 21 Nov 2026 07:28:00 GMT"}, nil, 400, nil, `"field":"If-Unmodified-Since"`},
		{"a date beside an etag that says more", "GET", "/7", ``, []string{"If-Unmodified-Since", "Sat, 21 Nov 2026 07:28:00 GMT", "If-Match", `"E.s"`}, nil, 200, nil, `{"_id":7}`},
		{"no etag in a list", "DELETE", "/7", ``, []string{"If-Match", `,`}, nil, 400, nil, `"field":"If-Match"`},
		{"both preconditions", "PUT", "/7", `{}`, []string{"If-Match", `"x"`, "If-None-Match", "*"}, nil, 400, nil, `"field":"If-None-Match"`},
		{"an unknown parameter", "GET", "/7?limit=1", "", nil, nil, 400, nil, `"field":"limit"`},
		{"another call's parameter", "GET", "/7?arrayFilters=[]", "", nil, nil, 400, nil, `"field":"arrayFilters"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			*r = resources{document: `{"_id": 7}`, etag: new("E"), t: t}
			if row.change != nil {
				row.change()
			}
			header := row.header
			if row.method != "GET" && row.method != "HEAD" && row.method != "DELETE" {
				header = append([]string{"Content-Type", "application/json"}, header...)
			}
			w := do(h, row.method, documents+row.path, row.body, header...)
			if w.Code != row.code || !strings.Contains(w.Body.String(), row.text) ||
				row.text == "" && w.Body.Len() > 0 && row.method != "HEAD" {
				t.Errorf("%d %q, want %d %q", w.Code, w.Body, row.code, row.text)
			}
			for name, want := range row.want {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			if row.code >= 400 {
				errorOf(t, w.Code, w.Body.Bytes(), row.code)
				if row.code != 412 &&
					(r.get != nil || r.put != nil || r.patch != nil || r.remove != nil) {
					t.Error("it has reached the service")
				}
			}
		})
	}
}

// TestResourceRequests: options, preconditions and tokens reach the service.
func TestResourceRequests(t *testing.T) {
	h, r := newResources(t)
	w := do(h, "PUT",
		documents+`/7?filter={"k":1}&writeConcern={"w":2}&bypassDocumentValidation=true&comment=c`,
		`{"b": 1, "a": [1]}`,
		"Content-Type", "application/ejson", "If-Match", `"E.s", W/"F.s"`, "If-Match",
		`"E.c.gzip" ,"odd"`, "Idempotency-Key", "k1", "Mooring-Transaction", "tx")
	if w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	if got := strings.Join(r.put.GetIfMatch(), "|"); got != "E|odd" {
		t.Errorf("If-Match %q", got)
	}
	if canonical(t,
		r.put.GetReplacement()) != `{"b":{"$numberInt":"1"},"a":[{"$numberInt":"1"}]}` ||
		canonical(t, r.put.GetFilter()) != `{"k":{"$numberInt":"1"}}` ||
		r.put.GetWriteConcern().GetW().GetNodes() != 2 || !r.put.GetBypassDocumentValidation() ||
		r.put.GetTransaction() != "tx" || r.key != "k1" || r.put.GetDatabase() != "shop" ||
		r.put.GetCollection() != "orders" {
		t.Errorf("request %v, key %q", r.put, r.key)
	}
	do(h, "PUT", documents+`/7`, `{}`, "Content-Type", "application/json", "If-None-Match", "*")
	if !r.put.GetOnlyCreate() || len(r.put.GetIfMatch()) > 0 {
		t.Errorf("If-None-Match: *: %v", r.put)
	}
	do(h, "DELETE", documents+`/7`, ``, "If-Match", `W/"E.s"`)
	if got := r.remove.GetIfMatch(); len(got) != 1 || got[0] != `W/"E.s"` {
		t.Errorf("a weak etag: %q, want one that no document has", got)
	}
	do(h, "DELETE", documents+`/7?writeConcern={"w":{"$numberInt":"2"}}`, ``)
	if got := r.remove.GetWriteConcern().GetW().GetNodes(); got != 2 {
		t.Errorf("w of a canonical number: %d", got)
	}
	for _, tag := range []string{`"*"`, `"*.s"`} {
		do(h, "DELETE", documents+`/7`, ``, "If-Match", tag)
		if got := r.remove.GetIfMatch(); len(got) != 1 || got[0] == "*" {
			t.Errorf("the etag %s: %q, want one that no document has", tag, got)
		}
	}
	do(h, "DELETE", documents+`/7`, ``, "If-Match", `*`)
	if got := r.remove.GetIfMatch(); len(got) != 1 || got[0] != `*` {
		t.Errorf("any: %q", got)
	}
	do(h, "PATCH", documents+`/7?arrayFilters=[{"x":1}]&let={"y":2}`, `[{"$set": {"a": 1}}]`,
		"Content-Type", "application/json")
	if len(r.patch.GetUpdate().GetPipeline().GetStages()) != 1 ||
		len(r.patch.GetArrayFilters()) != 1 || r.patch.GetLet() == nil {
		t.Errorf("PATCH: %v", r.patch)
	}
	do(h, "GET", documents+`/7?readPreference=secondary&readConcern=majority&maxTimeMS=5`, ``)
	if r.get.GetReadPreference().GetMode() != "secondary" ||
		r.get.GetReadConcern().GetLevel() != "majority" || r.get.GetMaxTimeMs() != 5 {
		t.Errorf("GET: %v", r.get)
	}
}

// TestPutOfAPart checks that a PUT of a part of a document is refused (RFC 9110, 14.5): it would
// replace the whole. Other methods ignore the header.
func TestPutOfAPart(t *testing.T) {
	r := &resources{document: `{"_id": 7}`, t: t}
	h := newHandler(t, &fake{resources: r})
	w := do(h, "PUT", documents+"/7", `{"a": 1}`, "Content-Type", "application/json",
		"Content-Range", "bytes 0-7/100")
	if e := errorOf(t, w.Code, w.Body.Bytes(), 400); e.Field != "Content-Range" {
		t.Errorf("PUT of a part: %+v", e)
	}
	if w := do(h, "GET", documents+"/7", "", "Content-Range", "bytes 0-7/100"); w.Code != 200 {
		t.Errorf("GET with Content-Range: %d %s", w.Code, w.Body)
	}
}
