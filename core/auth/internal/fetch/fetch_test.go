package fetch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/auth/internal/fetch"
	"github.com/mooringdb/mooring/internal/memhttp"
)

func TestDo(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			fmt.Fprint(w, r.Method, " ", r.Header.Get("X-Name"), " ", r.PostFormValue("a"))
		case "/cut":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "half")
		default:
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, r.URL.RawQuery, "\n", strings.Repeat("y", 1000))
		}
	})
	for _, tt := range []struct {
		request    fetch.Request
		want, fail string
	}{
		{fetch.Request{Method: "GET", URL: "http://h/ok", Header: map[string]string{"X-Name": "n"}}, "GET n ", ""},
		{fetch.Request{Method: "POST", URL: "http://h/ok", Form: url.Values{"a": {"b c"}}}, "POST  b c", ""},
		{fetch.Request{Method: "GET", URL: "http://h/cut"}, "", "unexpected EOF"},
		{fetch.Request{Method: "GET", URL: "http://h/x"}, "", `status 418: "\nyyy`},
		{fetch.Request{Method: "GET", URL: "http://h/x?k=s%2Fcret", Secrets: []string{"s/cret"}}, "", `"k=***\nyyy`},
		{fetch.Request{Method: "GET", URL: "http://h/x?k=s/cret", Secrets: []string{"s/cret"}}, "", `"k=***\nyyy`},
		{fetch.Request{Method: "GET", URL: "gopher://h/x?k=s/cret"}, "", `GET gopher://h: unsupported protocol`},
		{fetch.Request{Method: "GET", URL: "http://h\x00/?k=s/cret"}, "", "cannot be parsed"},
		{fetch.Request{Method: "G T", URL: "http://h/?k=s/cret"}, "", "invalid method"},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := memhttp.New(t, handler, "")
			tt.request.Timeout = time.Second
			got, err := fetch.Do(t.Context(), server, tt.request)
			if string(got) != tt.want || (err == nil) != (tt.fail == "") {
				t.Fatalf("Do(%s %s) = %q, %v, want %q, %q", tt.request.Method, tt.request.URL, got,
					err, tt.want, tt.fail)
			}
			if err != nil &&
				(!strings.Contains(err.Error(), tt.fail) || strings.Contains(err.Error(), "cret") ||
					len(err.Error()) > 700) {
				t.Errorf("Do(%s %s) = %v, want %q", tt.request.Method, tt.request.URL, err, tt.fail)
			}
		})
	}
}

// TestNetwork: answers are bounded, no connection stays behind, and only what leaves the machine
// goes through a proxy.
func TestNetwork(t *testing.T) {
	for _, proxied := range []bool{false, true} {
		n := fetch.Network(proxied)
		if !n.DisableKeepAlives || n.MaxResponseHeaderBytes != 64<<10 ||
			(n.Proxy != nil) != proxied {
			t.Errorf("Network(%t) = %+v", proxied, n)
		}
	}
}

// TestNothingOutlivesARequest: an endpoint that accepts no connection, or no TLS handshake, keeps
// neither a goroutine nor a socket after the request has timed out.
func TestNothingOutlivesARequest(t *testing.T) {
	for name, dial := range map[string]func(ctx context.Context) error{
		"dial":          func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"TLS handshake": func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fetch.SetDial(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
					client, server := net.Pipe()
					go func() { _, _ = io.Copy(io.Discard, server) }() // and answers nothing
					if err := dial(ctx); err != nil {
						_ = client.Close()
						return nil, err
					}
					return client, nil
				})
				_, err := fetch.Do(t.Context(), nil, fetch.Request{Method: "GET", URL: "https://h/", Timeout: time.Second})
				if err == nil || !strings.Contains(err.Error(), "no complete response within 1s") {
					t.Errorf("Do = %v", err)
				}
			}) // which fails if a goroutine is left
		})
	}
}

// TestRefusedConnection: where nothing listens, the error says so.
func TestRefusedConnection(t *testing.T) {
	reason := errors.New("connection refused")
	transport := roundTripper(func(*http.Request) (*http.Response, error) { return nil, reason })
	_, err := fetch.Do(t.Context(), transport, fetch.Request{Method: "GET", URL: "http://h/?k=v", Timeout: time.Second})
	if !errors.Is(err, reason) || err.Error() != "GET http://h: connection refused" {
		t.Errorf("Do = %v", err)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		size int
		want string
	}{
		"good": {64 << 10, ""}, "large": {64<<10 + 1, "larger than 65536 bytes"}, "none": {0, "no such file"},
	} {
		path := filepath.Join(dir, name)
		if tt.size > 0 {
			if err := os.WriteFile(path, make([]byte, tt.size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		b, err := fetch.File(path)
		if tt.want == "" && (err != nil || len(b) != tt.size) ||
			tt.want != "" && (b != nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("File(%s) = %d bytes, %v, want %q", name, len(b), err, tt.want)
		}
	}
	if b, err := fetch.File(dir); err == nil || b != nil {
		t.Errorf("File of a directory = %d bytes", len(b))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
