package rest_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// TestHeaders: the headers that docs/api.md promises, on responses of each kind.
func TestHeaders(t *testing.T) {
	const private, none = "private, no-cache", "no-store"
	r := &resources{document: `{"_id": 7}`, etag: new("E"), t: t}
	f := rows(t, nil)
	f.resources = r
	f.find = func(context.Context, *mooringv1.FindRequest) (*mooringv1.FindResponse, error) {
		return &mooringv1.FindResponse{Documents: docs(t, `{"a": 1}`), Cursor: new("token")}, nil
	}
	f.close = func(
		context.Context, *mooringv1.CloseCursorRequest,
	) (*mooringv1.CloseCursorResponse, error) {
		return &mooringv1.CloseCursorResponse{}, nil // after a HEAD
	}
	h := newHandler(t, f)
	for _, row := range []struct {
		name, method, path, accept string
		code                       int
		cache, kind, length        string
	}{
		{"root", "GET", "/", "", 200, private, "application/json", "*"},
		{"root's HEAD", "HEAD", "/", "", 200, private, "application/json", "*"},
		{"OpenAPI", "GET", "/openapi.json", "", 200, private, "application/json", "*"},
		{"health", "GET", "/healthz", "", 200, private, "application/json", "15"},
		{"GET", "GET", documents, "", 200, private, "application/json", "40"},
		{"HEAD", "HEAD", documents, "", 200, private, "application/json", "40"},
		{"GET of canonical JSON", "GET", documents, "application/ejson", 200, private, "application/ejson", "*"},
		{"GET of BSON", "GET", documents, "text/html;q=0.9, application/bson;q=0.8", 200, private, "application/bson", "12"},
		{"GET of a stream", "GET", documents + ":streamFind", "", 200, private, "application/x-ndjson", ""},
		{"POST", "POST", documents + ":find", "", 200, none, "application/json", "40"},
		{"POST of a stream", "POST", documents + ":streamFind", "text/event-stream", 200, none, "text/event-stream", ""},
		{"document", "GET", documents + "/7", "", 200, private, "application/json", "9"},
		{"DELETE", "DELETE", documents + "/7", "", 204, none, "", ""},
		{"no path", "GET", "/v1/x", "", 404, private, "application/json", "*"},
		{"no method", "DELETE", documents, "", 405, none, "application/json", "*"},
		{"no type", "POST", documents + ":find", "text/html", 406, none, "application/json", "*"},
		{"no URL", "GET", documents + "?filter=" + strings.Repeat("x", 9000), "", 414, private, "application/json", "*"},
	} {
		t.Run(row.name, func(t *testing.T) {
			body := ""
			if row.method == http.MethodPost {
				body = "{}"
			}
			header := []string{"Mooring-Request-Id", "mine"}
			if row.accept != "" {
				header = append(header, "Accept", row.accept)
			}
			w := do(h, row.method, row.path, body, header...)
			got := w.Header()
			length := got.Get("Content-Length")
			if row.length == "*" && length != "" {
				length = "*"
			}
			if w.Code != row.code || got.Get("Cache-Control") != row.cache ||
				got.Get("Content-Type") != row.kind || length != row.length {
				t.Errorf("%d, %q, %q, length %q; want %d, %q, %q, %q", w.Code,
					got.Get("Cache-Control"), got.Get("Content-Type"), got.Get("Content-Length"),
					row.code, row.cache, row.kind, row.length)
			}
			vary := got.Get("Vary")
			for _, name := range []string{"Accept", "Accept-Encoding"} {
				if !strings.Contains(vary+",", name+",") {
					t.Errorf("Vary %q is without %s", vary, name)
				}
			}
			if isRead := row.method == http.MethodGet ||
				row.method == http.MethodHead; isRead != strings.Contains(vary, "Authorization") {
				t.Errorf("Vary %q", vary)
			}
			if got.Get("Mooring-Request-Id") != "mine" ||
				got.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers %v", got)
			}
			if (w.Code == http.StatusMethodNotAllowed) != (got.Get("Allow") != "") {
				t.Errorf("Allow %q", got.Get("Allow"))
			}
		})
	}
}
