package server

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// clients represents a listener that knows its connections. A server that stops closes its
// listener first, and then waits: an HTTP server some seconds for a connection without a request,
// a gRPC server two minutes for a handshake, even if it is told to stop at once. Therefore
// connections without any data from the client are closed with the listener, and the others by
// hangUpAll.
//
// A listener with a limit closes the connections beyond it as soon as they are accepted. Each
// listener accepts at most mostAtOnce connections in paceTime, since thousands at once would take
// the processors from the calls of others; the kernel holds the rest.
type clients struct {
	net.Listener
	limit *limit // shared by the listeners of gRPC and REST; nil: none
	// refuse replaces the answers that net/http writes itself; nil: nothing does.
	refuse Refuse
	pace   pace

	// mu guards the fields below. Nothing blocks while it is held.
	mu     sync.Mutex
	open   map[*client]struct{}
	closed bool
}

const (
	mostAtOnce = 4
	paceTime   = time.Millisecond
)

// pace spreads what happens very often over time. One goroutine uses it.
type pace struct {
	begun time.Time // when the present paceTime began
	n     int       // what has happened since
}

// wait blocks until one more may happen, for at most paceTime.
func (p *pace) wait() {
	past := time.Since(p.begun)
	if past < paceTime && p.n == mostAtOnce {
		<-time.After(paceTime - past)
		past = paceTime
	}
	if past >= paceTime {
		p.begun, p.n = time.Now(), 0
	}
	p.n++
}

// Watched returns a listener for a server of NewGRPC that Start does not serve. Without it, the
// server cannot watch which responses a client takes.
func Watched(l net.Listener) net.Listener { return newClients(l, nil, nil) }

func newClients(l net.Listener, most *limit, refuse Refuse) *clients {
	return &clients{Listener: l, limit: most, refuse: refuse, open: map[*client]struct{}{}}
}

// Accept returns the next connection that the limit admits.
func (l *clients) Accept() (net.Conn, error) {
	for {
		l.pace.wait()
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := network(nc.RemoteAddr())
		if l.limit.enter(from) {
			return l.admit(nc, from), nil
		}
		reset(nc)
	}
}

// reset closes a connection without the handshake that would leave the kernel a socket in
// TIME_WAIT.
func reset(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // if this fails, the close is a common one
	}
	_ = nc.Close() // its error does not matter any more
}

func (l *clients) admit(nc net.Conn, from netip.Addr) net.Conn {
	c := &client{Conn: nc, of: l, from: from}
	c.addr = &clientAddr{nc.RemoteAddr(), c}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
	if l.closed {
		_ = nc.Close() // the server finds it closed, and closes it, too
	}
	return c
}

// Close closes the listener, and the connections without any data from the client.
func (l *clients) Close() error {
	err := l.Listener.Close()
	l.hangUp(func(c *client) bool { return !c.spoke.Load() })
	return err
}

// hangUpAll closes all connections.
func (l *clients) hangUpAll() { l.hangUp(func(*client) bool { return true }) }

func (l *clients) hangUp(which func(*client) bool) {
	l.mu.Lock()
	l.closed = true
	var found []*client
	for c := range l.open {
		if which(c) {
			found = append(found, c)
		}
	}
	l.mu.Unlock()
	for _, c := range found {
		_ = c.Close() // its error does not matter any more
	}
}

// client holds a connection of a client.
type client struct {
	net.Conn

	of    *clients
	from  netip.Addr // see network
	addr  *clientAddr
	spoke atomic.Bool
	// answering says that a handler of REST answers on the connection.
	answering atomic.Bool
	written   atomic.Int64 // bytes
	took      atomic.Int64 // the time of the last write that has ended, in Unix nanoseconds
	closed    atomic.Bool
	// unread is how many calls wait for their requests, and cut how many others have ended because
	// there were too many, since there was none. The mutex of the watchdog guards them.
	unread, cut int
}

// clientAddr holds the address of a client and its connection, since a call of grpc knows only
// addresses.
type clientAddr struct {
	net.Addr
	client *client
}

// AddrPort returns the address, the zero value if it is not one of TCP.
func (a *clientAddr) AddrPort() netip.AddrPort {
	if tcp, ok := a.Addr.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}

// RemoteAddr returns the client's address.
func (c *client) RemoteAddr() net.Addr { return c.addr }

// Write counts the bytes that the connection takes.
func (c *client) Write(b []byte) (int, error) {
	out := b
	if !c.answering.Load() {
		out = c.of.refuse.replace(b)
	}
	n, err := c.Conn.Write(out)
	if n == len(out) {
		n = len(b) // also if they were replaced
	}
	c.written.Add(int64(n))
	c.took.Store(time.Now().UnixNano())
	return n, err
}

// tookAt returns the time at which the connection last took bytes.
func (c *client) tookAt() time.Time { return time.Unix(0, c.took.Load()) }

// Read records that the client has sent data.
func (c *client) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
	}
	return n, err
}

// Close closes the connection and forgets it.
func (c *client) Close() error {
	c.closed.Store(true)
	c.of.mu.Lock()
	_, open := c.of.open[c]
	delete(c.of.open, c)
	c.of.mu.Unlock()
	if open {
		defer c.of.limit.leave(c.from)
	}
	return c.Conn.Close()
}
