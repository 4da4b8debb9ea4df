package conn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// TestOverloadLabels checks which errors of a connection that is being made have the labels of an
// overloaded server (CM-101).
func TestOverloadLabels(t *testing.T) {
	ca, foreign := certtest.Authority(t, certtest.ECDSA),
		certtest.ForeignAuthority(t, certtest.ECDSA)
	trusting := useTLS(t, connstring.TLS{CAFile: caFile(t, ca)}).TLS
	unnamed := useTLS(t, connstring.TLS{CAFile: caFile(t, ca), AllowInvalidHostnames: true}).TLS
	right, wrong, untrusted := presents(ca.Issue(t, "db")), presents(ca.Issue(t, "other")),
		presents(foreign.Issue(t, "db"))
	demanding := right.Clone()
	demanding.ClientAuth, demanding.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	demanding.MaxVersion = tls.VersionTLS12
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	tests := []struct {
		name     string
		dial     dialer // nil: the server's own
		hello    fakemongo.Handler
		server   *tls.Config // nil: it speaks plain
		client   func() *tls.Config
		proxied  bool
		overload bool
	}{
		{name: "refused", dial: fails(refused), overload: true},
		{name: "no answer to the dial", dial: hangs(nil), overload: true},
		{name: "unknown host", dial: fails(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}})},
		{name: "no answer of DNS", dial: hangs(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "i/o timeout", IsTimeout: true}})},
		{name: "not an address", dial: fails(&net.OpError{Op: "dial", Err: &net.AddrError{Err: "missing port"}})},
		{name: "canceled", dial: cancels},
		{name: "proxy refused", dial: fails(refused), proxied: true},
		{name: "no answer of the proxy", dial: hangs(nil), proxied: true},

		{name: "closed in the TLS handshake", dial: closes, client: trusting, overload: true},
		{name: "no answer in the TLS handshake", dial: silent, client: trusting, overload: true},
		{name: "not TLS", dial: says("HTTP/1.1 400 Bad Request\r\n\r\n"), client: trusting},
		{name: "untrusted certificate", server: untrusted, client: trusting},
		{name: "untrusted certificate of any name", server: untrusted, client: unnamed},
		{name: "certificate of another host", server: wrong, client: trusting},
		{name: "client certificate wanted", server: demanding, client: trusting},

		{name: "closed in hello", hello: fakemongo.Always(fakemongo.Drop()), overload: true},
		{name: "closed in hello over TLS", hello: fakemongo.Always(fakemongo.Drop()), server: right, client: trusting, overload: true},
		{name: "closed inside the reply", hello: fakemongo.Always(fakemongo.DropInside(answer(1), 20)), overload: true},
		{name: "no answer to hello", hello: fakemongo.Always(fakemongo.Hang()), overload: true},
		{name: "another's reply", hello: fakemongo.Always(fakemongo.ToAnother(answer(1), 12345))},
		{name: "hello refused", hello: fakemongo.Always(fakemongo.Error(91, "ShutdownInProgress", "bye"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in, newServer := synctest.Test, fakemongo.NewServer
			// Both ends of a TLS handshake may write at once, which blocks them on a net.Pipe.
			if tt.server != nil {
				in, newServer = func(t *testing.T, f func(*testing.T)) {
					f(t)
				}, fakemongo.NewTCPServer
			}
			in(t, func(t *testing.T) {
				s := newServer(t, nil)
				s.Handle("hello", tt.hello)
				s.UseTLS(tt.server)
				cfg := conn.Config{Dialer: tt.dial, TLS: tt.client, ConnectTimeout: time.Second}
				switch {
				case tt.server != nil:
					cfg.Dialer, cfg.ConnectTimeout = to(s.Address()), 0
				case tt.dial == nil:
					cfg.Dialer = s.Dial
				}
				if tt.proxied {
					cfg.Proxy = &conn.Proxy{Address: proxyAddress}
				}
				c, err := conn.Dial(t.Context(), "db:27017", cfg)
				if err == nil {
					_ = c.Close()
					t.Fatal("Dial() succeeded")
				}
				_, wrapped := errors.AsType[*mongoerr.OverloadError](err)
				var want []string
				if tt.overload {
					want = []string{"SystemOverloadedError", "RetryableError"}
				}
				if got := mongoerr.Labels(err); !slices.Equal(got, want) || wrapped != tt.overload {
					t.Errorf("Dial() = %v (%T) with the labels %v, want %v", err, err, got, want)
				}
			})
		})
	}
}

// to returns a dialer that leads to addr.
func to(addr address.Address) dialer {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", string(addr))
	}
}

// TestOverloadLabelsEndWithTheHandshake checks that an error of an established connection has
// none of the labels.
func TestOverloadLabelsEndWithTheHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakemongo.NewServer(t, fakemongo.Handlers{"ping": fakemongo.Always(fakemongo.Drop())})
		c := dial(t, s, conn.Config{})
		if _, err := c.RoundTrip(t.Context(), message("ping", 0)); !mongoerr.IsNetwork(err) ||
			len(mongoerr.Labels(err)) > 0 {
			t.Errorf("RoundTrip() = %v with the labels %v, want a network error without", err,
				mongoerr.Labels(err))
		}
	})
}

func fails(err error) dialer {
	return func(context.Context, string, string) (net.Conn, error) { return nil, err }
}

// hangs fails when the context ends: with err, or, if that is nil, as net.Dialer does in
// connect(2).
func hangs(err error) dialer {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		if err == nil {
			err = &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
		}
		return nil, err
	}
}

func cancels(context.Context, string, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.Canceled}
}

// peer is a dialer that leads to f.
func peer(f func(net.Conn)) dialer {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer func() { _ = server.Close() }()
			f(server)
		}()
		context.AfterFunc(ctx, func() { _ = server.Close() })
		return client, nil
	}
}

func closes(ctx context.Context, network, addr string) (net.Conn, error) {
	return peer(func(nc net.Conn) { _, _ = nc.Read(make([]byte, 4096)) })(ctx, network, addr)
}

func silent(ctx context.Context, network, addr string) (net.Conn, error) {
	return peer(func(nc net.Conn) {
		for {
			if _, err := nc.Read(make([]byte, 4096)); err != nil {
				return
			}
		}
	})(ctx, network, addr)
}

func says(text string) dialer {
	return peer(func(nc net.Conn) {
		_, _ = nc.Read(make([]byte, 4096))
		_, _ = nc.Write([]byte(text))
	})
}
