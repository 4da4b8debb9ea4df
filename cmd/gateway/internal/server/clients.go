package server

import (
	"net"
	"sync"
	"sync/atomic"
)

// clients represents a listener that knows its connections. A server that stops closes its
// listener first, and then waits: an HTTP server some seconds for a connection without a request,
// a gRPC server two minutes for a handshake, even if it is told to stop at once. Therefore
// connections without any data from the client are closed with the listener, and the others by
// hangUpAll.
type clients struct {
	net.Listener

	// mu guards the fields below. Nothing blocks while it is held.
	mu     sync.Mutex
	open   map[*client]struct{}
	closed bool
}

func newClients(l net.Listener) *clients {
	return &clients{Listener: l, open: map[*client]struct{}{}}
}

// Accept returns the next connection.
func (l *clients) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &client{Conn: nc, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = nc.Close() // the server finds it closed
		return c, nil
	}
	l.open[c] = struct{}{}
	return c, nil
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
	spoke atomic.Bool
}

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
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
