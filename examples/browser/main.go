// Command browser shows a live list: a page with the orders, which changes with the collection. It
// is a web server between the page and the gateway. The page can read the orders and what becomes
// of them, and nothing else: only the server has the gateway's API key.
//
//	MOORING_REST=http://127.0.0.1:8080 MOORING_KEY=… go run ./examples/browser
//
// LISTEN is its own address, 127.0.0.1:8000 unless it is set.
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

// live is what the page shows.
const live = `{"live": {"database": "shop", "collection": "orders",
	"projection": {"customer": 1, "status": 1}}}`

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
		return fmt.Errorf("%w: choose another address with LISTEN=127.0.0.1:8001", err)
	}
	_, _ = fmt.Fprintf(os.Stdout, "the list is at http://%s/\n", l.Addr())
	server := &http.Server{
		Handler: handler(gateway, os.Getenv("MOORING_KEY")), ReadHeaderTimeout: 10 * time.Second,
	}
	return server.Serve(l)
}

// handler serves the page, tickets, and the streams that tickets open.
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
	mux.Handle("GET /ticket", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(gateway)
		r.Out.Method, r.Out.URL.Path = http.MethodPost, "/v1/changeStreams:ticket"
		r.Out.Body, r.Out.ContentLength = io.NopCloser(strings.NewReader(live)), int64(len(live))
		r.Out.Header.Set("Content-Type", "application/json")
		authorize(r.Out)
	}})
	// Streams pass as they come. A ticket is the only credential that they need.
	mux.Handle("GET /v1/changeStreams/{ticket}", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(gateway) }, FlushInterval: -1,
	})
	return mux
}
