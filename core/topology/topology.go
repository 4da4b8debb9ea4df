// Package topology watches a deployment: a monitor for each server, a pool for each server that answers for documents,
// and the newest description of all of them, which selection reads. What a change of a server means is decided in
// package description, which servers suit in package selection; this package is the shell: goroutines, clocks, locks.
//
// Concurrency: the description is a snapshot in a broadcast.Value, so selecting takes no lock. Each monitor is a
// goroutine that owns its connection, with another beside it while it streams. One mutex serialises changes; pools are made ready and cleared under it (lock
// order: topology.mu, then pool.mu), and no I/O and no call of a sink happens under it.
package topology

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/internal/broadcast"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/seedlist"
	"github.com/mooringdb/mooring/core/topology/description"
)

// The defaults of the specifications.
const (
	DefaultHeartbeatInterval      = 10 * time.Second
	DefaultServerSelectionTimeout = 30 * time.Second
	DefaultLocalThreshold         = 15 * time.Millisecond

	// minHeartbeatInterval is between the end of a check and the next one, however urgent. It is not configurable.
	minHeartbeatInterval = 500 * time.Millisecond
)

// ErrClosed is inside the error of a selection on a topology that was closed.
var ErrClosed = errors.New("topology is closed")

// Config says what to watch, and how.
type Config struct {
	Seeds            []address.Address
	ReplicaSet       string
	DirectConnection bool
	LoadBalanced     bool

	HeartbeatInterval      time.Duration  // zero: DefaultHeartbeatInterval
	ServerSelectionTimeout time.Duration  // zero: DefaultServerSelectionTimeout; negative: selection never waits
	LocalThreshold         *time.Duration // nil: DefaultLocalThreshold; zero: only the fastest server

	// Polling has servers asked each interval also where they could tell by themselves (serverMonitoringMode poll, and
	// auto in a function as a service).
	Polling bool

	// SRV, if it is not nil, keeps the servers as the SRV records say that the seeds came from; Wanted, Found and Problem
	// are the topology's own.
	SRV *seedlist.Poller

	// ServerSelector, if it is not nil, narrows down the servers that suit an operation, before the nearest of them are
	// chosen. It must not change its argument.
	ServerSelector func(suitable []*description.Server) []*description.Server

	Conn conn.Config   // how connections are made; the ID in it is not used
	Pool PoolConfig    // how they are pooled
	Sink *event.Sink   // hears of discovery, selection and pools; its functions must not call Close
	Rand func(int) int // a random number below n, for the choice among servers; nil: math/rand
}

// PoolConfig is what the user configures about pools; zero is pool.Config's default.
type PoolConfig struct {
	MaxSize          *uint64
	MinSize          uint64
	MaxConnecting    uint64
	MaxIdleTime      time.Duration
	WaitQueueTimeout time.Duration
}

// Topology watches one deployment. New makes one; it does nothing before Start.
type Topology struct {
	cfg      Config
	id       event.TopologyID
	snapshot *broadcast.Value[*snapshot]
	outbox   *outbox
	running  sync.WaitGroup // monitors, the polling of SRV records, and the ends of removed servers

	// mu guards the fields below, and is held by whoever stores a snapshot. Nothing blocks while it is held; pool.mu and
	// the outbox's may be taken under it.
	mu    sync.Mutex
	state state
	watch func(*server) // starts a server's monitor; set by Start
	stop  context.CancelFunc
}

type state uint8

const (
	stateNew state = iota
	stateRunning
	stateClosed
)

// snapshot is a description with the servers that it describes. It is immutable.
type snapshot struct {
	topology description.Topology
	servers  []*server // as topology.Servers, one for one
	closed   bool
}

// server is the one of that address, or nil.
func (s *snapshot) server(addr address.Address) *server {
	i, ok := slices.BinarySearchFunc(s.servers, addr, func(srv *server, addr address.Address) int {
		return compare(srv.address, addr)
	})
	if !ok {
		return nil
	}
	return s.servers[i]
}

