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
		{documents + ":", `the name of a call follows ":"`},
		{documents + ":somethingElseAltogether", `there is no call ":somethingElseAltogether" here (a ":" in a name is %3A in a path). Here a path can go on with /{id}, :aggregate,`},
		{documents + ":" + strings.Repeat("x", 300), `x…" here`},
		{"/v1/databases/shop/collections/orders:aggregate", `did you mean "/documents:aggregate"?`},
		{"/v1/databases/shop/collections/orders:find", `did you mean "/documents:find"?`},
		{documents + "/7:find", `there is no call ":find" here`},
		{"/v1/databases/shop/collectons/orders/documents", `there is no "collectons" at this place of a path: did you mean "collections"?`},
		{"/v1/databases/shop/collections/orders/document:find", `did you mean "documents"?`},
		{"/v1/database", `did you mean "databases"?`},
		{"/v1/databases/shop", `go on with /collections, :aggregate,`},
		{"/v1", `go on with /`},
		{"/V1/databases", `did you mean "v1"?`},
		{"/v2/databases", `did you mean "v1"?`},
		{"/favicon.ico", `there is nothing at this path. Here a path can go on with /v1`},
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
		{"Filter={}", "Filter", "InvalidArgument", `there is no such query parameter`},
		{"timeout=5", "timeout", "InvalidArgument", `is not a positive duration`},
	} {
		w := do(h, "GET", documents+"?"+row.query, "")
		e := errorOf(t, w.Code, w.Body.Bytes(), 400)
		if e.Reason != row.reason || e.Field != row.field || !strings.Contains(e.Message, row.want) {
			t.Errorf("%s: %+v", row.query, e)
		}
	}
	w := do(h, "GET", "/v1/databases?nameOnly=yes", "")
	if e := errorOf(t, w.Code, w.Body.Bytes(), 400); e.Field != "nameOnly" || !strings.Contains(e.Message, "neither true nor false") {
		t.Errorf("a switch: %+v", e)
	}
}

// TestReadConcernAsWord: a read concern can be its level, wherever it is.
func TestReadConcernAsWord(t *testing.T) {
	var got *mooringv1.FindRequest
	h := newHandler(t, &fake{find: func(_ context.Context, r *mooringv1.FindRequest) (*mooringv1.FindResponse, error) {
		got = r
		return &mooringv1.FindResponse{}, nil
	}})
	for _, text := range []string{`"majority"`, `{"level": "majority"}`} {
		w := do(h, "POST", documents+":find", `{"readConcern": `+text+`}`)
		if w.Code != 200 || got.GetReadConcern().GetLevel() != "majority" {
			t.Errorf("%s: %d %s", text, w.Code, w.Body)
		}
	}
	if w := do(h, "GET", documents+"?readConcern=majority", ""); w.Code != 200 || got.GetReadConcern().GetLevel() != "majority" {
		t.Errorf("GET: %d %s", w.Code, w.Body)
	}
	w := do(h, "POST", documents+":find", `{"readConcern": 1}`)
	errorOf(t, w.Code, w.Body.Bytes(), 400)
}
