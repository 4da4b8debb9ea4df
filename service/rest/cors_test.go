package rest_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/front"
)

// TestCORS checks what pages of other origins may do: nothing by default, and with origins what
// they list, preflights without a credential.
func TestCORS(t *testing.T) {
	key, line, err := caller.NewKey("shop", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := caller.ParseKeys([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	const app, other = "https://app.example", "https://evil.example"
	none, some, all := front.CORS{}, front.CORS{Origins: []string{app, "https://*.b.example"}, Headers: []string{"X-Own"}}, front.CORS{Origins: []string{"*"}}
	withCertificates := front.CORS{Origins: []string{app}, Credentials: true}
	for _, c := range []struct {
		name           string
		cors           front.CORS
		method, origin string
		header         []string
		code           int
		allowed        string // Access-Control-Allow-Origin
	}{
		{"preflight, none", none, "OPTIONS", app, []string{"Access-Control-Request-Method", "POST"}, 405, ""},
		{"call, none", none, "POST", app, []string{"Api-Key", key}, 403, ""},
		{"preflight", some, "OPTIONS", app, []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "api-key,content-type,x-own"}, 204, app},
		{"preflight of PUT", some, "OPTIONS", app, []string{"Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "if-match"}, 204, app},
		{"preflight of a subdomain", some, "OPTIONS", "https://a.b.example", []string{"Access-Control-Request-Method", "POST"}, 204, "https://a.b.example"},
		{"preflight with another header", some, "OPTIONS", app, []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x-other"}, 204, ""},
		{"preflight of another origin", some, "OPTIONS", other, []string{"Access-Control-Request-Method", "POST"}, 204, ""},
		{"call", some, "POST", app, []string{"Api-Key", key}, 200, app},
		{"call without a credential", some, "POST", app, nil, 401, app},
		{"call of another origin", some, "POST", other, []string{"Api-Key", key}, 403, ""},
		{"call of a longer origin", some, "POST", app + ".evil.example", []string{"Api-Key", key}, 403, ""},
		{"call of no origin", some, "POST", "null", []string{"Api-Key", key}, 403, ""},
		{"call of any origin", all, "POST", other, []string{"Api-Key", key}, 200, "*"},
		{"call with certificates", withCertificates, "POST", app, []string{"Api-Key", key}, 200, app},
		{"call of a program", some, "POST", "", []string{"Api-Key", key}, 200, ""},
	} {
		h := newHandler(t, &fake{find: func(context.Context, *mooringv1.FindRequest) (*mooringv1.FindResponse, error) {
			return &mooringv1.FindResponse{}, nil
		}}, func(cfg *config) {
			cfg.Callers = caller.New(caller.Config{Keys: keys})
			cfg.CORS = c.cors
		})
		r := newPost(documents+":find", strings.NewReader("{}"))
		r.Method = c.method
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Set(c.header[i], c.header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := w.Header()
		if w.Code != c.code || got.Get("Access-Control-Allow-Origin") != c.allowed {
			t.Errorf("%s: %d for %q, want %d for %q", c.name, w.Code, got.Get("Access-Control-Allow-Origin"), c.code, c.allowed)
		}
		if credentials := got.Get("Access-Control-Allow-Credentials") == "true"; credentials != (c.cors.Credentials && c.allowed != "") {
			t.Errorf("%s: Access-Control-Allow-Credentials = %v", c.name, credentials)
		}
		if exposed := got.Get("Access-Control-Expose-Headers"); c.method == "POST" && (c.allowed != "") !=
			(strings.Contains(exposed, "Etag") && strings.Contains(exposed, "Mooring-Cursor") && strings.Contains(exposed, "Retry-After")) {
			t.Errorf("%s: exposed are %q", c.name, exposed)
		}
	}
}

// TestCORSOfPages checks that a GET keeps what its Vary says, and that the responses to two GETs do
// not share it.
func TestCORSOfPages(t *testing.T) {
	h := newHandler(t, &fake{}, func(cfg *config) { cfg.CORS = front.CORS{Origins: []string{"https://app.example"}} })
	for range 2 {
		w := do(h, "GET", "/openapi.json", "", "Origin", "https://app.example")
		if vary := w.Header().Values("Vary"); w.Code != 200 || len(vary) != 2 || !strings.Contains(vary[0], "Accept") || vary[1] != "Origin" {
			t.Errorf("%d, Vary = %q", w.Code, vary)
		}
	}
}
