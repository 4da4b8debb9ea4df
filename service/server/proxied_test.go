package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/service/clientaddr"
	"github.com/mooringdb/mooring/service/server"
)

// addressed is a connection whose other end is at an address.
type addressed struct {
	net.Conn
	from net.Addr
}

func (c addressed) RemoteAddr() net.Addr { return c.from }

const (
	header1 = "PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n"
	header2 = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\x0a\x00\x00\x01\x12\x67\x01\xbb"
	local2  = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
)

func proxies(header clientaddr.Header, networks ...string) *clientaddr.Proxies {
	p := &clientaddr.Proxies{Header: header}
	for _, n := range networks {
		p.Networks = append(p.Networks, netip.MustParsePrefix(n))
	}
	return p
}

// proxiedRig is a listener behind the proxies 10.0.0.0/8, in a bubble.
type proxiedRig struct {
	net.Listener
	conns chan net.Conn
	log   *safeLog
	close func()
}

func newProxiedRig(t *testing.T) *proxiedRig {
	p := pipeListener{make(chan net.Conn), make(chan struct{})}
	r := &proxiedRig{conns: p.conns, log: &safeLog{}}
	r.Listener = server.Proxied(p, proxies(clientaddr.NoHeader, "10.0.0.0/8"),
		slog.New(slog.NewTextHandler(r.log, nil)))
	r.close = sync.OnceFunc(func() { _ = r.Close() })
	t.Cleanup(r.close)
	return r
}

// connect makes a connection from an address and sends pieces of text, with a pause after each.
func (r *proxiedRig) connect(
	t *testing.T, from string, pause time.Duration, pieces ...string,
) net.Conn {
	near, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })
	r.conns <- addressed{near, &net.TCPAddr{IP: net.ParseIP(from), Port: 99}}
	go func() {
		for _, piece := range pieces {
			_, _ = io.WriteString(far, piece)
			select {
			case <-time.After(pause):
			case <-t.Context().Done():
				return
			}
		}
	}()
	return far
}

// TestProxied checks which connections are accepted, at which address, and what is read of them.
func TestProxied(t *testing.T) {
	for _, row := range []struct {
		name, from string
		pause      time.Duration
		pieces     []string
		want       string // the address and what is read; closed: the connection is closed
		log        string // a part of the line
	}{
		{"version 1", "10.0.0.1", 0, []string{header1 + "hello"}, "192.0.2.7:4711 hello", ""},
		{"version 2", "10.0.0.1", 0, []string{header2 + "hello"}, "192.0.2.7:4711 hello", ""},
		{"the header alone", "10.0.0.1", time.Minute, []string{header2, "hello"}, "192.0.2.7:4711 hello", ""},
		{"in pieces", "10.0.0.1", time.Second, []string{header2[:1], header2[1:15], header2[15:] + "hel", "lo"}, "192.0.2.7:4711 hello", ""},
		{"the proxy's own", "10.0.0.1", 0, []string{local2 + "hello"}, "10.0.0.1:99 hello", ""},
		{"a stranger without a header", "203.0.113.5", 0, []string{"hello"}, "203.0.113.5:99 hello", ""},
		{"a stranger with a later header", "203.0.113.5", 0, []string{"hello", header1}, "203.0.113.5:99 hello", ""},
		{"a stranger with version 1", "203.0.113.5", 0, []string{header1 + "hello"}, "203.0.113.5:99 ", "not listed"},
		{"a stranger with version 2", "203.0.113.5", 0, []string{header2 + "hello"}, "203.0.113.5:99 ", "not listed"},
		{"a proxy without a header", "10.0.0.1", 0, []string{"GET / HTTP/1.1\r\n"}, "closed", "does not begin with a header"},
		{"a proxy that sends TLS", "10.0.0.1", 0, []string{"\x16\x03\x01"}, "closed", "does not begin with a header"},
		{"a malformed header", "10.0.0.1", 0, []string{"PROXY TCP4 a b c d\r\n"}, "closed", "malformed"},
		{"nothing", "10.0.0.1", 0, nil, "closed", "timeout"},
		{"a slow header", "10.0.0.1", 2 * time.Second, []string{header1[:3], header1[3:7], header1[7:9], header1[9:]}, "closed", "timeout"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newProxiedRig(t)
			far := r.connect(t, row.from, row.pause, row.pieces...)
			got := make(chan string, 1)
			go func() { got <- acceptAndRead(r) }()
			if row.want != "closed" {
				if text := <-got; text != row.want {
					t.Errorf("%s: %q, want %q", row.name, text, row.want)
				}
			} else {
				begun := time.Now()
				if _, err := io.Copy(io.Discard, far); err != nil {
					t.Errorf("%s: %v", row.name, err)
				}
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("%s: it is closed after %s", row.name, took)
				}
			}
			synctest.Wait()
			if text := r.log.String(); row.log == "" && text != "" ||
				!strings.Contains(text, row.log) {
				t.Errorf("%s: log %q, want %q", row.name, text, row.log)
			}
		})
	}
}