// New checks the configuration and makes a topology of servers that nothing is known of. It does no I/O.
func New(cfg Config) (*Topology, error) {
	if cfg.HeartbeatInterval == 0 {
		cfg.HeartbeatInterval = DefaultHeartbeatInterval
	}
	if cfg.HeartbeatInterval < minHeartbeatInterval {
		return nil, fmt.Errorf("heartbeat interval is %v, must be at least %v (heartbeatFrequencyMS)",
			cfg.HeartbeatInterval, minHeartbeatInterval)
	}
	if cfg.ServerSelectionTimeout == 0 {
		cfg.ServerSelectionTimeout = DefaultServerSelectionTimeout
	}
	if cfg.LocalThreshold == nil {
		cfg.LocalThreshold = new(DefaultLocalThreshold)
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.IntN
	}
	described, err := description.New(description.Settings{
		Seeds: cfg.Seeds, SetName: cfg.ReplicaSet, Direct: cfg.DirectConnection, LoadBalanced: cfg.LoadBalanced,
		HeartbeatInterval: cfg.HeartbeatInterval,
	})
	if err != nil {
		return nil, err
	}
	t := &Topology{cfg: cfg, id: bson.NewObjectID(), outbox: newOutbox(cfg.Sink)}
	first := &snapshot{topology: described}
	for _, s := range described.Servers {
		first.servers = append(first.servers, newServer(t, s.Address))
	}
	t.snapshot = broadcast.New(first)
	return t, nil
}

// Description is what is known of the deployment now.
func (t *Topology) Description() description.Topology {
	s, _ := t.snapshot.Load()
	return s.topology
}

// Watch is Description, and a channel that is closed when there is news. News may be equal to what was known.
func (t *Topology) Watch() (description.Topology, <-chan struct{}) {
	s, changed := t.snapshot.Load()
	return s.topology, changed
}

// Start begins to watch, and returns at once. The topology lives until Close; of ctx it takes the values, not the end.
func (t *Topology) Start(ctx context.Context) error {
	t.mu.Lock()
	if t.state != stateNew {
		t.mu.Unlock()
		return errors.New("topology was started before")
	}
	t.state = stateRunning
	ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	t.watch = func(srv *server) {
		ctx, cancel := context.WithCancel(ctx)
		srv.stop = cancel
		t.running.Go(func() {
			defer cancel()
			srv.monitor.run(ctx)
		})
	}
	s, _ := t.snapshot.Load()
	t.announceStart(s.topology)
	if s.topology.Kind != description.KindLoadBalanced {
		for _, srv := range s.servers {
			t.watch(srv)
		}
	}
	if t.cfg.SRV != nil {
		t.running.Go(func() { t.poll(ctx) })
	}
	t.mu.Unlock()
	t.outbox.deliver()
	if s.topology.Kind == description.KindLoadBalanced {
		t.apply(s.servers[0], description.LoadBalancer(s.servers[0].address), nil) //nolint:contextcheck // the pool outlives Start
	}
	return nil
}

// Close ends all monitors and closes all pools; connections in use are closed when they are checked in. It waits until
// all that is done, or until ctx ends. Selections that wait fail with ErrClosed. Closing again does nothing more.
func (t *Topology) Close(ctx context.Context) error {
	t.mu.Lock()
	last := t.state
	t.state = stateClosed
	s, _ := t.snapshot.Load()
	if last == stateRunning {
		t.stop()
	}
	t.mu.Unlock()
	if last == stateClosed {
		return nil
	}
	t.snapshot.Store(&snapshot{topology: s.topology.WithoutServers(), closed: true})
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.running.Wait()
		for _, srv := range s.servers {
			srv.closePool()
		}
		if last == stateRunning {
			t.announceEnd(s.topology)
			t.outbox.flush()
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close topology: %w", context.Cause(ctx))
	}
}

