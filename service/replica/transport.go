package replica

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/seal"
	listening "github.com/mooringdb/mooring/service/server"
)

const (
	// maxConnections bounds the connections that other replicas make; further connections wait. A
	// connection without a key is closed within connectTimeout.
	maxConnections = 1024
	// maxStreams bounds the calls on one connection.
	maxStreams = 10_000
	// maxHeaderBytes is more than a client's largest token, the tokens of its transaction and
	// session, and what the policy has allowed it (policy.Grounds) need, which are in the header of
	// a forwarded call.
	maxHeaderBytes = 128 << 10
	// stopTime is how long calls in flight may take when the listener stops. The pager has drained
	// before.
	stopTime = time.Second
	// foreignEvery is the least time between two log entries about a host with a replica of
	// another deployment. skewedEvery is the same for a clock that differs.
	foreignEvery = time.Hour
	skewedEvery  = time.Minute
	// meetTime is how long a new replica has to meet the others, and leaveTime how long one that
	// ends has to tell them.
	meetTime  = 10 * time.Second
	leaveTime = time.Second
)

// Config configures a Transport. Deployment, Others, MaxRequestSize, StallTimeout, LookupHost and
// Failed are optional.
type Config struct {
	Keys Keys
	// Deployment is the pager's. Replicas of another deployment are refused, although they may
	// have the same keys.
	Deployment string
	// Address is where the transport listens. With port 0 the kernel chooses a port.
	Address string
	// Advertise is where other replicas reach this replica. Port 0 stands for the port that the
	// kernel has chosen.
	Advertise string
	// Others are the addresses of the other replicas, as host:port. A name stands for all its
	// addresses. This replica's own address may be among them.
	Others []string
	// MaxRequestSize limits a request of a client, in bytes. All replicas have the same.
	MaxRequestSize int
	Log            *slog.Logger
	// StallTimeout is how long a replica may read nothing of a stream; see interceptor.Config.
	StallTimeout time.Duration
	// LookupHost resolves names. If it is nil, the system's resolver does.
	LookupHost func(ctx context.Context, host string) ([]string, error)
	// Inject adds what names the trace of a call to its metadata; nil: nothing does. Trace begins
	// to observe a call of another replica, as in server.GRPCConfig; nil: none is.
	Inject func(context.Context, metadata.MD)
	Trace  func(ctx context.Context, method string) (context.Context, func(error))
	// Failed is called when the listener breaks.
	Failed func(error)
}

// Transport connects this replica to the others. Bind, Serve and Close are called once each, in
// this order. As paging.Replicas it works from Serve to Close.
type Transport struct {
	cfg         Config
	id          string // identifies this process, not its address: a restarted one has another id
	serves      string // the id of its deployment
	limit       int    // of a message, in bytes
	foreign     *notices
	skewed      *notices
	now         func() time.Time
	links       *links
	directory   *directory
	connections *connections
	pushes      pushes
	// called and unreachable count what Stats returns.
	called, unreachable atomic.Uint64
	leaving             atomic.Bool // the calls from now on say that this replica ends
	leaveTime           time.Duration

	listener net.Listener                 // nil before Bind
	server   *grpc.Server                 // nil before Serve
	pager    Pager                        // nil before Serve
	api      API                          // zero: no calls of clients are forwarded to here
	read     grpc.StreamServerInterceptor // of the API's streams, around api.Stream
	stop     context.CancelFunc           // ends the meeting of other replicas
	met      chan struct{}                // closed at its end
	serving  sync.WaitGroup
}

// New returns a transport that does nothing yet.
func New(cfg Config) *Transport {
	if cfg.LookupHost == nil {
		cfg.LookupHost = net.DefaultResolver.LookupHost
	}
	if cfg.Failed == nil {
		cfg.Failed = func(error) {}
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	deployment := seal.NewDeployment(cfg.Deployment)
	me := &identity{keys: cfg.Keys}
	secure := newLinks(me, cfg.Log)
	limit := max(maxMessageBytes, cfg.MaxRequestSize)
	return &Transport{
		cfg: cfg, id: hex.EncodeToString(id), serves: hex.EncodeToString(deployment[:]),
		limit:   limit,
		foreign: newNotices(foreignEvery), skewed: newNotices(skewedEvery), now: time.Now,
		stop: func() {}, met: make(chan struct{}), pushes: pushes{max: maxPushedBytes},
		leaveTime: leaveTime,
		links:     secure, directory: newDirectory(cfg.Others, cfg.LookupHost),
		connections: &connections{
			identity: me, secure: secure, open: map[string]*connection{}, limit: limit,
			dial: (&net.Dialer{Timeout: connectTimeout}).DialContext,
		},
	}
}

// Bind begins to listen. Connections that arrive before Serve wait.
func (t *Transport) Bind(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", t.cfg.Address)
	if err != nil {
		return fmt.Errorf("option replica.address: %w", err)
	}
	t.bindTo(l)
	return nil
}

func (t *Transport) bindTo(l net.Listener) {
	t.listener = l
	t.directory.isOwn(t.Advertised())
}

// Address returns the address on which the transport listens. It is called after Bind.
func (t *Transport) Address() string { return t.listener.Addr().String() }

// Advertised returns the address at which other replicas reach this one. It is called after Bind.
func (t *Transport) Advertised() string {
	host, port, err := net.SplitHostPort(t.cfg.Advertise)
	if err != nil || port != "0" {
		return t.cfg.Advertise
	}
	_, bound, _ := net.SplitHostPort(t.Address()) // always host:port
	return net.JoinHostPort(host, bound)
}

// Serve begins to answer from a pager, and tells the other replicas that this replica exists.
func (t *Transport) Serve(p Pager) {
	t.pager = p
	around := interceptor.New(interceptor.Config{
		Logger: t.cfg.Log, StallTimeout: t.cfg.StallTimeout,
	})
	t.server = grpc.NewServer(
		grpc.Creds(t.links),
		grpc.ForceServerCodecV2(listening.NewCodec()),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.MaxRecvMsgSize(t.limit),
		grpc.MaxSendMsgSize(t.limit),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 2 * idleTimeout, Time: keepaliveTime, Timeout: keepaliveTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveTime / 2}),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(t.unary(around.Unary())), // none of the API: see LateReader
		grpc.StreamInterceptor(t.stream(around.Stream())),
	)
	replicav1.RegisterReplicaServiceServer(t.server, &server{
		pager: p, directory: t.directory, pushes: &t.pushes,
	})
	if t.api.Register != nil {
		var api grpc.ServiceRegistrar
		api, t.read = listening.LateReader(registrar{t}, listening.GRPCConfig{
			MaxRequestSize: t.limit, OpenAccount: t.api.OpenAccount, Unary: t.api.Unary,
			Stream: t.api.Stream,
		})
		t.api.Register(api)
	}
	l := netutil.LimitListener(t.listener, maxConnections)
	t.serving.Go(func() {
		if err := t.server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.cfg.Failed(fmt.Errorf("serve replica.address: %w", err))
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), meetTime)
	t.stop = cancel
	t.serving.Go(func() { t.meetAll(ctx) })
}

