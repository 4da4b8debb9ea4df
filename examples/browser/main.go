// Command browser shows a live list: a page with the newest orders, which changes with the
// collection. It is a web server between the page and the gateway. The page can read the list and
// its changes, and nothing else: only the server has the gateway's API key.
//
//	MOORING_REST=http://127.0.0.1:8080 MOORING_KEY=… go run ./examples/browser
package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"time"
)

//go:embed live-list.html
var page []byte

// What the page shows. Update events have the whole document, so the page need not ask for it.
const (
	list  = "/v1/databases/shop/collections/orders/documents"
	watch = `{"watch": {"database": "shop", "collection": "orders",
	           "fullDocument": "updateLookup"}}`
)

func main() {
	if err := run(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	gateway, err := url.Parse(cmp.Or(os.Getenv("MOORING_REST"), "http://127.0.0.1:8080"))
	if err != nil {
		return err
	}
	address := cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8000")
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(os.Stdout, "the list is at http://%s/\n", l.Addr())
	server := &http.Server{
		Handler: handler(gateway, os.Getenv("MOORING_KEY")), ReadHeaderTimeout: 10 * time.Second,
	}
	return server.Serve(l)
}

// handler serves the page, the list, tickets, and the streams that tickets open.
func handler(gateway *url.URL, key string) http.Handler {
	authorize := func(r *http.Request) {
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	})
	mux.Handle("GET /list", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(gateway)
		r.Out.URL.Path, r.Out.URL.RawQuery = list, "limit=100"
		authorize(r.Out)
	}})
	mux.Handle("GET /ticket", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(gateway)
		r.Out.Method, r.Out.URL.Path = http.MethodPost, "/v1/changeStreams:ticket"
		r.Out.Body, r.Out.ContentLength = io.NopCloser(strings.NewReader(watch)), int64(len(watch))
		r.Out.Header.Set("Content-Type", "application/json")
		authorize(r.Out)
	}})
	// Streams pass as they come. A ticket is the only credential that they need.
	mux.Handle("GET /v1/changeStreams/{ticket}", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(gateway) }, FlushInterval: -1,
	})
	return mux
}
