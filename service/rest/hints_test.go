package rest_test

import (
	"context"
	"strings"
	"testing"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// TestNearest: what the error of a path that leads nowhere says.
func TestNearest(t *testing.T) {
	h := newHandler(t, &fake{})
	for _, row := range []struct{ path, want string }{
		{documents + ":finOne", `did you mean ":findOne"?`},
		{documents + ":FindOne", `did you mean ":findOne"?`},
		{documents + ":find_one", `did you mean ":findOne"?`},
		{documents + ":insert", `did you mean ":insertOne"?`},
		{documents + ":findMany", `did you mean ":find"?`},
		{documents + ":findOneById", `did you mean ":findOne"?`},
		{"/v1/databases/shop:dropDatabase", `did you mean ":drop"?`},
		{documents + ":", `the name of a call follows ":"`},
		{documents + ":somethingElseAltogether", `there is no call ":somethingElseAltogether" here (a ":" in a name is %3A in a path). The path can continue with /{id}, :aggregate,`},
		{documents + ":" + strings.Repeat("x", 300), `x…" here`},
		{"/v1/databases/shop/collections/orders:aggregate", `did you mean "/documents:aggregate"?`},
		{"/v1/databases/shop/collections/orders:find", `did you mean "/documents:find"?`},
		{documents + "/7:find", `did you mean "/documents:find", without "/{id}"?`},
		{documents + ":watch", `did you mean "/{collection}:watch", without "/documents"?`},
		{"/app/data-abcde/endpoint/data/v1/action/find", `if the option dataApi.sources is set`},
		{"/action/find", `if the option dataApi.sources is set`},
		{"/v1/databases/shop/collectons/orders/documents", `there is no "collectons" at this position of the path: did you mean "collections"?`},
		{"/v1/databases/shop/collections/orders/document:find", `did you mean "documents"?`},
		{"/v1/database", `did you mean "databases"?`},
		{"/v1/databases/shop", `continue with /collections, :aggregate,`},
		{"/v1", `continue with /`},
		{"/V1/databases", `did you mean "v1"?`},
		{"/v2/databases", `did you mean "v1"?`},
		{"/favicon.ico", `there is nothing at this path. The path can continue with /v1`},
		{"/v1/sessions:begin", `there is no call ":begin" here`},
		{"/v1/sessions:stat", `did you mean ":start"?`},
		{"/v1/databases/shop/collections/orders/documents/7/8", `there is nothing at this path`},
		{"/v1/" + strings.Repeat("y", 7000), `there is nothing at this path`},
	} {
		w := do(h, "POST", row.path, "{}")
		e := errorOf(t, w.Code, w.Body.Bytes(), 404)
		if e.Reason != "RouteNotFound" || !strings.Contains(e.Message, row.want) {
			t.Errorf("%.80s: %s %q, want %q", row.path, e.Reason, e.Message, row.want)
		}
	}
}

// TestMethods: what the error of a wrong method says.
func TestMethods(t *testing.T) {
	h := newHandler(t, &fake{})
	const here = `continue the path with `
	for _, row := range []struct{ method, path, allow, want string }{
		{"POST", documents, "GET, HEAD", here + ":aggregate, "},
		{"POST", documents, "GET, HEAD", ":insertMany, :insertOne, "},
		{"DELETE", documents, "GET, HEAD", "not DELETE. For DELETE, " + here + "/{id}"},
		{"PATCH", documents, "GET, HEAD", here + "/{id}"},
		{"POST", "/v1/databases/shop/collections", "GET, HEAD", here + "/{collection}:collMod, /{collection}:create, "},
		{"POST", "/v1/databases/shop/collections/orders/indexes", "GET, HEAD", here + ":create, :drop"},
		{"OPTIONS", documents, "GET, HEAD", "this path takes GET, HEAD, not OPTIONS"},
		{"GET", documents + ":find", "POST", "this path takes POST, not GET"},
		{"POST", documents + "/7", "DELETE, GET, HEAD, PATCH, PUT", "PUT, not POST"},
		{"POST", "/healthz", "GET, HEAD", "this path takes GET, HEAD, not POST"},
	} {
		w := do(h, row.method, row.path, "{}")
		e := errorOf(t, w.Code, w.Body.Bytes(), 405)
		isLast := !strings.Contains(row.want, here) && !strings.Contains(row.want, ":")
		if allow := w.Header().Get("Allow"); allow != row.allow ||
			!strings.Contains(e.Message, row.want) ||
			isLast && !strings.HasSuffix(e.Message, row.want) {
			t.Errorf("%s %s: Allow %q, %q, want %q, %q", row.method, row.path, allow, e.Message,
				row.allow, row.want)
		}
	}
}

// TestPreconditions: a call with a name refuses the headers that only a document's path takes, as
// a change would otherwise happen where the client has excluded it.
func TestPreconditions(t *testing.T) {
	called := 0
	h := newHandler(t, &fake{find: func(
		context.Context, *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		called++
		return &mooringv1.FindResponse{}, nil
	}})
	for _, header := range []string{"If-Match", "If-None-Match"} {
		for _, path := range []string{
			documents + ":updateOne", documents + ":insertOne", documents + ":find", documents + ":import", "/v1:bulkWrite", "/v1/transactions:run",
		} {
			w := do(h, "POST", path, "{}", header, `"a"`, "Content-Type", "application/json")
			if strings.HasSuffix(path, ":import") {
				w = do(h, "POST", path, "{}", header, `"a"`, "Content-Type", "application/x-ndjson")
			}
			e := errorOf(t, w.Code, w.Body.Bytes(), 400)
			if e.Reason != "InvalidArgument" || e.Field != header ||
				!strings.Contains(e.Message,
					"PUT, PATCH and DELETE of "+
						"/v1/databases/{database}/collections/{collection}/documents/{id} take") {
				t.Errorf("%s %s: %+v", header, path, e)
			}
		}
	}
	for _, row := range []struct {
		name, path    string
		header, value string
		code          int
	}{
		// A list has no ETag, so it is none of these. A cache on the way may ask so.
		{"a list of which the client has another", documents, "If-None-Match", `"a", W/"b"`, 200},
		{"a list that must not be", documents, "If-None-Match", "*", 400},
		{"no list of etags", documents, "If-None-Match", "a", 400},
		{"a list that must be", documents, "If-Match", "*", 400},
		{"a list of which the client has one", documents, "If-Match", `"a"`, 400},
		{"a list by its date", documents, "If-Unmodified-Since", "Sat, 21 Nov 2026 07:28:00 GMT", 400},
		{"databases", "/v1/databases", "If-Match", `"a"`, 400},
		{"a stream", documents + ":streamFind", "If-Match", `"a"`, 400},
		{"a list that is newer", documents, "If-Modified-Since", "Sat, 21 Nov 2026 07:28:00 GMT", 200},
	} {
		w := do(h, "GET", row.path, "", row.header, row.value)
		if w.Code != row.code {
			t.Errorf("%s: %d %s, want %d", row.name, w.Code, w.Body, row.code)
		}
		if row.code == 400 {
			if e := errorOf(t, w.Code, w.Body.Bytes(), 400); e.Field != row.header ||
				e.Reason != "InvalidArgument" {
				t.Errorf("%s: %+v", row.name, e)
			}
		}
	}
	if called != 2 {
		t.Errorf("%d calls, want those that no precondition excludes", called)
	}
}

// TestAbout: the root says what this is, and where the rest is.
func TestAbout(t *testing.T) {
	h := newHandler(t, &fake{})
	w := do(h, "GET", "/", "")
	for _, part := range []string{"MongoDB", `"/openapi.json"`, "docs/api.md", `"/readyz"`} {
		if w.Code != 200 || !strings.Contains(w.Body.String(), part) {
			t.Errorf("%d %s, want %s", w.Code, w.Body, part)
		}
	}
	if w := do(h, "POST", "/", "{}"); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", w.Code, w.Header())
	}
}

