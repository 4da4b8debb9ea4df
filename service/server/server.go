// Package server owns the gateway's ports: it binds them, reports their addresses, serves on
// them, and lets requests in flight finish when it stops. It does not know what is served.
package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/service/clientaddr"
	"github.com/mooringdb/mooring/service/flood"
)

// Config says where to listen and how to stop. An address is host:port, or unix: and a path. An
// empty address means no listener.
type Config struct {
	GRPCAddress, RESTAddress, DebugAddress, AdminAddress string
	// MaxStreams and MaxAge limit the connections of REST as GRPCConfig limits those of gRPC.
	MaxStreams int
	MaxAge     time.Duration
	// MaxConnections limits the connections of gRPC and REST together, and MaxPerAddress those of
	// one address; 0 means no limit.
	MaxConnections, MaxPerAddress int
	// Proxies lists the proxies that name the clients of the ports of gRPC and REST; nil: none.
	// GRPCConfig has them, too.
	Proxies *clientaddr.Proxies
	// GRPCProxied and RESTProxied say whether they begin each connection to the port with a header
	// of the PROXY protocol.
	GRPCProxied, RESTProxied bool
	// TLS applies to the ports of gRPC and REST; nil means plain text. The gRPC server has it
	// already (see NewGRPC).
	TLS *tls.Config
	// ReplicaAddress returns the address for the other replicas of the gateway, which this
	// package does not serve. Start calls it. Empty means none.
	ReplicaAddress func() string
	// AddressesFile, if not empty, receives the addresses once all ports are bound.
	AddressesFile string
	// Linger is how long the server still accepts calls while it stops, until clients know that.
	Linger time.Duration
	// DrainTimeout is how long work in flight may take after that.
	DrainTimeout time.Duration
	Log          *slog.Logger
	// Flood counts what is refused or closed before it is known who calls; nil: nothing does.
	Flood flood.Meter
}

// Gate counts calls in flight.
type Gate interface {
	// Drain refuses new calls and waits for those in flight. When ctx ends, it cuts the rest.
	Drain(ctx context.Context) error
}

// Parts holds what is served, and what takes part in stopping.
type Parts struct {
	// GRPC makes the gRPC server. Start calls it once: a gRPC server has goroutines from the
	// beginning.
	GRPC               func() *grpc.Server
	REST, Debug, Admin http.Handler
	// Refuse makes the answers of the REST port to what is not a request; nil: net/http does.
	Refuse Refuse
	Gate   Gate
	// Unready makes the gateway not ready. Stop calls it first.
	Unready func()
	// Failed is called when serving a port fails.
	Failed func(error)
}

// Addresses says where the gateway listens. An empty address means no listener.
type Addresses struct {
	GRPC  string `json:"grpc,omitempty"`
	REST  string `json:"rest,omitempty"`
	Debug string `json:"debug,omitempty"`
	Admin string `json:"admin,omitempty"`
	// Replica is the address for other replicas of the gateway.
	Replica string `json:"replica,omitempty"`
}

// Server owns the gateway's ports. Start and Stop are called once each, in this order.
type Server struct {
	cfg       Config
	parts     Parts
	grpc      *grpc.Server // nil before Start
	rest      *http.Server
	debug     *http.Server
	admin     *http.Server
	addresses Addresses
	clients   []*clients
	guard     *flood.Guard
	serving   sync.WaitGroup // one per port
	leaving   atomic.Bool    // clients are told to use another connection

	check func(context.Context) error // CheckGRPC
}

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// frameSize limits the frames of HTTP/2: net/http makes room for the length that the header of
	// a frame announces, and keeps it as long as the connection.
	frameSize = 16 << 10
	// connectionWindow is how many bytes of bodies the client of an HTTP/2 connection of REST may
	// send before they are read. It has room for several streamWindow, so that bodies which wait to
	// be read do not stop the others.
	connectionWindow = 4 * streamWindow
	// flushTime is the time, in addition to the drain time, for complete answers to reach their
	// clients.
	flushTime = time.Second
)

// New returns a server that does not listen yet.
func New(cfg Config, parts Parts) *Server {
	// quiet takes the errors of clients that break the protocol.
	quiet := slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug)
	httpServer := func(h http.Handler, secure *tls.Config) *http.Server {
		return &http.Server{
			Handler: h, TLSConfig: secure, ReadHeaderTimeout: readHeaderTimeout,
			IdleTimeout:    idleTimeout,
			MaxHeaderBytes: maxHeaderBytes, ErrorLog: quiet,
			HTTP2: &http.HTTP2Config{
				MaxConcurrentStreams: cfg.MaxStreams, MaxReadFrameSize: frameSize,
				MaxReceiveBufferPerStream:     streamWindow,
				MaxReceiveBufferPerConnection: connectionWindow,
			},
			ConnContext: rememberConnection, ConnState: watchAnswers,
		}
	}
	s := &Server{
		cfg: cfg, parts: parts,
		debug: httpServer(parts.Debug, nil), admin: httpServer(parts.Admin, nil),
		guard: flood.New(cfg.MaxConnections, cfg.MaxPerAddress, cfg.Log, cfg.Flood),
		check: CheckGRPC,
	}
	s.rest = httpServer(http.HandlerFunc(s.serveREST), cfg.TLS.Clone())
	s.rest.DisableGeneralOptionsHandler = true // OPTIONS * is a path like others
	return s
}