// apply folds in what a check of srv found. clearPool, if not nil, says how its pool is cleared then.
func (t *Topology) apply(srv *server, s *description.Server, clearPool *pool.ClearOptions) {
	t.applyIf(srv, s, clearPool, func() bool { return true })
}

// applyIf is apply, if that holds with the lock.
func (t *Topology) applyIf(srv *server, s *description.Server, clearPool *pool.ClearOptions, holds func() bool) {
	if t.wantsPool(s) {
		srv.openPool()
	}
	t.mu.Lock()
	current, _ := t.snapshot.Load()
	if t.state != stateRunning || current.server(srv.address) != srv || !holds() {
		t.mu.Unlock()
		return
	}
	next := current.topology.Apply(s)
	accepted := next.Server(s.Address) == s
	if accepted && next.IsUsable(s.Address) {
		srv.ready() // before others see that it can be selected
	}
	t.publishLocked(current, next, s.Address)
	if clearPool != nil {
		srv.clear(*clearPool)
	}
	t.mu.Unlock()
	t.outbox.deliver()
	srv.deliver()
}

// wantsPool tells whether a server that says this will be used, so far as that can be told without the lock.
func (t *Topology) wantsPool(s *description.Server) bool {
	return s.Kind.IsDataBearing() || t.cfg.DirectConnection && s.IsAvailable()
}

// fail folds in an error that a connection of srv's pool met.
func (t *Topology) fail(srv *server, f description.Failure) {
	t.mu.Lock()
	current, _ := t.snapshot.Load()
	if t.state != stateRunning || current.server(srv.address) != srv {
		t.mu.Unlock()
		return
	}
	f.Address, f.PoolGeneration = srv.address, srv.generation()
	next, effect := current.topology.Fail(f)
	if effect == (description.Effect{}) {
		t.mu.Unlock()
		return
	}
	t.publishLocked(current, next, srv.address)
	if effect.ClearPool {
		srv.clear(pool.ClearOptions{Cause: f.Err})
	}
	t.mu.Unlock()
	if effect.CancelCheck {
		srv.monitor.cancelCheck()
	}
	if effect.CheckNow {
		srv.monitor.requestCheck()
	}
	t.outbox.deliver()
	srv.deliver()
}

// publishLocked makes next the topology, in consequence of a new description of the server at cause: servers that came
// are watched, those that went are ended, events are queued, and everybody who waits looks again.
func (t *Topology) publishLocked(current *snapshot, next description.Topology, cause address.Address) {
	changes := description.Changes(current.topology, next)
	servers := t.followLocked(current, next, changes)
	t.announceChange(current.topology, next, changes)
	t.snapshot.Store(&snapshot{topology: next, servers: servers})
	for _, c := range changes {
		effect := c.SideEffect(cause)
		if effect == (description.Effect{}) {
			continue
		}
		srv := current.server(c.Current.Address)
		if effect.ClearPool {
			srv.clear(pool.ClearOptions{Cause: c.Current.LastError})
		}
		if effect.CheckNow {
			srv.monitor.requestCheck()
		}
	}
}

// followLocked makes the list of servers follow the description.
func (t *Topology) followLocked(current *snapshot, next description.Topology, changes []description.Change) []*server {
	moved := false
	for _, c := range changes {
		moved = moved || c.Previous == nil || c.Current == nil
	}
	if !moved {
		return current.servers
	}
	servers := make([]*server, len(next.Servers))
	for i, s := range next.Servers {
		if servers[i] = current.server(s.Address); servers[i] == nil {
			servers[i] = newServer(t, s.Address)
			t.watch(servers[i])
		}
	}
	for _, c := range changes {
		if c.Current == nil {
			t.endLocked(current.server(c.Previous.Address))
		}
	}
	return servers
}

// endLocked ends a server that was removed. Its connections in use are closed when they come back.
func (t *Topology) endLocked(srv *server) {
	if srv.stop != nil {
		srv.stop()
	}
	t.running.Go(srv.closePool)
}
