package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/mooringdb/mooring/service/clientaddr"
)

const (
	// logRefusedEvery is the least time between two lines about refused connections.
	logRefusedEvery = 10 * time.Second
	// proxyPatience is how long a listed proxy may take for the header of a connection. It sends
	// the header as soon as the connection is there.
	proxyPatience = 5 * time.Second
	// mostHeaders is how many connections of listed proxies wait for their headers at once. With
	// more, the kernel holds the rest.
	mostHeaders = 256
)

// proxied listens behind proxies that speak the PROXY protocol. Each connection of a listed
// proxy begins with a header, which names the client and comes before TLS; one without is closed.
// A connection from elsewhere that begins with one is closed, too: its word does not count.
//
// It has an owner's goroutine that accepts, and one for each header that is awaited. Close ends
// all of them and waits.
type proxied struct {
	net.Listener
	proxies *clientaddr.Proxies
	refused *refusedHeaders
	ready   chan accepted
	places  chan struct{}   // one for each header that is awaited
	ctx     context.Context //nolint:containedctx // the life of the listener
	end     context.CancelFunc
	running sync.WaitGroup
}

// accepted holds what Accept returns.
type accepted struct {
	nc  net.Conn
	err error
}

func newProxied(l net.Listener, p *clientaddr.Proxies, log *slog.Logger) *proxied {
	x := &proxied{
		Listener: l, proxies: p, refused: &refusedHeaders{log: log},
		ready: make(chan accepted), places: make(chan struct{}, mostHeaders),
	}
	x.ctx, x.end = context.WithCancel(context.Background())
	x.running.Go(x.run)
	return x
}

// Accept returns the next connection whose client is known.
func (l *proxied) Accept() (net.Conn, error) {
	select {
	case a := <-l.ready:
		return a.nc, a.err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close closes the listener and the connections that Accept has not returned.
func (l *proxied) Close() error {
	l.end()
	err := l.Listener.Close()
	l.running.Wait()
	return err
}

func (l *proxied) run() {
	for l.ctx.Err() == nil {
		nc, err := l.Listener.Accept()
		switch {
		case err != nil:
			l.offer(accepted{err: err})
		case !l.proxies.Lists(addressOf(nc.RemoteAddr())):
			l.offer(accepted{nc: &direct{Conn: nc, of: l}})
		default:
			l.await(nc)
		}
	}
}

// offer has Accept return a result, unless the listener is closed first.
func (l *proxied) offer(a accepted) {
	select {
	case l.ready <- a:
	case <-l.ctx.Done():
		if a.nc != nil {
			_ = a.nc.Close() // nothing was read of it
		}
	}
}

// await reads the header of a connection on a goroutine of its own. It blocks while too many
// others are read.
func (l *proxied) await(nc net.Conn) {
	select {
	case l.places <- struct{}{}:
	case <-l.ctx.Done():
		_ = nc.Close() // nothing was read of it
		return
	}
	l.running.Go(func() {
		defer func() { <-l.places }()
		named, err := l.identify(nc)
		if err != nil {
			l.refuse(nc, err)
			return
		}
		l.offer(accepted{nc: named})
	})
}

// identify reads the header of a connection of a listed proxy.
func (l *proxied) identify(nc net.Conn) (net.Conn, error) {
	defer context.AfterFunc(l.ctx, func() { _ = nc.Close() })()
	_ = nc.SetReadDeadline(time.Now().Add(proxyPatience)) // fails on a closed connection
	b := make([]byte, 0, clientaddr.MaxPROXY)
	for {
		n, err := nc.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		client, length, bad := clientaddr.Decode(b)
		switch {
		case bad != nil:
			return nil, bad
		case length > 0:
			_ = nc.SetReadDeadline(time.Time{})
			return newNamed(nc, client, b[length:]), nil
		case err != nil:
			return nil, err
		}
	}
}

// refuse closes a connection that does not begin as it has to.
func (l *proxied) refuse(nc net.Conn, why error) {
	if l.ctx.Err() == nil {
		l.refused.say(nc, why)
	}
	reset(nc)
}

// named holds a connection whose proxy has named the client.
type named struct {
	net.Conn
	client net.Addr
	rest   []byte // that was read with the header
}

func newNamed(nc net.Conn, client netip.AddrPort, rest []byte) net.Conn {
	c := &named{Conn: nc, client: nc.RemoteAddr()}
	if client.IsValid() {
		c.client = net.TCPAddrFromAddrPort(client)
	}
	if len(rest) > 0 {
		c.rest = append([]byte(nil), rest...) // not the whole buffer
	}
	return c
}

// RemoteAddr returns the client's address, or the proxy's if it speaks for itself.
func (c *named) RemoteAddr() net.Addr { return c.client }

// SetLinger makes Close reset the connection: see reset.
func (c *named) SetLinger(sec int) error { return setLinger(c.Conn, sec) }

// SyscallConn lets Close skip what is unread: see skipUnread.
func (c *named) SyscallConn() (syscall.RawConn, error) { return syscallConn(c.Conn) }

// Read returns what came with the header first. One goroutine reads.
func (c *named) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.rest = nil
	}
	return n, nil
}

// direct holds a connection that no listed proxy has made.
type direct struct {
	net.Conn
	of   *proxied
	read bool // the beginning
}

// errForeign is for the log: the client's connection ends.
var errForeign = errors.New("a header of the PROXY protocol from an address that is not listed")

// Read fails if the connection begins with a header. A header in pieces of some bytes gets further,
// and is neither TLS nor HTTP. One goroutine reads.
func (c *direct) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.read || n == 0 {
		return n, err
	}
	c.read = true
	if clientaddr.BeginsPROXY(b[:n]) {
		c.of.refused.say(c.Conn, errForeign)
		return 0, errForeign
	}
	return n, err
}

// SetLinger makes Close reset the connection: see reset.
func (c *direct) SetLinger(sec int) error { return setLinger(c.Conn, sec) }

// SyscallConn lets Close skip what is unread: see skipUnread.
func (c *direct) SyscallConn() (syscall.RawConn, error) { return syscallConn(c.Conn) }

// syscallConn returns the socket of a connection.
func syscallConn(nc net.Conn) (syscall.RawConn, error) {
	if under, ok := nc.(syscall.Conn); ok {
		return under.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

func setLinger(nc net.Conn, sec int) error {
	if l, ok := nc.(interface{ SetLinger(sec int) error }); ok {
		return l.SetLinger(sec)
	}
	return nil
}

// refusedHeaders logs the connections that are refused, at most one in logRefusedEvery.
type refusedHeaders struct {
	log *slog.Logger

	// mu guards the fields below. Nothing blocks while it is held.
	mu     sync.Mutex
	n      int // since the last line
	logged time.Time
}

func (r *refusedHeaders) say(nc net.Conn, why error) {
	if n := r.count(time.Now()); n > 0 {
		r.log.Warn("connections refused: the PROXY protocol is not as configured",
			"refused", n, "address", addressOf(nc.RemoteAddr()).String(), "err", why)
	}
}

// count counts a connection, and returns the number for a line of the log; 0: there is none now.
func (r *refusedHeaders) count(now time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	if now.Sub(r.logged) < logRefusedEvery {
		return 0
	}
	n, r.n, r.logged = r.n, 0, now
	return n
}
