package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/net/proxy"

	"github.com/mooringdb/mooring/core/address"
)

// Proxy describes a SOCKS5 proxy (RFC 1928). The proxy gets the server's name unresolved.
type Proxy struct {
	Address string // host:port
	// Username and Password are offered to the proxy if Username is not empty. The proxy may
	// require neither.
	Username, Password string
}

// String returns the address.
func (p Proxy) String() string { return "conn.Proxy(" + p.Address + ")" }

// Format keeps the secrets out of every verb.
func (p Proxy) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.String()) }

// MarshalText keeps the secrets out of JSON and logs.
func (p Proxy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// ProxyError reports a connection that failed at the proxy: the server was not reached. Its text
// leaves out the proxy's address, which must not appear in events about a server (SOCKS5 Support,
// "Events").
type ProxyError struct {
	// Reached says that the connection to the proxy succeeded, and that the proxy refused or
	// could not reach the server.
	Reached bool
	Err     error
}

func (e *ProxyError) Error() string {
	text := e.Err.Error()
	if dns, ok := errors.AsType[*net.DNSError](e.Err); ok {
		text = dns.Err
	}
	if !e.Reached {
		return "proxy cannot be reached: " + text
	}
	return "proxy did not connect: " + strings.TrimPrefix(text, "unknown error ")
}

func (e *ProxyError) Unwrap() error { return e.Err }

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dial connects to addr through the proxy. The deadline and the cancellation of ctx apply
// throughout.
func (p *Proxy) dial(ctx context.Context, addr address.Address, dial dialFunc) (net.Conn, error) {
	var auth *proxy.Auth
	if p.Username != "" {
		auth = &proxy.Auth{User: p.Username, Password: p.Password}
	}
	way := &wayToProxy{dial: dial}
	d, err := proxy.SOCKS5("tcp", p.Address, auth, way)
	if err != nil {
		return nil, err
	}
	if _, err := d.(proxy.ContextDialer).DialContext(ctx, "tcp", string(addr)); err != nil {
		awaitDeadline(ctx, err)
		return nil, &ProxyError{Reached: way.conn != nil, Err: withoutAddress(err)}
	}
	return way.conn, nil // the dialer's own connection would hide the socket
}

// awaitDeadline waits for the end of ctx if err is a timeout and the deadline of ctx is over: the
// same deadline on the socket may take effect first.
func awaitDeadline(ctx context.Context, err error) {
	if e, ok := errors.AsType[net.Error](err); !ok || !e.Timeout() {
		return
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
}

// withoutAddress returns the inner error of an error that names an address.
func withoutAddress(err error) error {
	for op, ok := errors.AsType[*net.OpError](err); ok; op, ok = errors.AsType[*net.OpError](err) {
		err = op.Err
	}
	return err
}

// wayToProxy keeps the connection to the proxy.
type wayToProxy struct {
	dial dialFunc
	conn net.Conn
}

var (
	_ proxy.Dialer        = (*wayToProxy)(nil)
	_ proxy.ContextDialer = (*wayToProxy)(nil)
)

func (w *wayToProxy) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := w.dial(ctx, network, addr)
	w.conn = nc
	return nc, err
}

func (w *wayToProxy) Dial(network, addr string) (net.Conn, error) {
	return w.DialContext(context.Background(), network, addr)
}
