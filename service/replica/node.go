package replica

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	peerv1 "github.com/mooringdb/mooring/gen/mooring/peer/v1"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/stream"
)

const (
	// maxConnections bounds those that others make; the next ones wait. Whoever has no key is gone within connectTimeout.
	maxConnections = 1024
	// maxStreams bounds the calls on one of them.
	maxStreams = 10_000
	// maxHeaderBytes is far more than our own calls bring.
	maxHeaderBytes = 16 << 10
	// stopTime is what calls in flight get when the listener stops. Nobody waits for them any more: the registry has drained.
	stopTime = time.Second
	// foreignEvery is how often it is said of a replica that it is one of another deployment.
	foreignEvery = time.Hour
)

// Config of a Node; all but Deployment, Peers, StallTimeout, LookupHost and Failed are required.
type Config struct {
	Keys Keys
	// Deployment is the registry's: replicas of another one are refused, although they may have the same keys.
	Deployment string
	// Address is where to listen; port 0 lets the kernel choose one.
	Address string
	// Advertise is where the others reach it, if its port is 0 with the port that was chosen.
	Advertise string
	// Peers are where the others are, as host:port; a name stands for all its addresses. This replica itself may be among them.
	Peers []string
	// Streams are what the streams of pinned cursors share with the gateway's others.
	Streams *stream.Streams
	Log     *slog.Logger
	// StallTimeout is how long a replica may take nothing of a stream; see interceptor.Config.
	StallTimeout time.Duration
	// LookupHost resolves names; nil: as the system does.
	LookupHost func(ctx context.Context, host string) ([]string, error)
	// Failed is called when the listener breaks.
	Failed func(error)
}

// Node is this replica among the others. Bind, Serve and Close are called once each, in this order; as handle.Peers it works from Bind to
// Close.
type Node struct {
	cfg       Config
	id        string // tells this process from others, and from an earlier one
	serves    string // the id of its deployment
	foreign   *notices
	links     *links
	directory *directory
	clients   *clients
	pushes    pushes

	listener net.Listener // nil before Bind
	server   *grpc.Server // nil before Serve
	serving  sync.WaitGroup
}

// New returns a node that does nothing yet.
func New(cfg Config) *Node {
	if cfg.LookupHost == nil {
		cfg.LookupHost = net.DefaultResolver.LookupHost
	}
	if cfg.Failed == nil {
		cfg.Failed = func(error) {}
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	deployment := handle.NewDeploymentID(cfg.Deployment)
	me := &identity{keys: cfg.Keys}
	secure := newLinks(me, cfg.Log)
	return &Node{
		cfg: cfg, id: hex.EncodeToString(id), serves: hex.EncodeToString(deployment[:]), foreign: newNotices(foreignEvery),
		pushes: pushes{max: maxPushedBytes}, links: secure, directory: newDirectory(cfg.Peers, cfg.LookupHost),
		clients: &clients{identity: me, secure: secure, open: map[string]*client{}},
	}
}

// Bind begins to listen. What comes before Serve waits.
func (n *Node) Bind(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", n.cfg.Address)
	if err != nil {
		return fmt.Errorf("option replica.address: %w", err)
	}
	n.listener = l
	n.directory.isOwn(n.Advertised())
	return nil
}

// Address is where the node listens, after Bind.
func (n *Node) Address() string { return n.listener.Addr().String() }

// Advertised is where the others reach it, after Bind.
func (n *Node) Advertised() string {
	host, port, err := net.SplitHostPort(n.cfg.Advertise)
	if err != nil || port != "0" {
		return n.cfg.Advertise
	}
	_, bound, _ := net.SplitHostPort(n.Address()) // always host:port
	return net.JoinHostPort(host, bound)
}

// Serve begins to answer from a registry.
func (n *Node) Serve(r Registry) {
	around := interceptor.New(interceptor.Config{Logger: n.cfg.Log, StallTimeout: n.cfg.StallTimeout})
	n.server = grpc.NewServer(
		grpc.Creds(n.links),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 2 * idleTimeout, Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveTime / 2}),
		grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(around.Unary(), n.unary),
		grpc.ChainStreamInterceptor(around.Stream(), n.stream),
	)
	peerv1.RegisterPeerServiceServer(n.server, &server{registry: r, streams: n.cfg.Streams, pushes: &n.pushes})
	l := netutil.LimitListener(n.listener, maxConnections)
	n.serving.Go(func() {
		if err := n.server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			n.cfg.Failed(fmt.Errorf("serve replica.address: %w", err))
		}
	})
}

// KeysChanged closes connections that were made with keys that are gone. It is called when the ring's keys were replaced.
func (n *Node) KeysChanged() {
	n.clients.renew()
	n.links.shared.closeStale()
}

// Close ends the listener and all connections. It returns when ctx ends, at the latest; an error means that a call is still there.
func (n *Node) Close(ctx context.Context) error {
	n.clients.close()
	if n.server == nil {
		if n.listener != nil {
			_ = n.listener.Close() // nobody has used it
		}
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	stopped := make(chan struct{})
	go func() { // ends with the handlers
		defer close(stopped)
		n.server.GracefulStop()
		n.serving.Wait()
	}()
	select {
	case <-stopped:
		return nil
	case <-soon.Done():
	}
	go n.server.Stop() // makes the other one end, when the handlers have
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("calls of other replicas did not end: %w", context.Cause(ctx))
	}
}
