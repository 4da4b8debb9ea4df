package changes_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// side is one of the two sides of a proxy.
type side int

const (
	clients side = iota
	gateways
)

// cable stands between clients and the replicas. The connections of either side can be cut.
type cable struct {
	replicas *gatewaytest.Replicas
	address  func(*gatewaytest.Replica) string

	mu   sync.Mutex
	open [2]map[net.Conn]bool
}

func newCable(r *gatewaytest.Replicas, address func(*gatewaytest.Replica) string) *cable {
	return &cable{
		replicas: r, address: address,
		open: [2]map[net.Conn]bool{clients: {}, gateways: {}},
	}
}

// tracked is a connection of a cable.
type tracked struct {
	net.Conn
	cable *cable
	side  side
}

func (c *cable) track(s side, conn net.Conn) net.Conn {
	t := &tracked{conn, c, s}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[s][t] = true
	return t
}

func (t *tracked) Close() error {
	t.cable.mu.Lock()
	delete(t.cable.open[t.side], t)
	t.cable.mu.Unlock()
	return t.Conn.Close()
}

// cut breaks all connections of one side, as a machine does that disappears.
func (c *cable) cut(s side) {
	c.mu.Lock()
	var all []net.Conn
	for conn := range c.open[s] {
		all = append(all, conn)
	}
	c.mu.Unlock()
	for _, conn := range all {
		if t, ok := conn.(*tracked); ok {
			if tcp, ok := t.Conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
		}
		_ = conn.Close()
	}
}

// dial connects to a replica that runs.
func (c *cable) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	for {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", c.address(c.replicas.Any()))
		if err == nil {
			return c.track(gateways, conn), nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// listener tracks the connections of clients.
type listener struct {
	net.Listener
	cable *cable
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.cable.track(clients, conn), nil
}

func (c *cable) listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener{l, c}
}

// serveHTTP serves pages, and the REST API of the replicas under the same origin. It returns its
// URL.
func (c *cable) serveHTTP(t *testing.T, pages http.Handler) string {
	t.Helper()
	transport := &http.Transport{DialContext: c.dial, DisableKeepAlives: true}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "127.0.0.1"})
		},
		Transport: transport, FlushInterval: -1,
		// A gateway that has gone is not an answer of the gateway.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler)
		},
		ErrorLog: quiet,
	}
	l := c.listen(t)
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, ErrorLog: quiet,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/v1/") ||
				strings.HasPrefix(r.URL.Path, "/mooring.v1.") {
				proxy.ServeHTTP(w, r)
				return
			}
			pages.ServeHTTP(w, r)
		}),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return "http://" + l.Addr().String()
}

// serveTCP passes connections on to replicas. It returns its address.
func (c *cable) serveTCP(t *testing.T) string {
	t.Helper()
	l := c.listen(t)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { c.join(t.Context(), near) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.cut(clients)
		c.cut(gateways)
		running.Wait()
	})
	return l.Addr().String()
}

// join copies between a client and a replica until one of them ends.
func (c *cable) join(ctx context.Context, near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := c.dial(ctx, "", "")
	if err != nil {
		return
	}
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_, _ = to.Close(), from.Close()
	}
	both.Go(func() { pass(far, near) })
	both.Go(func() { pass(near, far) })
	both.Wait()
}
