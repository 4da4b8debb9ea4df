package conn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
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

const proxyAddress = "proxy.test:1080"

func TestProxy(t *testing.T) {
	tests := []struct {
		name           string
		needs, has     [2]string
		server         address.Address
		methods        string
		kind           byte
		username, fail string
	}{
		{"no credentials", [2]string{}, [2]string{}, "Db.example:1", "\x00", 3, "", ""},
		{"not asked for", [2]string{}, [2]string{"u", "p"}, "db.example:1", "\x00\x02", 3, "", ""},
		{"asked for", [2]string{"u", "p"}, [2]string{"u", "p"}, "db.example:1", "\x00\x02", 3, "u", ""},
		{"wrong", [2]string{"u", "p"}, [2]string{"u", "hunter2"}, "db.example:1", "\x00\x02", 0, "u", "username/password authentication failed"},
		{"missing", [2]string{"u", "p"}, [2]string{}, "db.example:1", "\x00", 0, "", "no acceptable authentication methods"},
		{"IPv4", [2]string{}, [2]string{}, "192.0.2.1:1", "\x00", 1, "", ""},
		{"IPv6", [2]string{}, [2]string{}, "[2001:db8::1]:1", "\x00", 4, "", ""},
		{"unknown server", [2]string{}, [2]string{}, "nowhere:1", "\x00", 3, "", "host unreachable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakemongo.NewServer(t, nil)
				p := fakemongo.NewProxy(t, map[string]*fakemongo.Server{
					"Db.example:1": s, "db.example:1": s, "192.0.2.1:1": s, "[2001:db8::1]:1": s,
				})
				p.Username, p.Password = tt.needs[0], tt.needs[1]
				c, err := conn.Dial(t.Context(), tt.server, conn.Config{
					Dialer: onlyTo(t, p.Dial), Proxy: &conn.Proxy{
						Address: proxyAddress, Username: tt.has[0], Password: tt.has[1],
					},
				})
				synctest.Wait()
				reqs := p.Requests()
				if len(reqs) != 1 || string(reqs[0].Methods) != tt.methods ||
					reqs[0].Kind != tt.kind || reqs[0].Username != tt.username {
					t.Errorf("the proxy was asked %+v", reqs)
				}
				if tt.fail != "" {
					checkProxyError(t, err, true, tt.fail)
					return
				}
				if err != nil {
					t.Fatalf("Dial() = %v", err)
				}
				defer func() { _ = c.Close() }()
				if reqs[0].Address != string(tt.server) || c.Address() != tt.server {
					t.Errorf("the proxy was asked for %s", reqs[0].Address)
				}
				if _, err := c.RoundTrip(t.Context(), message("ping", 0)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// onlyTo returns a dialer that reaches only the proxy.
func onlyTo(t *testing.T,
	dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(
	ctx context.Context, network, addr string,
) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if network != "tcp" || addr != proxyAddress {
			t.Errorf("dialed %s %s", network, addr)
		}
		return dial(ctx, network, addr)
	}
}

// checkProxyError requires a network error that is the proxy's, says what, and names no address
// or secret of the proxy.
func checkProxyError(t *testing.T, err error, reached bool, what string) {
	t.Helper()
	netErr, isNet := errors.AsType[*mongoerr.NetworkError](err)
	proxyErr, isProxy := errors.AsType[*conn.ProxyError](err)
	if !isNet || !isProxy || netErr.Sent || proxyErr.Reached != reached ||
		!strings.Contains(err.Error(), what) {
		t.Errorf("Dial() = %v (%T), want a network error of the proxy with %q", err, err, what)
	}
	for _, no := range []string{"hunter2", "proxy.test", "1080"} {
		if err != nil && strings.Contains(err.Error(), no) {
			t.Errorf("Dial() = %v, which has %q in it", err, no)
		}
	}
}

func TestProxyCannotBeReached(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"refused", &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{Port: 1080}, Err: errors.New("connection refused")}, "proxy cannot be reached: connection refused"},
		{"unknown", &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "proxy.test"}}, "proxy cannot be reached: no such host"},
	}
	for _, tt := range tests {
		_, err := conn.Dial(t.Context(), "db:1", conn.Config{
			Proxy:  &conn.Proxy{Address: proxyAddress},
			Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, tt.err },
		})
		checkProxyError(t, err, false, tt.want)
	}
}

// TestProxyCloses checks that a proxy that closes is no end of a result.
func TestProxyCloses(t *testing.T) {
	client, server := net.Pipe()
	go func() {
		_, _ = server.Read(make([]byte, 100))
		_ = server.Close()
	}()
	_, err := conn.Dial(t.Context(), "db:1", conn.Config{
		Proxy:  &conn.Proxy{Address: proxyAddress},
		Dialer: func(context.Context, string, string) (net.Conn, error) { return client, nil },
	})
	checkProxyError(t, err, true, "unexpected EOF")
	if errors.Is(err, io.EOF) {
		t.Errorf("Dial() = %v, which is an io.EOF", err)
	}
}

// If a proxy sends nothing, the timeout or the caller's context ends the dial.
func TestProxyHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer func() { _ = server.Close() }()
		go func() { _, _ = server.Read(make([]byte, 100)) }()
		cfg := conn.Config{
			Proxy: &conn.Proxy{Address: proxyAddress}, ConnectTimeout: 3 * time.Second,
			Dialer: func(context.Context, string, string) (net.Conn, error) { return client, nil },
		}
		begin := time.Now()
		_, err := conn.Dial(t.Context(), "db:1", cfg)
		checkProxyError(t, err, true, "connectTimeoutMS")
		if !mongoerr.IsTimeout(err) || time.Since(begin) != 3*time.Second {
			t.Errorf("Dial() = %v after %v", err, time.Since(begin))
		}
		if _, err := client.Write(nil); err == nil {
			t.Error("the connection to the proxy is still open")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer func() { _ = server.Close() }()
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		time.AfterFunc(time.Second, func() { cancel(gone) })
		_, err := conn.Dial(ctx, "db:1", conn.Config{
			Proxy:  &conn.Proxy{Address: proxyAddress},
			Dialer: func(context.Context, string, string) (net.Conn, error) { return client, nil },
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, gone) {
			t.Errorf("Dial() = %v, want what cancelled it", err)
		}
	})
}

// TLS is with the server: the client asks for the server's name and verifies it, as without a
// proxy.
func TestProxyTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := certtest.Authority(t, certtest.ECDSA)
		s := fakemongo.NewServer(t, nil)
		var asked string
		conf := presents(ca.Issue(t, "db.example"))
		conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			asked = hello.ServerName
			return nil, nil
		}
		s.UseTLS(conf)
		p := fakemongo.NewProxy(t,
			map[string]*fakemongo.Server{"db.example:1": s, "other.example:1": s})
		cfg := useTLS(t, connstring.TLS{CAFile: caFile(t, ca)})
		cfg.Dialer, cfg.Proxy = p.Dial, &conn.Proxy{Address: proxyAddress}
		c, err := conn.Dial(t.Context(), "db.example:1", cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if asked != "db.example" {
			t.Errorf("SNI is %q", asked)
		}
		_, err = conn.Dial(t.Context(), "other.example:1", cfg)
		if _, ok := errors.AsType[*conn.ProxyError](err); err == nil || ok {
			t.Errorf("Dial() of a server with another name = %v, want an error that is not "+
				"the proxy's", err)
		}
	})
}
