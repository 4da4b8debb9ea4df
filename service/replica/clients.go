package replica

import (
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/mooringdb/mooring/core/bson"
	peerv1 "github.com/mooringdb/mooring/gen/mooring/peer/v1"
	"github.com/mooringdb/mooring/service/handle"
)

const (
	// connectTimeout is how long a connection, with its handshake, may take.
	connectTimeout = 2 * time.Second
	// A replica that is gone without a word is noticed after the two together: a question may rightly wait as long as a getMore does.
	keepaliveTime    = 10 * time.Second // the least that gRPC's client allows
	keepaliveTimeout = 3 * time.Second
	// A replica that was restarted is found again after this, at the latest.
	maxBackoff = 500 * time.Millisecond
	// idleTimeout is how long a connection stays that nobody uses.
	idleTimeout = 2 * time.Minute
	// maxClients bounds the replicas with which there is a connection. Those that are gone leave theirs behind until then.
	maxClients = 2 * maxOthers
	// maxMessageBytes fits what is left of the largest reply of a server (48 MB).
	maxMessageBytes = 64 << 20
	// streamWindow is how much of a stream is on its way, or waits for a client who does not read; gRPC would let it grow to 16 MiB. What waits in
	// one stream holds no other up: gRPC counts for the connection what has arrived.
	streamWindow     = 1 << 20
	connectionWindow = 8 << 20
)

// The metadata of each call.
const (
	// idKey is that by which a replica notices that it asks itself.
	idKey = "mooring-replica"
	// deploymentKey says whose cursors it is about.
	deploymentKey = "mooring-deployment"
)

var (
	errTooManyPeers = errors.New("too many other replicas are being asked")
	errClosed       = errors.New("this replica shuts down")
)

// clients are the connections to other replicas: one for each, made when it is needed.
//
// A mutex over the fields below it; connections are closed outside it.
type clients struct {
	identity *identity
	secure   credentials.TransportCredentials

	mu     sync.Mutex
	open   map[string]*client // by address
	closed bool
	uses   uint64
}

// client is the connection to one replica. Its fields are guarded by the mutex of clients, except refused.
type client struct {
	conn  *grpc.ClientConn
	key   string // that was presented first when it was made
	calls int    // that run
	used  uint64 // when it was used last: a count of uses
	gone  bool   // from the map; the last call closes it

	refused atomic.Bool // the last attempt to connect was: nobody listens there
}

// get returns the connection to an address. Whoever gets it calls put.
func (c *clients) get(address string) (*client, error) {
	var unused []*client
	defer func() { closeAll(unused) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	p := c.open[address]
	if p == nil {
		if len(c.open) >= maxClients {
			oldest := c.oldestLocked()
			if oldest == "" {
				return nil, errTooManyPeers
			}
			unused = c.dropLocked(oldest)
		}
		p = &client{key: c.identity.presented()}
		var err error
		if p.conn, err = p.dial(address, c.secure); err != nil {
			return nil, err
		}
		c.open[address] = p
	}
	c.uses++
	p.calls, p.used = p.calls+1, c.uses
	return p, nil
}

// put says that a call has ended.
func (c *clients) put(p *client) {
	c.mu.Lock()
	p.calls--
	done := p.gone && p.calls == 0
	c.mu.Unlock()
	if done {
		closeAll([]*client{p})
	}
}

// dropLocked forgets a connection, and returns it if it is to be closed now.
func (c *clients) dropLocked(address string) []*client {
	p := c.open[address]
	delete(c.open, address)
	p.gone = true
	if p.calls > 0 {
		return nil
	}
	return []*client{p}
}

// forget makes the next call to an address connect anew.
func (c *clients) forget(address string) {
	var unused []*client
	c.mu.Lock()
	if c.open[address] != nil {
		unused = c.dropLocked(address)
	}
	c.mu.Unlock()
	closeAll(unused)
}

// oldestLocked is the address whose connection has been without a call for longest; empty if all have calls.
func (c *clients) oldestLocked() string {
	oldest := ""
	for address, p := range c.open {
		if p.calls == 0 && (oldest == "" || p.used < c.open[oldest].used) {
			oldest = address
		}
	}
	return oldest
}

// renew drops the connections that were made with another key than the one of now; calls that run on them go on. So when the old key leaves
// the ring, nobody needs it any more.
func (c *clients) renew() {
	key := c.identity.presented()
	var unused []*client
	c.mu.Lock()
	for address, p := range c.open {
		if p.key != key {
			unused = append(unused, c.dropLocked(address)...)
		}
	}
	c.mu.Unlock()
	closeAll(unused)
}

// close breaks all connections.
func (c *clients) close() {
	c.mu.Lock()
	c.closed = true
	var all []*client
	for _, p := range c.open {
		all = append(all, p)
	}
	c.mu.Unlock()
	closeAll(all)
}

func closeAll(list []*client) {
	for _, p := range list {
		_ = p.conn.Close() // it fails only if it was closed before
	}
}

// dial makes a connection that connects when it is used. It goes through no proxy of the environment.
func (p *client) dial(address string, secure credentials.TransportCredentials) (*grpc.ClientConn, error) {
	dialer := net.Dialer{Timeout: connectTimeout}
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(secure),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, "tcp", address)
			p.refused.Store(errors.Is(err, syscall.ECONNREFUSED))
			return conn, err
		}),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connectionWindow),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: maxBackoff},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
	)
}

var _ handle.Peers = (*Node)(nil)