// TestParameters: errors of query parameters are the parameter's, and not of JSON.
func TestParameters(t *testing.T) {
	h := newHandler(t, &fake{})
	for _, row := range []struct{ query, field, reason, want string }{
		{"limit=x", "limit", "InvalidArgument", `"x" is not an integer`},
		{"limit=", "limit", "InvalidArgument", `"" is not an integer`},
		{"limit=1.5", "limit", "InvalidArgument", `"1.5" is not an integer`},
		{"skip=99999999999999999999", "skip", "InvalidArgument", `is too large an integer`},
		{"batchSize=3000000000", "batchSize", "InvalidArgument", `is too large an integer`},
		{"batchSize=null", "batchSize", "InvalidArgument", `"null" is not an integer`},
		{"filter=x", "filter", "MalformedDocument", `expected an object`},
		{"filter=", "filter", "MalformedDocument", ``},
		{"Filter={}", "Filter", "InvalidArgument", `there is no such parameter: did you mean filter?`},
		{"limt=7", "limt", "InvalidArgument", `there is no such parameter: did you mean limit? For a field of this name, write field.limt`},
		{"pretty=true", "pretty", "InvalidArgument", `there is no such parameter. For a field`},
		{"timeout=5", "timeout", "InvalidArgument", `is not a positive duration`},
	} {
		w := do(h, "GET", documents+"?"+row.query, "")
		e := errorOf(t, w.Code, w.Body.Bytes(), 400)
		if e.Reason != row.reason || e.Field != row.field ||
			!strings.Contains(e.Message, row.want) {
			t.Errorf("%s: %+v", row.query, e)
		}
	}
	w := do(h, "GET", "/v1/databases?_id=7", "")
	if e := errorOf(t, w.Code, w.Body.Bytes(), 400); e.Field != "_id" ||
		!strings.Contains(e.Message,
			"there is no such query parameter: known are authorizedDatabases, batchSize, "+
				"comment, filter, ") {
		t.Errorf("a GET without fields: %+v", e)
	}
	w = do(h, "GET", "/v1/databases?nameOnly=yes", "")
	if e := errorOf(t, w.Code, w.Body.Bytes(), 400); e.Field != "nameOnly" ||
		!strings.Contains(e.Message, "neither true nor false") {
		t.Errorf("a switch: %+v", e)
	}
}

// TestReadConcernAsWord: a read concern can be its level, wherever it is.
func TestReadConcernAsWord(t *testing.T) {
	var got *mooringv1.FindRequest
	h := newHandler(t, &fake{find: func(
		_ context.Context, r *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		got = r
		return &mooringv1.FindResponse{}, nil
	}})
	for _, text := range []string{`"majority"`, `{"level": "majority"}`} {
		w := do(h, "POST", documents+":find", `{"readConcern": `+text+`}`)
		if w.Code != 200 || got.GetReadConcern().GetLevel() != "majority" {
			t.Errorf("%s: %d %s", text, w.Code, w.Body)
		}
	}
	if w := do(h, "GET", documents+"?readConcern=majority", ""); w.Code != 200 ||
		got.GetReadConcern().GetLevel() != "majority" {
		t.Errorf("GET: %d %s", w.Code, w.Body)
	}
	w := do(h, "POST", documents+":find", `{"readConcern": 1}`)
	errorOf(t, w.Code, w.Body.Bytes(), 400)
}
