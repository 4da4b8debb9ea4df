// Package memhttp is an HTTP server for tests that is reached over net.Pipe: no port, no real
// network, and it works in a synctest bubble. It answers for every host; https is real TLS.
package memhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/mooringdb/mooring/internal/certtest"
)

// Server serves HTTP, and is the http.RoundTripper that leads to it.
type Server struct {
	transport http.Transport
	plain     *listener
	secure    *listener

	mu    sync.Mutex
	pipes []net.Conn
}

// New starts a server that answers with handler. It ends with the test. Host is the name that its
// certificate is valid for; without one there is no TLS.
func New(t testing.TB, handler http.Handler, host string) *Server {
	s := &Server{plain: newListener(), secure: newListener()}
	quiet := log.New(io.Discard, "", 0) //nolint:forbidigo // net/http wants one
	server := &http.Server{Handler: handler, ErrorLog: quiet}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(s.plain) })
	if host != "" {
		authority := certtest.Authority(t, certtest.ECDSA)
		certificate := authority.Issue(t, host).TLS(nil)
		s.transport.TLSClientConfig = &tls.Config{
			RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12,
		}
		conf := &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		}
		wg.Go(func() { _ = server.Serve(tls.NewListener(s.secure, conf)) })
	}
	s.transport.DisableKeepAlives = true
	s.transport.DialContext = s.dial
	t.Cleanup(func() {
		_ = s.plain.Close()
		_ = s.secure.Close()
		s.cut()
		_ = server.Close()
		wg.Wait()
	})
	return s
}

// RoundTrip sends a request to the server, whatever its host.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	return s.transport.RoundTrip(r)
}

func (s *Server) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	to := s.plain
	if _, port, _ := net.SplitHostPort(addr); port == "443" {
		to = s.secure
	}
	client, server := net.Pipe()
	s.mu.Lock()
	s.pipes = append(s.pipes, client, server)
	s.mu.Unlock()
	select {
	case to.accepted <- server:
		return client, nil
	case <-to.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// cut ends what is left of connections: over a pipe, both sides of TLS would wait for each other's
// last words.
func (s *Server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, nc := range s.pipes {
		_ = nc.Close()
	}
}

// listener hands over the server's ends of pipes.
type listener struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    func()
}

func newListener() *listener {
	l := &listener{accepted: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.accepted:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.close()
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }
