package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
)

// Server represents a selected server, as the selection saw it. It is a small value and usable as
// long as the server is part of the topology.
//
// A Server is for one operation. The operation counts from Select on in the choice among servers
// (Server Selection, "operationCount"): until CheckIn, until CheckOut fails, or until Release if
// there is no check-out.
type Server struct {
	server      *server
	description *description.Server
	kind        description.Kind
	// left is what remains of ServerSelectionTimeout for the check-out; 0: nothing bounds that.
	left time.Duration
}

// Address returns the server's address.
func (s Server) Address() address.Address { return s.description.Address }

// Description returns the server in the snapshot that it was selected from. The caller must not
// change it.
func (s Server) Description() *description.Server { return s.description }

// TopologyKind returns the topology's kind in the same snapshot.
func (s Server) TopologyKind() description.Kind { return s.kind }

// CheckOut returns a connection of the server's pool. It blocks until there is one or ctx ends. If
// timeoutMS governs ctx, selection and check-out together take no longer than
// ServerSelectionTimeout (Client Side Operations Timeout, "Server Selection"). The caller owns the
// connection until CheckIn.
func (s Server) CheckOut(ctx context.Context) (*pool.Conn[*conn.Conn], error) {
	p := s.server.pool.Load()
	if p == nil {
		s.Release()
		return nil, fmt.Errorf("check out from %s: a server of kind %v has no pool",
			s.Address(), s.description.Kind)
	}
	c, err := p.CheckOutWithin(ctx, s.left)
	if err != nil {
		s.Release()
	}
	return c, err
}

// Release ends the operation of a selection that checked no connection out.
func (s Server) Release() { s.server.operations.Add(-1) }

// CheckIn returns the connection to the pool. err is the error of its last exchange; the topology
// learns from it, as with Fail.
func (s Server) CheckIn(c *pool.Conn[*conn.Conn], err error) {
	s.Fail(c, err)
	s.Release()
	s.server.pool.Load().CheckIn(c)
}

// Fail tells the topology of an error on the connection, before the connection is used again or
// checked in. Errors that say nothing about the server, nil among them, change nothing.
func (s Server) Fail(c *pool.Conn[*conn.Conn], err error) {
	if err == nil || !mongoerr.IsNetwork(err) && !mongoerr.IsStateChange(err) {
		return
	}
	s.server.topology.fail(s.server, description.Failure{
		Err: err, Generation: c.Generation(), Service: c.Service(),
		MaxWireVersion: c.Resource().Description().MaxWireVersion,
	})
}

// Pin marks a connection whose owner keeps it for longer than one operation, and why.
// pool.PurposeOther takes that back, and so does CheckIn. The error is a *pool.PinLimitError; the
// owner keeps the connection in either case.
func (s Server) Pin(c *pool.Conn[*conn.Conn], why pool.Purpose) error {
	return s.server.pool.Load().Pin(c, why)
}

// server holds what the topology keeps for each address that it watches.
type server struct {
	topology   *Topology
	address    address.Address
	monitor    *monitor
	stop       context.CancelFunc // of the monitor; guarded by topology.mu
	operations atomic.Int64       // that have selected the server and are not over
	processes  processes          // that answered at the address; guarded by topology.mu

	// pool is nil until the server is usable for the first time.
	pool    atomic.Pointer[pool.Pool[*conn.Conn]]
	opening sync.Mutex // held while the pool is made or closed
	closed  bool       // guarded by opening
}

func newServer(t *Topology, addr address.Address) *server {
	srv := &server{topology: t, address: addr}
	srv.monitor = newMonitor(t, srv)
	return srv
}

// openPool makes the pool if there is none; it is paused. It reports whether there is one: a
// server that has ended gets none. The caller must not hold topology.mu, since a new pool emits an
// event.
func (s *server) openPool() bool {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.closed {
		return false
	}
	if s.pool.Load() == nil {
		s.pool.Store(pool.New(s.poolConfig()))
	}
	return true
}

func (s *server) poolConfig() pool.Config[*conn.Conn] {
	cfg := s.topology.cfg
	out := pool.Config[*conn.Conn]{
		Address: s.address,
		MaxSize: cfg.Pool.MaxSize, MinSize: cfg.Pool.MinSize, MaxConnecting: cfg.Pool.MaxConnecting,
		MaxIdleTime: cfg.Pool.MaxIdleTime, WaitQueueTimeout: cfg.Pool.WaitQueueTimeout,
		WaitLimit: cfg.Pool.WaitLimit,
		MaxPinned: cfg.Pool.MaxPinned, Caller: cfg.Pool.Caller,
		Connect:       s.connect,
		ConnectFailed: s.connectFailed,
		Sink:          cfg.Sink,
	}
	if cfg.LoadBalanced {
		out.Service = func(c *conn.Conn) pool.ServiceID { return c.Description().ServiceID }
	}
	return out
}

// connectFailed applies an error of a connection that was being established. It reports whether the
// error is of the credential, and so changes nothing.
func (s *server) connectFailed(generation uint64, err error) (own bool) {
	// Behind a load balancer an error before or during hello is not a service's; that of an
	// authentication names it.
	service := serviceOf(err)
	if isOfCredential(err, s.pool.Load().IsServing(service)) {
		return true
	}
	s.topology.fail(s, description.Failure{
		Err: err, Generation: generation, Handshaking: true, Service: service,
	})
	return false
}

// isOfCredential reports whether the failure concerns the credential alone. SDAM makes a server
// unknown after each failed authentication. Here it stays known if this side could not get its
// credential. It also stays known if it refused the credential, as long as it is serving
// connections that have logged in before: they can go on while a password is being changed.
func isOfCredential(err error, serving bool) bool {
	e, ok := errors.AsType[*auth.Error](err)
	return ok && (e.Kind == auth.KindCredential || serving && e.RefusesCredential())
}

// serviceOf returns the service whose authentication failed, zero if there is none.
func serviceOf(err error) bson.ObjectID {
	if e, ok := errors.AsType[*auth.Error](err); ok {
		return e.Service
	}
	return bson.ObjectID{}
}

// connect makes a connection for the pool.
func (s *server) connect(ctx context.Context, id uint64) (*conn.Conn, error) {
	cfg := s.topology.cfg.Conn
	cfg.ID = id
	generation, seen := s.generation(bson.ObjectID{}), s.topology.Description().Server(s.address)
	c, err := conn.Dial(ctx, s.address, cfg)
	if err == nil && !s.topology.cfg.LoadBalanced {
		//nolint:contextcheck // a pool outlives what opens it
		s.learn(c.Description(), generation, seen)
	}
	return c, err
}

// learn applies the hello of an application's connection like that of a check, unless the pool was
// cleared since the connection was begun: the hello describes the server before that.
func (s *server) learn(hello *description.Server, generation uint64, seen *description.Server) {
	d := *hello
	d.AverageRTT, d.MinRTT = s.monitor.rtt.read()
	d.LastUpdateTime = time.Now()
	s.topology.applyIf(s, &d, nil, func(current *description.Server) bool {
		return s.generation(bson.ObjectID{}) == generation &&
			(d.TopologyVersion != nil || current == seen)
	})
}

func (s *server) closePool() {
	s.opening.Lock()
	s.closed = true
	s.opening.Unlock()
	if p := s.pool.Load(); p != nil {
		p.Close()
	}
}

// generation returns the generation of the pool or, behind a load balancer, of a service.
func (s *server) generation(service bson.ObjectID) uint64 {
	p := s.pool.Load()
	switch {
	case p == nil:
		return 0
	case service.IsZero():
		return p.Generation()
	}
	return p.GenerationOf(service)
}

func compare(a, b address.Address) int { return strings.Compare(string(a), string(b)) }
