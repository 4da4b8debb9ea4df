package console_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/console"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/rest"
)

// newHandler returns a port with the console and REST, which answers for gateway.example.
func newHandler(t *testing.T, cfg console.Config, callers ...*caller.Authenticator) http.Handler {
	t.Helper()
	var who *caller.Authenticator
	if len(callers) > 0 {
		who = callers[0]
	}
	page, err := console.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	x := interceptor.New(interceptor.Config{})
	h, err := front.New(front.Config{
		Conn: inproc.NewConn(x.Unary(), x.Stream()), Hosts: []string{"gateway.example"},
		Callers: who,
		APIs:    []front.API{page, rest.New(rest.Config{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func ask(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://gateway.example"+path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var link = regexp.MustCompile(`(?:src|href)="\./([^"]+)"`)

// TestPage checks that the page and all files that it names are there, as they are and compressed,
// and that the page has nothing that its policy forbids.
func TestPage(t *testing.T) {
	h := newHandler(t, console.Config{})
	page := ask(h, "GET", "/console/").Body.String()
	links := link.FindAllStringSubmatch(page, -1)
	if len(links) != 3 {
		t.Fatalf("the page has %d links, want an icon, a script and a style:\n%s", len(links), page)
	}
	for _, forbidden := range []string{"<style", "style=", "onload=", "http:", "https:"} {
		if strings.Contains(page, forbidden) {
			t.Errorf("the page has %q:\n%s", forbidden, page)
		}
	}
	for _, l := range links {
		plain := ask(h, "GET", "/console/"+l[1])
		packed := ask(h, "GET", "/console/"+l[1], "Accept-Encoding", "zstd, gzip;q=0.5")
		r, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatalf("%s: %v", l[1], err)
		}
		text, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(text, plain.Body.Bytes()) {
			t.Errorf("%s is another file when it is compressed: %v", l[1], err)
		}
		if packed.Header().Get("Content-Encoding") != "gzip" ||
			plain.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: %v and %v", l[1], plain.Header(), packed.Header())
		}
		if got := plain.Header().
			Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
			t.Errorf("%s may be kept: %q", l[1], got)
		}
		if plain.Header().Get("ETag") == packed.Header().Get("ETag") {
			t.Errorf("%s has the same etag in both codings", l[1])
		}
	}
}

// TestHeaders checks what every response says, also a failure.
func TestHeaders(t *testing.T) {
	h := newHandler(t, console.Config{})
	for _, path := range []string{
		"/console", "/console/", "/console/settings.json", "/console/none",
	} {
		got := ask(h, "GET", path).Header()
		policy := got.Get("Content-Security-Policy")
		for _, want := range []string{
			"default-src 'none'", "script-src 'self';", "style-src 'self';", "connect-src 'self'", "frame-ancestors 'none'",
			"require-trusted-types-for 'script'",
		} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q lacks %s", path, policy, want)
			}
		}
		for name, want := range map[string]string{
			"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Vary": "Accept-Encoding",
		} {
			if got.Get(name) != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got.Get(name), want)
			}
		}
	}
}

func TestAnswers(t *testing.T) {
	h := newHandler(t, console.Config{})
	tag := ask(h, "GET", "/console/").Header().Get("ETag")
	packed := ask(h, "GET", "/console/", "Accept-Encoding", "gzip").Header().Get("ETag")
	for _, c := range []struct {
		name, method, path string
		header             []string
		code               int
		body               string
	}{
		{"no slash", "GET", "/console", nil, 308, ""},
		{"no file", "GET", "/console/none", nil, 404, "no such file"},
		{"a folder", "GET", "/console/assets/", nil, 404, "no such file"},
		{"the hash of the sources", "GET", "/console/sources", nil, 404, "no such file"},
		{"a way out", "GET", "/console/../v1/databases", nil, 404, "no such file"},
		{"another method", "POST", "/console/", nil, 405, "takes GET, HEAD"},
		{"HEAD", "HEAD", "/console/", nil, 200, ""},
		{"known", "GET", "/console/", []string{"If-None-Match", `"x", W/` + tag}, 304, ""},
		{"known in another coding", "GET", "/console/", []string{"If-None-Match", packed}, 200, "<!doctype html>"},
		{"known compressed", "GET", "/console/", []string{"If-None-Match", packed, "Accept-Encoding", "gzip"}, 304, ""},
		{"any", "GET", "/console/", []string{"If-None-Match", "*"}, 304, ""},
		{"no etag", "GET", "/console/", []string{"If-None-Match", "x"}, 400, "If-None-Match"},
		{"a name beside it is REST's", "GET", "/consoles", nil, 404, "RouteNotFound"},
		{"the root is REST's", "GET", "/", nil, 200, `"name":"Mooring"`},
	} {
		w := ask(h, c.method, c.path, c.header...)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.body) ||
			c.body == "" && w.Body.Len() > 0 {
			t.Errorf("%s: %s %s = %d %q, want %d and %q", c.name, c.method, c.path, w.Code, w.Body,
				c.code, c.body)
		}
	}
	for path, want := range map[string]string{"/console": "console/", "/docs": "console/#/api"} {
		if w := ask(h, "GET", path); w.Code != 308 || w.Header().Get("Location") != want {
			t.Errorf("%s leads to %q with %d, want %q", path, w.Header().Get("Location"), w.Code,
				want)
		}
	}
}

// TestOtherHosts checks that the page is not there under a name that is not the gateway's.
func TestOtherHosts(t *testing.T) {
	h := newHandler(t, console.Config{})
	r := httptest.NewRequest("GET", "http://evil.example/console/", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusMisdirectedRequest || strings.Contains(w.Body.String(), "<") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestPrincipal checks that the page can find out whether a credential counts, and that its files
// need none.
func TestPrincipal(t *testing.T) {
	key, line, err := caller.NewKey("ops", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := caller.ParseKeys([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, console.Config{SignIn: true}, caller.New(caller.Config{Keys: keys}))
	for _, c := range []struct {
		header []string
		code   int
		body   string
	}{
		{nil, 401, ""},
		{[]string{"Authorization", "Bearer " + key + "x"}, 401, ""},
		{[]string{"Authorization", "Bearer " + key}, 200, `{"principal":"key:ops"}`},
	} {
		w := ask(h, "GET", "/console/principal.json", c.header...)
		if w.Code != c.code || c.code == 200 && w.Body.String() != c.body ||
			strings.Contains(w.Header().Get("Cache-Control"), "public") {
			t.Errorf("%v: %d %s %v", c.header, w.Code, w.Body, w.Header())
		}
	}
	if w := ask(h, "GET", "/console/"); w.Code != 200 {
		t.Errorf("the page without a credential: %d", w.Code)
	}
	if w := ask(newHandler(t, console.Config{}), "GET",
		"/console/principal.json"); w.Body.String() != `{"principal":""}` {
		t.Errorf("without authentication: %s", w.Body)
	}
}

func TestSettings(t *testing.T) {
	for signIn, want := range map[bool]string{
		true: `{"signIn":true,"oidc":false}`, false: `{"signIn":false,"oidc":false}`,
	} {
		w := ask(newHandler(t, console.Config{SignIn: signIn}), "GET", "/console/settings.json")
		if w.Body.String() != want || w.Header().Get("Cache-Control") != "no-cache" ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%v: %s %v", signIn, w.Body, w.Header())
		}
	}
}