// call runs one call to a replica, and says what its error was.
func (n *Node) call(ctx context.Context, address string, run func(context.Context, peerv1.PeerServiceClient, ...grpc.CallOption) error) error {
	p, err := n.clients.get(address)
	if err != nil {
		return &handle.UnreachableError{Address: address, Err: err}
	}
	defer n.clients.put(p)
	var via peer.Peer
	if err := run(n.signed(ctx), peerv1.NewPeerServiceClient(p.conn), grpc.Peer(&via)); err != nil {
		return n.explain(ctx, address, p, &via, err)
	}
	return nil
}

// signed is ctx with the metadata that says who asks, and no other.
func (n *Node) signed(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(idKey, n.id, deploymentKey, n.serves))
}

func (n *Node) explain(ctx context.Context, address string, p *client, via *peer.Peer, err error) error {
	err = explain(ctx, address, via, err)
	if lost, ok := errors.AsType[*handle.UnreachableError](err); ok && !lost.Sent {
		lost.Refused = p.refused.Load()
	}
	switch {
	case errors.Is(err, errSelf):
		n.directory.metSelf(address)
		n.clients.forget(address) // behind the address of a service, the next connection leads elsewhere
	case errors.Is(err, errForeign) && n.foreign.may(address):
		n.cfg.Log.Warn("a replica of another deployment was asked", "peer", address, "err", err)
	}
	return err
}

// Ask puts a question for a page or for a closing.
func (n *Node) Ask(ctx context.Context, address string, q handle.Question) (handle.Answer, error) {
	var a handle.Answer
	err := n.call(ctx, address, func(ctx context.Context, c peerv1.PeerServiceClient, opts ...grpc.CallOption) error {
		resp, err := c.Ask(ctx, &peerv1.AskRequest{Question: newQuestion(q)}, opts...)
		if err != nil {
			return err
		}
		var r reader
		a = r.answer(resp)
		return r.err
	})
	return a, err
}

// Push hands records over.
func (n *Node) Push(ctx context.Context, address string, records iter.Seq[handle.Record]) (handle.Replica, error) {
	var who handle.Replica
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := n.call(ctx, address, func(ctx context.Context, c peerv1.PeerServiceClient, opts ...grpc.CallOption) error {
		s, err := c.Push(ctx, opts...)
		if err != nil {
			return err
		}
		for rec := range records {
			if err := s.Send(&peerv1.PushRequest{Record: newRecord(rec)}); err != nil {
				break // CloseAndRecv says why
			}
		}
		resp, err := s.CloseAndRecv()
		if err != nil {
			return err
		}
		var r reader
		who = r.replica(resp.GetReplica())
		return r.err
	})
	return who, err
}

// List lists the open handles of a replica: no more than are asked for, whatever it sends.
func (n *Node) List(ctx context.Context, address string, q handle.Query) ([]handle.Info, error) {
	var all []handle.Info
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := n.call(ctx, address, func(ctx context.Context, c peerv1.PeerServiceClient, opts ...grpc.CallOption) error {
		s, err := c.List(ctx, newQuery(q), opts...)
		if err != nil {
			return err
		}
		for {
			resp, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, m := range resp.GetHandles() {
				if len(all) >= q.Limit {
					return nil
				}
				all = append(all, readInfo(m))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Kill ends a cursor of a replica.
func (n *Node) Kill(ctx context.Context, address string, id string) error {
	return n.call(ctx, address, func(ctx context.Context, c peerv1.PeerServiceClient, opts ...grpc.CallOption) error {
		_, err := c.Kill(ctx, &peerv1.KillRequest{Id: id}, opts...)
		return err
	})
}

// Others are the addresses of the other replicas that are known now.
func (n *Node) Others(ctx context.Context) []string { return n.directory.others(ctx) }

// Stream asks the owner of a pinned cursor for all pages from one on.
func (n *Node) Stream(ctx context.Context, address string, q handle.Question) (handle.PageStream, error) {
	p, err := n.clients.get(address)
	if err != nil {
		return nil, &handle.UnreachableError{Address: address, Err: err}
	}
	s := &pageStream{n: n, address: address, to: p}
	ctx, cancel := context.WithCancel(ctx)
	s.caller = ctx
	s.close = sync.OnceFunc(func() {
		cancel()
		n.clients.put(p)
	})
	s.wire, err = peerv1.NewPeerServiceClient(p.conn).Stream(n.signed(ctx), &peerv1.StreamRequest{Question: newQuestion(q)}, grpc.Peer(&s.via))
	if err == nil {
		_, err = s.wire.Recv() // which says that the owner has agreed
	}
	if err != nil {
		err = n.explain(ctx, address, p, &s.via, err)
		s.close()
		return nil, err
	}
	return s, nil
}

// pageStream is what the owner of a pinned cursor sends.
type pageStream struct {
	n       *Node
	address string
	to      *client
	caller  context.Context //nolint:containedctx // of the stream, and no longer lived than this value
	wire    grpc.ServerStreamingClient[peerv1.StreamResponse]
	via     peer.Peer
	close   func()
}

// Recv returns the next documents.
func (s *pageStream) Recv() ([]bson.Raw, error) {
	resp, err := s.wire.Recv()
	var r reader
	docs := r.split(resp.GetDocuments())
	switch {
	case err == nil:
		err = r.err
	case errors.Is(err, io.EOF):
		s.close()
		return nil, io.EOF
	}
	if err != nil {
		err = s.n.explain(s.caller, s.address, s.to, &s.via, err)
		s.close()
		return nil, err
	}
	return docs, nil
}

// Close ends the stream.
func (s *pageStream) Close() { s.close() }