// connectionKey keys the *connection of a request.
type connectionKey struct{}

// connection holds what requests need to know of their connection.
type connection struct {
	born   time.Time
	client *client // nil within TLS
	// lengths is how many fields named Content-Length the requests until now had.
	lengths int64
	cost    *flood.Connection
}

func rememberConnection(ctx context.Context, nc net.Conn) context.Context {
	c, _ := nc.(*client)
	under := c
	if secure, ok := nc.(*tls.Conn); ok {
		under, _ = secure.NetConn().(*client)
	}
	of := &connection{born: time.Now(), client: c}
	if under != nil {
		of.cost = under.cost
	}
	return flood.NewContext(context.WithValue(ctx, connectionKey{}, of), of.cost)
}

// watchAnswers records that the answer to a request is written.
func watchAnswers(nc net.Conn, state http.ConnState) {
	if c, ok := nc.(*client); ok && state == http.StateIdle {
		c.answering.Store(false)
	}
}

// isOld reports whether a connection is older than connections may become.
func (s *Server) isOld(c *connection) bool {
	return s.cfg.MaxAge > 0 && time.Since(c.born) > s.cfg.MaxAge
}

// serveREST tells clients to close their connections if the server is about to stop, or if the
// connections are old. Over HTTP/2 net/http turns this into GOAWAY.
func (s *Server) serveREST(w http.ResponseWriter, r *http.Request) {
	nameClient(s.cfg.Proxies, r)
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	if c.client != nil {
		c.client.answering.Store(true)
	}
	if c.isAmbiguous(r) || s.leaving.Load() || s.isOld(c) {
		w.Header().Set("Connection", "close")
	}
	begun := time.Now()
	s.parts.REST.ServeHTTP(w, r)
	if r.ProtoMajor == 2 && isReset(r.Context(), begun) {
		c.cost.Waste()
	}
}

// port describes one listener.
type port struct {
	option, address string
	bound           *string
	serve           func(net.Listener) error
	guard           *flood.Guard // nil: none
	refuse          Refuse       // nil: net/http's own answers
	plain           bool         // it speaks HTTP/1 in plain text
	proxied         bool         // Config.GRPCProxied, Config.RESTProxied
}

// listen returns the listener of a port that watches its connections.
func (s *Server) listen(l net.Listener, p *port) *clients {
	if p.proxied {
		l = newProxied(l, s.cfg.Proxies, s.cfg.Log)
	}
	c := &clients{
		Listener: l, guard: p.guard, refuse: p.refuse, proxies: s.cfg.Proxies, plain: p.plain,
	}
	return c.start()
}

// Start binds all ports, or none, and serves on them.
func (s *Server) Start(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	serveREST := s.rest.Serve
	if s.cfg.TLS != nil {
		serveREST = func(l net.Listener) error { return s.rest.ServeTLS(l, "", "") }
	}
	serveGRPC := func(l net.Listener) error { return s.grpc.Serve(l) }
	grpcPort := port{
		option: "grpc.address", address: s.cfg.GRPCAddress, bound: &s.addresses.GRPC,
		serve: serveGRPC, guard: s.guard, proxied: s.cfg.GRPCProxied,
	}
	restPort := port{
		option: "rest.address", address: s.cfg.RESTAddress, bound: &s.addresses.REST,
		serve: serveREST, guard: s.guard, proxied: s.cfg.RESTProxied, refuse: s.parts.Refuse,
		plain: s.cfg.TLS == nil,
	}
	debugPort := port{
		option: "debug.address", address: s.cfg.DebugAddress, bound: &s.addresses.Debug,
		serve: s.debug.Serve,
	}
	adminPort := port{
		option: "admin.address", address: s.cfg.AdminAddress, bound: &s.addresses.Admin,
		serve: s.admin.Serve,
	}
	var ports []port
	for _, p := range []port{grpcPort, restPort, debugPort, adminPort} {
		if p.address != "" {
			ports = append(ports, p)
		}
	}

	if s.cfg.ReplicaAddress != nil {
		s.addresses.Replica = s.cfg.ReplicaAddress()
	}
	listeners, err := bind(ctx, ports)
	if err == nil {
		err = s.writeAddresses()
	}
	if err != nil {
		closeAll(listeners)
		return err
	}
	s.grpc = s.parts.GRPC()
	for i, p := range ports {
		l := s.listen(listeners[i], &p)
		s.clients = append(s.clients, l)
		s.serving.Go(func() {
			err := p.serve(l)
			if err != nil && !errors.Is(err, http.ErrServerClosed) &&
				!errors.Is(err, grpc.ErrServerStopped) {
				s.parts.Failed(fmt.Errorf("serve %s: %w", p.option, err))
			}
		})
	}
	return nil
}

