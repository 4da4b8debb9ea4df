package server

import (
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/service/clientaddr"
	"github.com/mooringdb/mooring/service/flood"
)

// clients represents a listener that knows its connections. A server that stops closes its
// listener first, and then waits: an HTTP server some seconds for a connection without a request,
// a gRPC server two minutes for a handshake, even if it is told to stop at once. Therefore
// connections without any data from the client are closed with the listener, and the others by
// hangUpAll.
//
// A listener with a guard closes the connections beyond its bounds as soon as they are accepted.
// Thousands at once would take the processors from the calls of others. So each listener accepts at
// most mostAccepted connections in paceTime, and the kernel holds the rest; and it serves
// mostServed of these, in turns between addresses.
//
// It has a goroutine that accepts. Close ends it and waits.
type clients struct {
	net.Listener
	guard *flood.Guard // shared by the listeners of gRPC and REST; nil: none
	// proxies lists the proxies whose connections are those of many clients.
	proxies *clientaddr.Proxies
	// refuse replaces the answers that net/http writes itself; nil: nothing does.
	refuse Refuse
	// plain says that HTTP/1 is spoken, in plain text.
	plain bool
	pace  pace // of Accept

	arrivals arrivals
	failed   chan error    // of the goroutine that accepts, to Accept
	ended    chan struct{} // closed by Close
	end      func()        // closes ended, once
	running  sync.WaitGroup

	// mu guards the fields below. Nothing blocks while it is held.
	mu     sync.Mutex
	open   map[*client]struct{}
	closed bool
}

const (
	mostAccepted = 16
	mostServed   = 4
	paceTime     = time.Millisecond
)

// pace spreads what happens very often over time. One goroutine uses it.
type pace struct {
	most  int       // in paceTime
	begun time.Time // when the present paceTime began
	n     int       // what has happened since
}

// wait blocks until one more may happen, for at most paceTime.
func (p *pace) wait() {
	past := time.Since(p.begun)
	if past < paceTime && p.n == p.most {
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
func Watched(l net.Listener) net.Listener { return (&clients{Listener: l}).start() }

// start begins to accept connections, until Close.
func (l *clients) start() *clients {
	l.pace.most = mostServed
	l.open = map[*client]struct{}{}
	l.arrivals = newArrivals()
	l.failed, l.ended = make(chan error), make(chan struct{})
	l.end = sync.OnceFunc(func() { close(l.ended) })
	l.running.Go(l.run)
	return l
}

// run accepts connections until Close. After an error it goes on when Accept has returned that.
func (l *clients) run() {
	p := pace{most: mostAccepted}
	for {
		p.wait()
		nc, err := l.Listener.Accept()
		if err == nil {
			l.arrive(nc)
			continue
		}
		select {
		case l.failed <- err:
		case <-l.ended:
			return
		}
	}
}

// arrive adds a connection to those that wait, or closes it if the guard does not admit it.
func (l *clients) arrive(nc net.Conn) {
	c := &client{Conn: nc, of: l}
	c.addr = &clientAddr{nc.RemoteAddr(), c}
	var admitted bool
	from := l.countedAs(nc.RemoteAddr())
	c.cost, admitted = l.guard.Enter(from, func() { _ = c.Close() })
	if !admitted {
		reset(nc)
		return
	}
	l.admit(c)
	l.arrivals.add(from, c)
}

// Accept returns the next connection to serve. One goroutine calls it.
func (l *clients) Accept() (net.Conn, error) {
	l.pace.wait()
	for {
		if c := l.arrivals.next(); c != nil {
			return c, nil
		}
		select {
		case <-l.arrivals.arrived:
		case err := <-l.failed:
			return nil, err
		case <-l.ended:
			return nil, net.ErrClosed
		}
	}
}

// countedAs returns the address that a connection counts for. A connection of a listed proxy is
// that of many clients, and counts in all only.
func (l *clients) countedAs(a net.Addr) netip.Addr {
	if l.proxies.Lists(addressOf(a)) {
		return netip.Addr{}
	}
	return network(a)
}

// reset closes a connection without the handshake that would leave the kernel a socket in
// TIME_WAIT.
func reset(nc net.Conn) {
	_ = setLinger(nc, 0) // if this fails, the close is a common one
	_ = nc.Close()       // its error does not matter any more
}

// network returns what is counted as one client of a listener. The clients of a Unix domain socket
// have no address and only count in all.
func network(a net.Addr) netip.Addr { return clientaddr.Network(addressOf(a)) }

// addressOf returns the IP address of one end of a connection, the zero value if it has none.
func addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr()
}

func (l *clients) admit(c *client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
	if l.closed {
		_ = c.Conn.Close() // the server finds it closed, and closes it, too
	}
}

// Close closes the listener, and the connections without any data from the client.
func (l *clients) Close() error {
	l.end()
	err := l.Listener.Close()
	l.running.Wait()
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
	cost  *flood.Connection // nil: its listener has no guard
	addr  *clientAddr
	spoke atomic.Bool
	first int // bytes read, up to firstBytes; used by Read alone
	// answering says that a handler of REST answers on the connection.
	answering atomic.Bool
	lengths   lengths
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

const (
	// pieceBytes is what is read at a time of a connection that may be a flood. It has the headers
	// of some 15 calls; what calls of no use cost is known when they have ended.
	pieceBytes = 512
	// firstBytes is what a connection is read in such pieces at its beginning.
	firstBytes = 4 << 10
)

// Read records that the client has sent data. A connection that may be a flood is read in small
// pieces, and after the goroutines that are ready, which are the calls that it began before.
func (c *client) Read(b []byte) (int, error) {
	if c.first < firstBytes || c.cost.Suspect() {
		b = b[:min(len(b), pieceBytes)]
		runtime.Gosched()
	}
	n, err := c.Conn.Read(b)
	c.first = min(c.first+n, firstBytes)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
	}
	if c.of.plain {
		c.lengths.scan(b[:n])
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
		skipUnread(c.Conn)
		defer c.cost.Leave()
	}
	return c.Conn.Close()
}