// acceptAndRead returns the address of the next connection, and the first bytes of it, at least
// five if there are as many.
func acceptAndRead(l net.Listener) string {
	c, err := l.Accept()
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	b := make([]byte, 64)
	n, _ := io.ReadAtLeast(c, b, 5)
	return c.RemoteAddr().String() + " " + string(b[:n])
}

// TestProxiedWaits checks that connections whose headers do not come keep no other connection from
// being accepted, that at most so many are awaited, and that Close ends them.
func TestProxiedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newProxiedRig(t)
		for range server.MostHeaders {
			r.connect(t, "10.0.0.1", 0)
		}
		r.connect(t, "203.0.113.5", 0, "hello")
		begun := time.Now()
		if got := acceptAndRead(r); got != "203.0.113.5:99 hello" || time.Since(begun) != 0 {
			t.Errorf("a stranger: %q after %s", got, time.Since(begun))
		}
		r.connect(t, "10.0.0.1", 0, header1+"hello")
		if got := acceptAndRead(r); got != "192.0.2.7:4711 hello" ||
			time.Since(begun) != 5*time.Second {
			t.Errorf("a client beyond the bound: %q after %s, want 5s", got, time.Since(begun))
		}
		synctest.Wait()
		if n := strings.Count(r.log.String(), "connections refused"); n != 1 {
			t.Errorf("%d lines about %d connections", n, server.MostHeaders)
		}

		waiting, named := r.connect(t, "10.0.0.1", 0), r.connect(t, "10.0.0.1", 0, header1)
		synctest.Wait()
		r.close()
		for _, c := range []net.Conn{waiting, named} {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("a connection that was not accepted is open after Close")
			}
		}
		if _, err := r.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close = %v", err)
		}
	})
}

// whoRig is a server that answers with the address of the client.
func whoRig(t *testing.T, cfg server.Config) *server.Server {
	t.Helper()
	cfg.GRPCAddress, cfg.RESTAddress = "127.0.0.1:0", "127.0.0.1:0"
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	done := make(chan struct{})
	s := server.New(cfg, server.Parts{
		GRPC: func() *grpc.Server {
			g, api := server.NewGRPC(server.GRPCConfig{
				TLS: cfg.TLS, MaxRequestSize: 1 << 20, Stopping: done, Proxies: cfg.Proxies,
				Unary: func(
					ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler,
				) (any, error) {
					return h(ctx, req)
				},
			})
			api.RegisterService(&grpc.ServiceDesc{
				ServiceName: "test.Who", HandlerType: (*any)(nil),
				Methods: []grpc.MethodDesc{{MethodName: "Am", Handler: who}},
			}, nil)
			return g
		},
		REST: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.RemoteAddr)
		}),
		Gate: idle{}, Unready: func() { close(done) }, Failed: func(err error) { t.Error(err) },
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	return s
}

type idle struct{}

func (idle) Drain(context.Context) error { return nil }

func who(
	_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
) (any, error) {
	if err := decode(new(emptypb.Empty)); err != nil {
		return nil, err
	}
	p, _ := peer.FromContext(ctx)
	return wrapperspb.String(p.Addr.String()), nil
}

// ask returns the address that the server sees in a call whose connection begins with a text, or
// refused.
func ask(
	t *testing.T, s *server.Server, protocol string, secure *tls.Config, begin string,
	headers ...string,
) string {
	t.Helper()
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			_, err = io.WriteString(c, begin)
		}
		return c, err
	}
	host := "refused"
	if protocol == "rest" {
		tr := &http.Transport{DialContext: func(
			ctx context.Context, _, a string,
		) (net.Conn, error) {
			return dial(ctx, a)
		}, TLSClientConfig: secure}
		defer tr.CloseIdleConnections()
		scheme := "http"
		if secure != nil {
			scheme = "https"
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://"+s.Addresses().REST, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		if resp, err := tr.RoundTrip(r); err == nil && resp.StatusCode == http.StatusOK {
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			host, _, _ = net.SplitHostPort(string(text))
		} else if err == nil {
			_ = resp.Body.Close()
		}
		return host
	}
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = credentials.NewTLS(secure)
	}
	cc, err := grpc.NewClient("passthrough:///"+s.Addresses().GRPC, grpc.WithTransportCredentials(creds), grpc.WithContextDialer(dial))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	answer := new(wrapperspb.StringValue)
	ctx := metadata.AppendToOutgoingContext(t.Context(), headers...)
	if err := cc.Invoke(ctx, "/test.Who/Am", new(emptypb.Empty), answer); err == nil {
		host, _, _ = net.SplitHostPort(answer.GetValue())
	}
	return host
}