// SetMaxConnections changes Config.MaxConnections and Config.MaxPerAddress. Connections beyond them
// stay.
func (s *Server) SetMaxConnections(most, mostPerAddress int) { s.guard.Set(most, mostPerAddress) }

// Addresses returns the addresses of the listeners, after Start.
func (s *Server) Addresses() Addresses { return s.addresses }

func bind(ctx context.Context, ports []port) ([]net.Listener, error) {
	var listeners []net.Listener
	var lc net.ListenConfig
	for _, p := range ports {
		network, address, prefix := "tcp", p.address, ""
		if path, ok := strings.CutPrefix(p.address, unixPrefix); ok {
			network, address, prefix = "unix", path, unixPrefix
			removeStale(ctx, path)
		}
		l, err := lc.Listen(ctx, network, address)
		if err != nil {
			return listeners, fmt.Errorf("option %s: %w", p.option, err)
		}
		*p.bound = prefix + l.Addr().String()
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// unixPrefix begins the address of a Unix domain socket.
const unixPrefix = "unix:"

// removeStale removes a socket that a process has left behind: one on which no process listens.
func removeStale(ctx context.Context, path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close() // it is in use: listening fails
		return
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path) // else listening fails
	}
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close() // it is not in use yet
	}
}

// Attrs returns the addresses as attributes of a log record.
func (a Addresses) Attrs() []any {
	var attrs []any
	for _, named := range [...][2]string{
		{"grpc", a.GRPC},
		{"rest", a.REST},
		{"debug", a.Debug},
		{"admin", a.Admin},
		{"replica", a.Replica},
	} {
		if named[1] != "" {
			attrs = append(attrs, named[0], named[1])
		}
	}
	return attrs
}

// writeAddresses writes the file of the addresses in one step, so that a reader never sees a part
// of it.
func (s *Server) writeAddresses() error {
	if s.cfg.AddressesFile == "" {
		return nil
	}
	text, err := json.Marshal(s.addresses)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(s.cfg.AddressesFile), ".addresses-*")
	if err != nil {
		return fmt.Errorf("option addressesFile: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.cfg.AddressesFile)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the one to report
		return fmt.Errorf("option addressesFile: %w", err)
	}
	return nil
}

// Stop makes the gateway not ready and serves for Config.Linger, so that calls of load balancers
// and clients that do not know yet succeed. REST clients are told to close their connections, and
// after half of that time gRPC clients to use others. Then Stop lets work in flight finish within
// the drain time, cuts the rest, and closes the ports. During the drain, new REST requests are
// answered with 503. Stop returns when ctx ends at the latest. An error means that a part of the
// server is still running.
func (s *Server) Stop(ctx context.Context) error {
	s.parts.Unready()
	s.leaving.Store(true)
	pause(ctx, s.cfg.Linger/2)
	grpcDone := make(chan struct{})
	go func() {
		defer close(grpcDone)
		s.grpc.GracefulStop() // returns when the handlers have, also after Stop
	}()
	pause(ctx, s.cfg.Linger/2)
	drain, cancelDrain := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancelDrain()
	final, cancelFinal := context.WithTimeout(ctx, s.cfg.DrainTimeout+flushTime)
	defer cancelFinal()

	// In the end connections are broken, so that a handler that writes to a client that does not
	// read is not blocked.
	broken := make(chan struct{})
	stopBreaking := context.AfterFunc(final, func() {
		defer close(broken)
		_ = s.rest.Close() // it only closes broken connections
		for _, l := range s.clients {
			l.hangUpAll() // gRPC's Stop would wait for handshakes
		}
		s.grpc.Stop()
	})
	s.rest.SetKeepAlivesEnabled(false)

	if err := s.parts.Gate.Drain(drain); err != nil {
		s.cfg.Log.Warn("drain", "err", err)
	}
	// The only error is that final has ended: then the connections are closed.
	_ = s.rest.Shutdown(final)
	var err error
	select {
	case <-grpcDone:
	case <-ctx.Done():
		err = fmt.Errorf("gRPC handlers did not end: %w", context.Cause(ctx))
	}
	if !stopBreaking() && err == nil {
		<-broken
	}
	if err == nil {
		err = errors.Join(s.debug.Close(), s.admin.Close())
		s.serving.Wait()
	}
	return err
}

// pause blocks for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