// Met waits until this replica has met the others, or ctx ends. Before that this replica may not
// find cursors that have moved.
func (t *Transport) Met(ctx context.Context) {
	select {
	case <-t.met:
	case <-ctx.Done():
	}
}

// meetAll tells all replicas that this replica exists, including those that it learns from their
// answers. So each of them knows it before DNS does, and it learns where the cursors of earlier
// replicas went.
func (t *Transport) meetAll(ctx context.Context) {
	defer close(t.met)
	defer t.stop()
	met := map[string]bool{}
	for ctx.Err() == nil {
		fresh := slices.DeleteFunc(t.Others(ctx, false),
			func(address string) bool { return met[address] })
		if len(fresh) == 0 {
			return
		}
		var wg sync.WaitGroup
		for _, address := range fresh {
			met[address] = true
			wg.Go(func() { t.meetOne(ctx, address) })
		}
		wg.Wait()
	}
}

func (t *Transport) meetOne(ctx context.Context, address string) {
	resp, err := t.meet(ctx, address, nil)
	if err != nil {
		t.cfg.Log.Debug("meet a replica", "replica", address, "err", err)
		return
	}
	t.heardOf(address, resp)
}

// heardOf records what another replica has answered to a meeting.
func (t *Transport) heardOf(address string, resp *replicav1.MeetResponse) {
	t.learn(address, false)
	for _, known := range resp.GetAddresses() {
		t.learn(known, true)
	}
	for _, s := range resp.GetSuccessions() {
		var r reader
		if from, to := r.id(s.GetInstance()), r.replica(s.GetSuccessor()); r.err == nil {
			t.pager.Succeeded(from, to)
		}
	}
}

// Stats counts what the transport does.
type Stats struct {
	Known       int    // other replicas that have been heard of in the last ten minutes
	Calls       uint64 // to other replicas
	Unreachable uint64 // of the calls, without those to replicas that have left
}

// Stats returns the counts so far.
func (t *Transport) Stats() Stats {
	return Stats{
		Known: t.directory.heardOf(), Calls: t.called.Load(), Unreachable: t.unreachable.Load(),
	}
}

// learn records the address of another replica, which has called or, as a report, was reported.
func (t *Transport) learn(address string, report bool) {
	if t.directory.learn(address, report) {
		t.cfg.Log.Info("replica joined", "replica", address)
	}
}

// KeysChanged closes the connections that were made with removed keys. It is called after the
// ring's keys were replaced.
func (t *Transport) KeysChanged() {
	t.connections.renew()
	t.links.shared.closeStale()
}

// leave tells the other replicas that this one ends, so that none of them takes it for lost.
func (t *Transport) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.leaveTime)
	defer cancel()
	t.leaving.Store(true)
	var wg sync.WaitGroup
	for _, address := range t.Others(ctx, false) {
		wg.Go(func() {
			if _, err := t.meet(ctx, address, nil); err != nil {
				t.cfg.Log.Debug("leave a replica", "replica", address, "err", err)
			}
		})
	}
	wg.Wait()
}

// Close tells the other replicas that this one ends, and closes the listener and all connections.
// It blocks until the calls in flight have ended, or ctx ends; an error means that a call has not
// ended.
func (t *Transport) Close(ctx context.Context) error {
	t.stop()
	if t.server != nil {
		t.leave(ctx)
	}
	t.connections.close()
	if t.server == nil {
		if t.listener != nil {
			_ = t.listener.Close() // no server uses it
		}
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	stopped := make(chan struct{})
	go func() { // ends with the handlers
		defer close(stopped)
		t.server.GracefulStop()
		t.serving.Wait()
	}()
	select {
	case <-stopped:
		return nil
	case <-soon.Done():
	}
	go t.server.Stop() // the first goroutine ends once the handlers have ended
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("calls of other replicas did not end: %w", context.Cause(ctx))
	}
}