// TestClientsBehindProxies checks which address a call has over each protocol, in plain text and
// over TLS, for what a proxy at 127.0.0.1 may say.
func TestClientsBehindProxies(t *testing.T) {
	pair := certtest.Authority(t, certtest.ECDSA).Issue(t, "localhost").TLS(nil)
	x, f, none := clientaddr.XForwardedFor, clientaddr.Forwarded, clientaddr.NoHeader
	for _, row := range []struct {
		name     string
		listed   string
		protocol bool
		header   clientaddr.Header
		begin    string
		headers  []string
		want     string
	}{
		{"no proxy", "10.0.0.0/8", true, x, "", []string{"X-Forwarded-For", "192.0.2.7"}, "127.0.0.1"},
		{"version 1", "127.0.0.0/8", true, none, header1, nil, "192.0.2.7"},
		{"version 2", "127.0.0.0/8", true, none, header2, []string{"X-Forwarded-For", "1.1.1.1"}, "192.0.2.7"},
		{"the proxy's own", "127.0.0.0/8", true, none, local2, nil, "127.0.0.1"},
		{"no header of the protocol", "127.0.0.0/8", true, none, "", nil, "refused"},
		{"not listed, with the protocol", "10.0.0.0/8", true, none, header1, nil, "refused"},
		{"not listed, with version 2", "10.0.0.0/8", true, none, header2, nil, "refused"},
		{"the protocol is not expected", "127.0.0.0/8", false, x, header1, nil, "refused"},
		{"version 2 is not expected", "127.0.0.0/8", false, x, header2, nil, "refused"},
		{"X-Forwarded-For", "127.0.0.0/8", false, x, "", []string{"X-Forwarded-For", "1.1.1.1", "X-Forwarded-For", "2.2.2.2, 192.0.2.7"}, "192.0.2.7"},
		{"Forwarded", "127.0.0.0/8", false, f, "", []string{"Forwarded", `for="[2001:db8::7]:1"`, "X-Forwarded-For", "1.1.1.1"}, "2001:db8::7"},
		{"no word", "127.0.0.0/8", false, f, "", nil, "127.0.0.1"},
		{"both: a proxy behind another", "127.0.0.0/8", true, x, strings.Replace(header1, "192.0.2.7", "127.9.9.9", 1), []string{"X-Forwarded-For", "192.0.2.7"}, "192.0.2.7"},
		{"both: a client behind the first", "127.0.0.0/8", true, x, header1, []string{"X-Forwarded-For", "1.1.1.1"}, "192.0.2.7"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, secure := range []bool{false, true} {
				cfg := server.Config{
					Proxies: proxies(row.header, row.listed), GRPCProxied: row.protocol,
					RESTProxied: row.protocol,
				}
				var trust *tls.Config
				if secure {
					cfg.TLS = &tls.Config{
						MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
					}
					trust = &tls.Config{InsecureSkipVerify: true}
				}
				s := whoRig(t, cfg)
				for _, protocol := range []string{"grpc", "rest"} {
					if got := ask(t, s, protocol, trust, row.begin,
						row.headers...); got != row.want {
						t.Errorf("%s, TLS %t: the client is at %s, want %s", protocol, secure, got,
							row.want)
					}
				}
			}
		})
	}
}

// TestProxiesAndConnectionLimits checks that the connections of a client behind a proxy of the
// PROXY protocol count for the client, and those of a proxy with headers only in all.
func TestProxiesAndConnectionLimits(t *testing.T) {
	hold := func(s *server.Server, begin string) {
		c, err := net.Dial("tcp", s.Addresses().GRPC)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err = io.WriteString(c, begin); err == nil {
			_, err = io.ReadFull(c, make([]byte, 9)) // the settings of HTTP/2: it is accepted
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := whoRig(t, server.Config{
		MaxPerAddress: 1, Proxies: proxies(clientaddr.NoHeader, "127.0.0.0/8"), GRPCProxied: true,
		RESTProxied: true,
	})
	hold(s, header1)
	if got := ask(t, s, "rest", nil, header2); got != "refused" {
		t.Errorf("a second connection of a client behind the proxy is served, as %s", got)
	}
	if other := strings.Replace(header1, "192.0.2.7", "192.0.2.8", 1); ask(t, s, "rest", nil,
		other) != "192.0.2.8" {
		t.Error("the connection of another client behind the proxy is refused")
	}
	s = whoRig(t, server.Config{
		MaxConnections: 3, MaxPerAddress: 1,
		Proxies: proxies(clientaddr.XForwardedFor, "127.0.0.0/8"),
	})
	for range 3 {
		hold(s, "")
	}
	if got := ask(t, s, "rest", nil, ""); got != "refused" {
		t.Errorf("a connection beyond those in all: %s", got)
	}
}
