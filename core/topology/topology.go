// Package topology watches a deployment: it runs a monitor for each server, keeps a pool for each
// server that serves documents, and publishes the newest description of all of them for selection.
// Package description decides what a change of a server means, and package selection which servers
// suit. This package is the shell: goroutines, clocks, locks.
//
// Concurrency: the description is a snapshot in a broadcast.Value, so selecting takes no lock.
// Each monitor is a goroutine that owns its connection, with another goroutine beside it while it
// streams. One mutex serializes changes. Pools are made ready and cleared under it (lock order:
// topology.mu, then pool.mu). No I/O and no call of a sink happens under it.
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
	"github.com/mooringdb/mooring/core/internal/outbox"
	"github.com/mooringdb/mooring/core/seedlist"
)

// The defaults of the specifications.
const (
	DefaultHeartbeatInterval      = 10 * time.Second
	DefaultServerSelectionTimeout = 30 * time.Second
	DefaultLocalThreshold         = 15 * time.Millisecond

	// minHeartbeatInterval is the time from the end of a check to the next one at least. It is not
	// configurable.
	minHeartbeatInterval = 500 * time.Millisecond
)

// ErrClosed is wrapped by the error of a selection on a topology that was closed.
var ErrClosed = errors.New("topology is closed")

// Config states what to watch, and how.
type Config struct {
	Seeds            []address.Address
	ReplicaSet       string
	DirectConnection bool
	LoadBalanced     bool

	HeartbeatInterval time.Duration // zero: DefaultHeartbeatInterval
	// ServerSelectionTimeout is DefaultServerSelectionTimeout if it is zero. If it is negative,
	// selection never waits.
	ServerSelectionTimeout time.Duration
	// LocalThreshold is DefaultLocalThreshold if it is nil. Zero means only the fastest server.
	LocalThreshold *time.Duration

	// Polling has monitors poll servers that could stream (serverMonitoringMode poll, and auto in
	// a function as a service).
	Polling bool

	// SRV, if it is not nil, keeps the servers in accord with the SRV records that the seeds came
	// from. The topology sets Wanted, Found and Problem itself.
	SRV *seedlist.Poller

	// ServerSelector, if it is not nil, narrows the list of suitable servers before the nearest of
	// them are chosen. It must not change its argument.
	ServerSelector func(suitable []*description.Server) []*description.Server

	Conn conn.Config   // how connections are made; the ID in it is not used
	Pool PoolConfig    // how they are pooled
	Rand func(int) int // a random number below n, for the choice among servers; nil: math/rand

	// Sink receives the events of discovery, selection and pools. Its functions must neither call
	// Close nor run operations, not even on another goroutine that they wait for: an operation
	// that fails waits until the events that follow are delivered.
	Sink *event.Sink
}

// PoolConfig has what the user configures about pools. Zero is pool.Config's default.
type PoolConfig struct {
	MaxSize          *uint64
	MinSize          uint64
	MaxConnecting    uint64
	MaxIdleTime      time.Duration
	WaitQueueTimeout time.Duration
	// WaitLimit is pool.Config's.
	WaitLimit func() time.Duration
	// MaxPinned is the number of connections of a pool that may be pinned at a time; zero: no
	// bound.
	MaxPinned uint64
	// Caller is pool.Config's.
	Caller func(ctx context.Context) any
}

// Topology watches one deployment. New makes one; it does nothing before Start.
type Topology struct {
	cfg      Config
	id       event.TopologyID
	snapshot *broadcast.Value[*snapshot]
	outbox   *outbox.Outbox[func()]
	// running counts monitors, the polling of SRV records, changes whose events are delivered, and
	// the ends of removed servers.
	running sync.WaitGroup

	// mu guards the fields below, and is held while a snapshot is stored. Nothing blocks while
	// it is held; pool.mu and the outbox's may be taken under it.
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

// snapshot holds a description with the servers that it describes. It is immutable.
type snapshot struct {
	topology description.Topology
	servers  []*server // as topology.Servers, one for one
	closed   bool
}

// server returns the server with that address, or nil.
func (s *snapshot) server(addr address.Address) *server {
	i, ok := slices.BinarySearchFunc(s.servers, addr, func(srv *server, addr address.Address) int {
		return compare(srv.address, addr)
	})
	if !ok {
		return nil
	}
	return s.servers[i]
}

// New checks the configuration and returns a topology of unknown servers. It does no I/O.
func New(cfg Config) (*Topology, error) {
	if cfg.HeartbeatInterval == 0 {
		cfg.HeartbeatInterval = DefaultHeartbeatInterval
	}
	if cfg.HeartbeatInterval < minHeartbeatInterval {
		return nil, fmt.Errorf("heartbeat interval is %v, must be at least %v "+
			"(heartbeatFrequencyMS)",
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
		Seeds: cfg.Seeds, SetName: cfg.ReplicaSet,
		Direct: cfg.DirectConnection, LoadBalanced: cfg.LoadBalanced,
		HeartbeatInterval: cfg.HeartbeatInterval,
	})
	if err != nil {
		return nil, err
	}
	t := &Topology{
		cfg: cfg, id: bson.NewObjectID(), outbox: outbox.New(func(tell func()) { tell() }),
		closed: make(chan struct{}),
	}
	first := &snapshot{topology: described}
	for _, s := range described.Servers {
		first.servers = append(first.servers, newServer(t, s.Address))
	}
	t.snapshot = broadcast.New(first)
	return t, nil
}

// Description returns the newest description of the deployment.
func (t *Topology) Description() description.Topology {
	s, _ := t.snapshot.Load()
	return s.topology
}

// Watch returns the newest description, and a channel that is closed when there is a newer one,
// which may be equal.
func (t *Topology) Watch() (description.Topology, <-chan struct{}) {
	s, changed := t.snapshot.Load()
	return s.topology, changed
}

// Start begins to watch, and returns at once. The topology lives until Close. It uses ctx's
// values, not its end.
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
	t.outbox.Deliver()
	if t.cfg.LoadBalanced { // it has no monitor and is known from the start
		srv := s.servers[0]
		//nolint:contextcheck // the pool outlives Start
		t.apply(srv, description.LoadBalancer(srv.address), nil)
	}
	return nil
}

// Close ends all monitors and closes all pools. Connections in use are closed when they are
// checked in. It blocks until all that is done, or until ctx ends. Selections that wait fail with
// ErrClosed. A second call only waits.
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
			t.outbox.Flush()
		}
	}()
}
