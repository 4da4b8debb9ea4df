// Package topology watches a deployment: a monitor for each server, a pool for each server that answers for documents,
// and the newest description of all of them, which selection reads. What a change of a server means is decided in
// package description, which servers suit in package selection; this package is the shell: goroutines, clocks, locks.
//
// Concurrency: the description is a snapshot in a broadcast.Value, so selecting takes no lock. Each monitor is a
// goroutine that owns its connection, with another beside it while it streams. One mutex serialises changes; pools are made
// ready and cleared under it (lock order: topology.mu, then pool.mu), and no I/O and no call of a sink happens under it.
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
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/internal/broadcast"
	"github.com/mooringdb/mooring/core/seedlist"
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
	Rand func(int) int // a random number below n, for the choice among servers; nil: math/rand

	// Sink hears of discovery, selection and pools. Its functions must neither call Close nor run operations, not even on
	// another goroutine that they wait for: an operation that fails waits until what follows from it has been told.
	Sink *event.Sink
}

// PoolConfig is what the user configures about pools; zero is pool.Config's default.
type PoolConfig struct {
	MaxSize          *uint64
	MinSize          uint64
	MaxConnecting    uint64
	MaxIdleTime      time.Duration
	WaitQueueTimeout time.Duration
	MaxPinned        uint64 // most connections of a pool that may be pinned at a time; zero: no bound
}

// Topology watches one deployment. New makes one; it does nothing before Start.
type Topology struct {
	cfg      Config
	id       event.TopologyID
	snapshot *broadcast.Value[*snapshot]
	outbox   *outbox
	running  sync.WaitGroup // monitors, the polling of SRV records, changes that are being told, and the ends of removed servers

	// mu guards the fields below, and is held by whoever stores a snapshot. Nothing blocks while it is held; pool.mu and
	// the outbox's may be taken under it.
	mu    sync.Mutex
	state state
	watch func(*server) // starts a server's monitor; set by Start
	stop  context.CancelFunc

	closed chan struct{} // closed when Close has done all
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
	cfg.Conn.LoadBalanced = cfg.LoadBalanced
	described, err := description.New(description.Settings{
		Seeds: cfg.Seeds, SetName: cfg.ReplicaSet, Direct: cfg.DirectConnection, LoadBalanced: cfg.LoadBalanced,
		HeartbeatInterval: cfg.HeartbeatInterval,
	})
	if err != nil {
		return nil, err
	}
	t := &Topology{cfg: cfg, id: bson.NewObjectID(), outbox: newOutbox(cfg.Sink), closed: make(chan struct{})}
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
	switch t.state {
	case stateNew:
	case stateRunning:
		t.mu.Unlock()
		return errors.New("topology was started before")
	case stateClosed:
		t.mu.Unlock()
		return ErrClosed
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
	t.warnIfDeserted(s.topology)
	if !t.cfg.LoadBalanced {
		for _, srv := range s.servers {
			t.watch(srv)
		}
		if t.cfg.SRV != nil {
			t.running.Go(func() { t.poll(ctx) })
		}
	}
	t.mu.Unlock()
	t.outbox.deliver()
	if t.cfg.LoadBalanced { // nobody monitors it: it is what it is from the start
		srv := s.servers[0]
		t.apply(srv, description.LoadBalancer(srv.address), nil) //nolint:contextcheck // the pool outlives Start
	}
	return nil
}

// Close ends all monitors and closes all pools; connections in use are closed when they are checked in. It waits until
// all that is done, or until ctx ends. Selections that wait fail with ErrClosed. Closing again only waits for that.
func (t *Topology) Close(ctx context.Context) error {
	t.mu.Lock()
	if t.state != stateClosed {
		t.endLocked()
	}
	t.mu.Unlock()
	select {
	case <-t.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close topology: %w", context.Cause(ctx))
	}
}

// endLocked begins the end, which closes t.closed.
func (t *Topology) endLocked() {
	started := t.state == stateRunning
	t.state = stateClosed
	if started {
		t.stop()
	}
	s, _ := t.snapshot.Load()
	t.snapshot.Store(&snapshot{topology: s.topology.WithoutServers(), closed: true})
	go func() {
		defer close(t.closed)
		t.running.Wait()
		for _, srv := range s.servers {
			srv.closePool()
		}
		if started {
			t.announceEnd(s.topology)
			t.outbox.flush()
		}
	}()
}
