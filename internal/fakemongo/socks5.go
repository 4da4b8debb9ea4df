package fakemongo

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// The codes with which a Proxy refuses a request (RFC 1928, section 6).
const (
	ProxyGeneralFailure     = 1
	ProxyNotAllowed         = 2
	ProxyHostUnreachable    = 4
	ProxyConnectionRefused  = 5
	proxyCommandUnsupported = 7
)

// Proxy represents a SOCKS5 proxy that is reached through Dial. It knows its own names: it gives a
// host to Connect as the client wrote it. It is written after RFC 1928 and RFC 1929, independent
// of core/conn.
type Proxy struct {
	// Username and Password are what a client needs; without a Username it needs none and is asked
	// for none.
	Username, Password string
	// Connect opens the connection to a server. Nil in its place makes the proxy answer with code.
	Connect func(addr string) (nc net.Conn, code byte)

	wg sync.WaitGroup

	mu       sync.Mutex
	requests []ProxyRequest
	conns    []net.Conn
}

// ProxyRequest holds one connection that a client asked for.
type ProxyRequest struct {
	Methods  []byte // that it offered
	Username string // if it was asked
	Kind     byte   // of the address: 1 is IPv4, 3 a name, 4 IPv6
	Address  string // host:port
}

// NewProxy makes a proxy that asks for nothing and connects to the servers by their addresses. It
// ends with the test.
func NewProxy(t testing.TB, servers map[string]*Server) *Proxy {
	p := &Proxy{Connect: func(addr string) (net.Conn, byte) {
		s, ok := servers[addr]
		if !ok {
			return nil, ProxyHostUnreachable
		}
		nc, err := s.Dial(context.Background(), "tcp", addr)
		if err != nil {
			return nil, ProxyConnectionRefused
		}
		return nc, 0
	}}
	t.Cleanup(p.Close)
	return p
}

// Dial connects to the proxy, whatever the address.
func (p *Proxy) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, server := net.Pipe()
	p.track(server)
	p.wg.Go(func() {
		defer func() { _ = server.Close() }()
		if nc, err := p.accept(server); err == nil {
			p.track(nc)
			p.relay(server, nc)
		}
	})
	return client, nil
}

// Requests returns the requests so far.
func (p *Proxy) Requests() []ProxyRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Close cuts everything and waits for the proxy's goroutines. The test's end calls it.
func (p *Proxy) Close() {
	p.mu.Lock()
	conns := p.conns
	p.mu.Unlock()
	for _, nc := range conns {
		_ = nc.Close()
	}
	p.wg.Wait()
}

func (p *Proxy) track(nc net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, nc)
}

func (p *Proxy) relay(a, b net.Conn) {
	p.wg.Go(func() {
		_, _ = io.Copy(a, b)
		_ = a.Close()
	})
	_, _ = io.Copy(b, a)
	_ = b.Close()
}

var errProxyRefused = errors.New("refused")

// accept does the proxy's half of the handshake.
func (p *Proxy) accept(nc net.Conn) (net.Conn, error) {
	var req ProxyRequest
	defer func() {
		p.mu.Lock()
		p.requests = append(p.requests, req)
		p.mu.Unlock()
	}()
	head, err := take(nc, 2) // version, number of methods
	if err != nil {
		return nil, err
	}
	if req.Methods, err = take(nc, int(head[1])); err != nil {
		return nil, err
	}
	if err := p.authenticate(nc, &req); err != nil {
		return nil, err
	}
	if head, err = take(nc, 4); err != nil { // version, command, reserved, kind of address
		return nil, err
	}
	req.Kind = head[3]
	if req.Address, err = takeAddress(nc, head[3]); err != nil {
		return nil, err
	}
	if head[1] != 1 {
		return nil, answer(nc, proxyCommandUnsupported)
	}
	server, code := p.Connect(req.Address)
	if server == nil {
		return nil, answer(nc, code)
	}
	_, err = nc.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	return server, err
}

func (p *Proxy) authenticate(nc net.Conn, req *ProxyRequest) error {
	method := byte(0)
	if p.Username != "" {
		method = 2
	}
	if !slices.Contains(req.Methods, method) {
		_, _ = nc.Write([]byte{5, 0xff})
		return errProxyRefused
	}
	if _, err := nc.Write([]byte{5, method}); err != nil || method == 0 {
		return err
	}
	if _, err := take(nc, 1); err != nil {
		return err
	}
	var texts [2]string
	for i := range texts {
		size, err := take(nc, 1)
		if err != nil {
			return err
		}
		text, err := take(nc, int(size[0]))
		if err != nil {
			return err
		}
		texts[i] = string(text)
	}
	req.Username = texts[0]
	if texts != [2]string{p.Username, p.Password} {
		_, _ = nc.Write([]byte{1, 1})
		return errProxyRefused
	}
	_, err := nc.Write([]byte{1, 0})
	return err
}

func answer(nc net.Conn, code byte) error {
	_, _ = nc.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
	return errProxyRefused
}

func takeAddress(nc net.Conn, kind byte) (string, error) {
	size := map[byte]int{1: net.IPv4len, 4: net.IPv6len}[kind]
	if kind == 3 {
		b, err := take(nc, 1)
		if err != nil {
			return "", err
		}
		size = int(b[0])
	}
	b, err := take(nc, size+2)
	if err != nil {
		return "", err
	}
	host := string(b[:size])
	if kind != 3 {
		host = net.IP(b[:size]).String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(b[size])<<8|int(b[size+1]))), nil
}

func take(nc net.Conn, n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(nc, b)
	return b, err
}
