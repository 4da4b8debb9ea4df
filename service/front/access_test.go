package front_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
)

// admitting returns a front whose API answers what it admits with 200, and other requests with the
// status and the reason of the refusal.
func admitting(t *testing.T, change func(*front.Config)) *front.Handler {
	t.Helper()
	c := front.Config{Conn: inproc.NewConn(nil, nil), APIs: []front.API{api(func(
		x *front.Exchange,
	) {
		err := x.Admit(nil)
		if err == nil {
			x.Response.WriteHeader(http.StatusOK)
			return
		}
		failed := x.Explain(x.Request().Context(), err).HTTP()
		x.Response.WriteHeader(failed.Code)
		x.Response.Write([]byte(failed.Body.GetError().GetReason()))
	})}}
	if change != nil {
		change(&c)
	}
	h, err := front.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func post() *http.Request {
	return httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
}

func serve(h *front.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestHosts checks the names that a request may call the gateway by.
func TestHosts(t *testing.T) {
	strict := admitting(t, func(c *front.Config) { c.Hosts = []string{"db.example"} })
	none := admitting(t, func(c *front.Config) { c.Hosts = []string{} })
	open := admitting(t, nil)
	below := admitting(t, func(c *front.Config) { c.Hosts = []string{"*.db.example"} })
	for host, want := range map[string]int{
		"a.db.example": 200, "b.A.db.example.:80": 200, "localhost": 200, "db.example": 421,
		".db.example": 421, "xdb.example": 421, "a.db.example.evil": 421, "*.db.example": 200,
	} {
		r := post()
		r.Host = host
		if w := serve(below, r); w.Code != want {
			t.Errorf("below db.example, %q: %d %s, want %d", host, w.Code, w.Body, want)
		}
	}
	for host, want := range map[string][3]int{ // strict, none, open
		"db.example": {200, 421, 200}, "db.example:8080": {200, 421, 200}, "DB.Example.": {200, 421, 200},
		"localhost": {200, 200, 200}, "localhost:8080": {200, 200, 200}, "a.localhost": {200, 200, 200},
		"127.0.0.1:8080": {200, 200, 200}, "[::1]:8080": {200, 200, 200}, "[::1]": {200, 200, 200}, "10.0.0.7": {200, 200, 200},
		"rebind.example": {421, 421, 200}, "db.example.evil": {421, 421, 200}, "localhost.evil": {421, 421, 200},
		"127.0.0.1.evil": {421, 421, 200}, "": {421, 421, 200},
	} {
		for i, h := range []*front.Handler{strict, none, open} {
			r := post()
			r.Host = host
			w := serve(h, r)
			if w.Code != want[i] {
				t.Errorf("%q: %d %s, want %d", host, w.Code, w.Body, want[i])
			}
			if w.Code == 421 && w.Body.String() != "UnknownHost" {
				t.Errorf("%q: %s", host, w.Body)
			}
		}
	}
}

// TestLongURLs checks how long the URL of a request may be, whichever API it is of, and that a
// client without a credential learns nothing of it.
func TestLongURLs(t *testing.T) {
	_, line, err := caller.NewKey("shop", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := caller.ParseKeys([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	open, closed := admitting(t, nil), admitting(t, func(c *front.Config) {
		c.Callers = caller.New(caller.Config{Keys: keys})
	})
	const most = 8 << 10
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, row := range []struct {
			h      *front.Handler
			length int
			want   string
		}{
			{open, most, "200 "},
			{open, most + 1, "414 URITooLong"},
			{closed, most + 1, "401 Unauthenticated"},
		} {
			url := "/?" + strings.Repeat("x", row.length-2)
			w := serve(row.h, httptest.NewRequest(method, url, nil))
			if got := fmt.Sprint(w.Code, " ", w.Body); got != row.want {
				t.Errorf("%s, %d bytes: %s, want %s", method, row.length, got, row.want)
			}
		}
	}
}

// TestSetAccess changes the names and the origins while the handler serves.
func TestSetAccess(t *testing.T) {
	h := admitting(t, nil)
	code := func() int {
		r := post()
		r.Host = "db.example"
		r.Header.Set("Origin", "https://app.example")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		return serve(h, r).Code
	}
	for _, tt := range []struct {
		hosts   []string
		origins []string
		want    int
	}{
		{nil, nil, 403},
		{nil, []string{"https://app.example"}, 200},
		{[]string{}, []string{"https://app.example"}, 421},
		{[]string{"db.example"}, []string{"https://app.example"}, 200},
		{[]string{"db.example"}, []string{"https://other.example"}, 403},
	} {
		h.SetAccess(tt.hosts, front.CORS{Origins: tt.origins})
		if got := code(); got != tt.want {
			t.Errorf("hosts %q, origins %q: %d, want %d", tt.hosts, tt.origins, got, tt.want)
		}
	}
}

// TestCORS checks what pages of other origins may do: nothing by default, and with origins what
// they list, preflights without a credential. A preflight that CORS does not answer reaches the
// API.
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
		{"preflight, none", none, "OPTIONS", app, []string{"Access-Control-Request-Method", "POST"}, 200, ""},
		{"call, none", none, "POST", app, []string{"Api-Key", key}, 403, ""},
		{"preflight", some, "OPTIONS", app, []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "api-key,content-type,x-own"}, 204, app},
		{"preflight of a compressed message", some, "OPTIONS", app, []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "connect-accept-encoding,connect-content-encoding,content-encoding,grpc-accept-encoding,grpc-encoding"}, 204, app},
		{"preflight of PUT", some, "OPTIONS", app, []string{"Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "if-match"}, 204, app},
		{"preflight of a subdomain", some, "OPTIONS", "https://a.b.example", []string{"Access-Control-Request-Method", "POST"}, 204, "https://a.b.example"},
		{"preflight with another header", some, "OPTIONS", app, []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x-other"}, 204, app},
		{"preflight with another header of another origin", some, "OPTIONS", other, []string{"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x-other"}, 204, ""},
		{"preflight of another method", some, "OPTIONS", app, []string{"Access-Control-Request-Method", "PURGE"}, 204, app},
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
		h := admitting(t, func(cfg *front.Config) {
			cfg.Callers = caller.New(caller.Config{Keys: keys})
			cfg.CORS = c.cors
		})
		r := post()
		r.Method = c.method
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Set(c.header[i], c.header[i+1])
		}
		w := serve(h, r)
		got := w.Header()
		if w.Code != c.code || got.Get("Access-Control-Allow-Origin") != c.allowed {
			t.Errorf("%s: %d for %q, want %d for %q", c.name, w.Code,
				got.Get("Access-Control-Allow-Origin"), c.code, c.allowed)
		}
		// What a page asks for is allowed as a whole.
		asked := r.Header.Get("Access-Control-Request-Headers")
		if asked != "" && asked != "x-other" && got.Get("Access-Control-Allow-Headers") != asked {
			t.Errorf("%s: %q are not allowed", c.name, asked)
		}
		if text := got.Get("Access-Control-Allow-Headers"); strings.Contains(text, "x-other") ||
			strings.Contains(c.name, " with another header") &&
				(c.allowed != "") != strings.Contains(text, "Api-Key, ") {
			t.Errorf("%s: allowed headers are %q", c.name, text)
		}
		credentials := got.Get("Access-Control-Allow-Credentials") == "true"
		if credentials != (c.cors.Credentials && c.allowed != "") {
			t.Errorf("%s: Access-Control-Allow-Credentials = %v", c.name, credentials)
		}
		if exposed := got.Get("Access-Control-Expose-Headers"); c.method == "POST" &&
			(c.allowed != "") !=
				(strings.Contains(exposed, "Etag") && strings.Contains(exposed, "Mooring-Cursor") &&
					strings.Contains(exposed, "Retry-After") &&
					strings.Contains(exposed, "Grpc-Encoding") &&
					strings.Contains(exposed, "Connect-Content-Encoding")) {
			t.Errorf("%s: exposed are %q", c.name, exposed)
		}
	}
}
