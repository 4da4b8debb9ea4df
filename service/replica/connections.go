package replica

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

const (
	// connectTimeout is how long a connection, with its handshake, may take.
	connectTimeout = 2 * time.Second
	// keepaliveTime and keepaliveTimeout together bound how long a silent loss of a replica stays
	// unnoticed. A question may wait as long as a getMore does.
	keepaliveTime    = 10 * time.Second // the least that gRPC's client allows
	keepaliveTimeout = 3 * time.Second
	// maxBackoff bounds the time until a restarted replica is found again.
	maxBackoff = 500 * time.Millisecond
	// idleTimeout is how long an unused connection stays.
	idleTimeout = 2 * time.Minute
	// maxConnected bounds the connections. Connections to lost replicas remain until then.
	maxConnected = 2 * maxOthers
	// maxMessageBytes bounds a message, unless a request of a client may be larger. It fits what is
	// left of a server's largest reply (48 MB).
	maxMessageBytes = 64 << 20
	// streamWindow bounds the bytes of a stream that are in flight, or wait for a client that does
	// not read. gRPC would let it grow to 16 MiB. Bytes that wait in one stream do not delay
	// another stream: the window of the connection counts bytes as they arrive.
	streamWindow     = 1 << 20
	connectionWindow = 8 << 20
)

var (
	errTooMany = errors.New("too many other replicas are being asked")
	errClosed  = errors.New("this replica shuts down")
)

// connections holds one connection to each other replica, made when it is needed.
//
// mu guards the fields below it. Connections are closed without it.
type connections struct {
	identity *identity
	secure   *links
	dial     dialFunc
	limit    int // of a message, in bytes

	mu     sync.Mutex
	open   map[string]*connection // by address
	closed bool
	uses   uint64
}

// dialFunc matches net.Dialer's DialContext.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// connection connects to one replica. The mutex of connections guards its fields, except refused.
type connection struct {
	conn  *grpc.ClientConn
	key   string // the key that was presented first when the connection was made
	peer  string // the other replica's key, empty until it is known
	calls int    // running calls
	used  uint64 // the count of uses when it was used last
	gone  bool   // it left the map; the last call closes it

	refused atomic.Bool // the last attempt to connect was refused: no process listens there
}

// get returns the connection to an address. The caller calls put afterwards.
func (c *connections) get(address string) (*connection, error) {
	var unused []*connection
	defer func() { closeAll(unused) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	p := c.open[address]
	if p == nil {
		if len(c.open) >= maxConnected {
			oldest := c.oldestLocked()
			if oldest == "" {
				return nil, errTooMany
			}
			unused = c.dropLocked(oldest)
		}
		p = &connection{key: c.identity.presented()}
		var err error
		if p.conn, err = p.dial(address, c.dial, c.secure.with(func(peer string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			p.peer = peer
		}), c.limit); err != nil {
			return nil, err
		}
		c.open[address] = p
	}
	c.uses++
	p.calls, p.used = p.calls+1, c.uses
	return p, nil
}

// put records that a call has ended.
func (c *connections) put(p *connection) {
	c.mu.Lock()
	p.calls--
	done := p.gone && p.calls == 0
	c.mu.Unlock()
	if done {
		closeAll([]*connection{p})
	}
}

// dropLocked forgets a connection and returns it if the caller has to close it now.
func (c *connections) dropLocked(address string) []*connection {
	p := c.open[address]
	delete(c.open, address)
	p.gone = true
	if p.calls > 0 {
		return nil
	}
	return []*connection{p}
}

// forget makes the next call to an address connect anew.
func (c *connections) forget(address string) {
	var unused []*connection
	c.mu.Lock()
	if c.open[address] != nil {
		unused = c.dropLocked(address)
	}
	c.mu.Unlock()
	closeAll(unused)
}

// oldestLocked returns the address of the connection that has had no call for the longest time. If
// all connections have calls, it returns the empty string.
func (c *connections) oldestLocked() string {
	oldest := ""
	for address, p := range c.open {
		if p.calls == 0 && (oldest == "" || p.used < c.open[oldest].used) {
			oldest = address
		}
	}
	return oldest
}

// renew drops the connections that were made with another key than the current first key, or to a
// replica whose key has left the ring: the latter are about to be closed, and the next call must
// not begin on one that gRPC takes for open. Calls that run on the others go on. When the old key
// leaves the ring, no connection needs it.
func (c *connections) renew() {
	key := c.identity.presented()
	var unused []*connection
	c.mu.Lock()
	for address, p := range c.open {
		if p.key != key || p.peer != "" && !c.identity.knows(p.peer) {
			unused = append(unused, c.dropLocked(address)...)
		}
	}
	c.mu.Unlock()
	closeAll(unused)
}

// close breaks all connections.
func (c *connections) close() {
	c.mu.Lock()
	c.closed = true
	var all []*connection
	for _, p := range c.open {
		all = append(all, p)
	}
	c.mu.Unlock()
	closeAll(all)
}

func closeAll(list []*connection) {
	for _, p := range list {
		_ = p.conn.Close() // it fails only if it was closed before
	}
}

// dial returns a connection that connects when it is used. It ignores the proxies of the
// environment.
func (c *connection) dial(
	address string, dial dialFunc, secure credentials.TransportCredentials, limit int,
) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(secure),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := dial(ctx, "tcp", address)
			c.refused.Store(errors.Is(err, syscall.ECONNREFUSED))
			return conn, err
		}),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connectionWindow),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: maxBackoff,
			},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout,
		}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(limit), grpc.MaxCallSendMsgSize(limit),
		),
	)
}
