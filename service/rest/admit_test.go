package rest_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/flood"
)

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (b unread) Read([]byte) (int, error) {
	b.t.Error("the body is read")
	return 0, errors.New("no")
}

// TestAuthentication checks which requests need a credential, that a refusal comes before the body
// is read, and that the handler learns who calls from the credential alone.
func TestAuthentication(t *testing.T) {
	key, line, err := caller.NewKey("shop", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := caller.ParseKeys([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	callers := caller.New(caller.Config{Keys: keys, CertificateName: caller.CommonName})
	var who string
	h := newHandler(t, &fake{find: func(
		ctx context.Context, _ *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		who = call.LocalFrom(ctx).Identity.Principal
		return &mooringv1.FindResponse{}, nil
	}}, func(c *config) { c.Callers = callers })
	leaf := certtest.Authority(t, certtest.ECDSA).Issue(t, "client").Certificate
	const missing, wrong = `Bearer realm="mooring"`, `Bearer realm="mooring", error="invalid_token"`
	for _, c := range []struct {
		name, method, path string
		header             []string
		chain              []*x509.Certificate
		code               int
		challenge, who     string
	}{
		{"nothing", "POST", documents + ":find", nil, nil, 401, missing, ""},
		{"bearer", "POST", documents + ":find", []string{"Authorization", "Bearer " + key}, nil, 200, "", "key:shop"},
		{"api-key", "POST", documents + ":find", []string{"api-key", key}, nil, 200, "", "key:shop"},
		{"apiKey", "POST", documents + ":find", []string{"apiKey", key}, nil, 200, "", "key:shop"},
		{"both, which differ", "POST", documents + ":find", []string{"apiKey", key, "api-key", "x"}, nil, 401, wrong, ""},
		{"a principal in metadata", "POST", documents + ":find", []string{"Grpc-Metadata-Principal", "key:shop", "Mooring-Principal", "key:shop"}, nil, 401, missing, ""},
		{"certificate", "POST", documents + ":find", nil, []*x509.Certificate{leaf}, 200, "", "cert:client"},
		{"wrong", "POST", documents + ":find", []string{"Authorization", "Bearer mooring_x"}, nil, 401, wrong, ""},
		{"GET", "GET", documents, nil, nil, 401, missing, ""},
		{"unknown path", "GET", "/v1/nothing", nil, nil, 401, missing, ""},
		{"unknown method", "DELETE", documents + ":find", nil, nil, 401, missing, ""},
		{"health", "GET", "/healthz", nil, nil, 200, "", ""},
		{"ready", "GET", "/readyz", nil, nil, 200, "", ""},
		{"OpenAPI", "GET", "/openapi.json", nil, nil, 200, "", ""},
		{"root", "GET", "/", nil, nil, 200, "", ""},
		{"preflight", "OPTIONS", documents + ":find", []string{"Access-Control-Request-Method", "POST"}, nil, 405, "", ""},
		{"OPTIONS", "OPTIONS", documents + ":find", nil, nil, 401, missing, ""},
	} {
		who = ""
		r := httptest.NewRequest(c.method, c.path, unread{t})
		if c.code == 200 && c.method == "POST" {
			r = newPost(c.path, strings.NewReader("{}"))
		}
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Set(c.header[i], c.header[i+1])
		}
		if c.chain != nil {
			r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{c.chain}}
		}
		w := serve(h, r)
		if w.Code != c.code || w.Header().Get("Www-Authenticate") != c.challenge || who != c.who {
			t.Errorf("%s: %d %s %s %q, want %d %s %q", c.name, w.Code,
				w.Header().Get("Www-Authenticate"), w.Body, who, c.code, c.challenge, c.who)
		}
		if c.code == 401 {
			if e := errorOf(t, w.Code, w.Body.Bytes(), 401); e.Reason != "Unauthenticated" ||
				strings.Contains(e.Message, key) {
				t.Errorf("%s: %+v", c.name, e)
			}
		}
	}
	// A certificate that TLS has not verified is none.
	r := newPost(documents+":find", strings.NewReader("{}"))
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	if w := serve(h, r); w.Code != 401 {
		t.Errorf("a certificate that is not verified: %d", w.Code)
	}
}

// TestStrangersWaste checks that what a client without a credential asks for counts against its
// connection, which is closed after 1,000 requests: the description of the API, the other pages,
// and calls that are refused. Calls with a credential do not count.
func TestStrangersWaste(t *testing.T) {
	key, line, err := caller.NewKey("shop", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := caller.ParseKeys([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ method, path, key string }{
		{"GET", "/openapi.json", ""},
		{"GET", "/healthz", ""},
		{"GET", "/readyz", ""},
		{"GET", "/", ""},
		{"GET", documents, ""},
		{"GET", documents, key},
	} {
		synctest.Test(t, func(t *testing.T) {
			closed := 0
			c, _ := flood.New(0, 0, slog.New(slog.DiscardHandler), nil).
				Enter(netip.MustParseAddr("192.0.2.1"), func() { closed++ })
			h := newHandler(t, &fake{find: func(
				context.Context, *mooringv1.FindRequest,
			) (*mooringv1.FindResponse, error) {
				return &mooringv1.FindResponse{}, nil
			}}, func(c *config) { c.Callers = caller.New(caller.Config{Keys: keys}) })
			n := 0
			for ; n < 2000 && closed == 0; n++ {
				r := httptest.NewRequest(row.method, row.path, nil)
				r.Header.Set("Api-Key", row.key)
				h.ServeHTTP(nowhere{http.Header{}}, r.WithContext(flood.NewContext(t.Context(), c)))
			}
			if isKnown := row.key != ""; isKnown != (closed == 0) || !isKnown && n != 1001 {
				t.Errorf("%s %s, with a key: %t: closed %d times after %d requests", row.method,
					row.path, isKnown, closed, n)
			}
		})
	}
}

// TestThrottledAttempts checks that failures are counted for the address of the connection.
func TestThrottledAttempts(t *testing.T) {
	keys, err := caller.ParseKeys(nil)
	if err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, &fake{}, func(c *config) {
		c.Callers = caller.New(caller.Config{Keys: keys})
	})
	try := func(address string) int {
		r := newPost(documents+":find", strings.NewReader("{}"))
		r.Header.Set("Api-Key", "wrong")
		r.Header.Set("X-Forwarded-For", "192.0.2.77")
		r.RemoteAddr = address
		w := serve(h, r)
		if w.Code == 429 && w.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		return w.Code
	}
	for try("192.0.2.1:1") == 401 {
	}
	if code := try("192.0.2.1:2"); code != 429 {
		t.Errorf("another port: %d, want 429", code)
	}
	if code := try("192.0.2.2:1"); code != 401 {
		t.Errorf("another address: %d, want 401", code)
	}
}

// TestHostsOfHealth checks that probes need no name of the gateway.
func TestHostsOfHealth(t *testing.T) {
	h := newHandler(t, &fake{}, func(c *config) { c.Hosts = []string{} })
	for path, want := range map[string]int{"/healthz": 200, documents: 421} {
		r := httptest.NewRequest("GET", path, nil)
		r.Host = "rebind.example"
		if w := serve(h, r); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

// TestOtherOrigins checks that a browser cannot write for a page of another origin, neither with a
// body of a type that it sends without asking, nor with one of ours.
func TestOtherOrigins(t *testing.T) {
	called := false
	h := newHandler(t, &fake{find: func(
		context.Context, *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		called = true
		return &mooringv1.FindResponse{}, nil
	}})
	for _, c := range []struct {
		name, method string
		header       []string
		code         int
	}{
		{"no browser", "POST", nil, 200},
		{"no type", "POST", []string{"Content-Type", ""}, 415},
		{"text", "POST", []string{"Content-Type", "text/plain"}, 415},
		{"a form", "POST", []string{"Content-Type", "multipart/form-data; boundary=x"}, 415},
		{"JSON in a comment", "POST", []string{"Content-Type", "text/plain;application/json"}, 415},
		{"cross site", "POST", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"same site", "POST", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"same origin", "POST", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"typed by the user", "POST", []string{"Sec-Fetch-Site", "none"}, 200},
		{"an old browser, another origin", "POST", []string{"Origin", "http://evil.example"}, 403},
		{"an old browser, this origin", "POST", []string{"Origin", "http://example.com"}, 200},
		{"an opaque origin", "POST", []string{"Origin", "null"}, 403},
		{"a read", "GET", []string{"Sec-Fetch-Site", "cross-site"}, 200},
	} {
		called = false
		path := documents + ":find"
		if c.method == "GET" {
			path = documents
		}
		r := httptest.NewRequest(c.method, path, io.NopCloser(strings.NewReader("")))
		if c.method == "POST" {
			r = newPost(path, strings.NewReader("{}"))
		}
		for i := 0; i < len(c.header); i += 2 {
			if r.Header.Set(c.header[i], c.header[i+1]); c.header[i+1] == "" {
				r.Header.Del(c.header[i])
			}
		}
		if w := serve(h, r); w.Code != c.code || called != (c.code == 200) {
			t.Errorf("%s: %d %s, called %v; want %d", c.name, w.Code, w.Body, called, c.code)
		}
	}
}

// TestForeignOrigin checks that the refusal of a page of another origin names it and the option.
func TestForeignOrigin(t *testing.T) {
	h := newHandler(t, &fake{})
	const refused = "a browser sends this request for a page of another origin"
	for origin, want := range map[string]string{
		"http://localhost:5173":                        refused + `, "http://localhost:5173", which is not in rest.cors.origins`,
		"http://" + strings.Repeat("a", 300) + ".test": refused,
		"": refused,
	} {
		r := newPost(documents+":find", strings.NewReader("{}"))
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := serve(h, r)
		if e := errorOf(t, w.Code, w.Body.Bytes(), 403); e.Message != want {
			t.Errorf("origin %.40q: %q, want %q", origin, e.Message, want)
		}
	}
}
