// Package pool is the connection pool of one server, as the Connection Monitoring and Pooling specification (CMAP)
// defines it and in its words. It is generic and knows no MongoDB: what a connection is, how one is made and what a
// failure to make one means are its owner's business.
//
// Its concurrency is one mutex over one group of fields, one goroutine that New starts and Close waits for, and one
// short-lived goroutine for each connection while it is being established. Nothing is dialled, closed or emitted under
// the mutex. Waiters are served strictly in the order in which they came.
package pool

import (
	"context"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/event"
)

// The defaults of the specification.
const (
	DefaultMaxSize             = 100
	DefaultMaxConnecting       = 2
	defaultMaintenanceInterval = 10 * time.Second
)

// Resource is what a pooled connection has to be able to do. None of the methods may block.
type Resource interface {
	// Alive is false once the connection must not be used again.
	Alive() bool
	// Close is called once, when the pool is done with the connection.
	Close() error
	// Interrupt makes what the owner is doing with the connection fail with cause. It is called from another goroutine.
	Interrupt(cause error)
}

// Config is what a pool needs. Connect is required.
type Config[C Resource] struct {
	Address address.Address

	MaxSize          *uint64       // nil: DefaultMaxSize; 0: no maximum
	MinSize          uint64        // connections to keep established while the pool is ready
	MaxConnecting    uint64        // 0: DefaultMaxConnecting
	MaxIdleTime      time.Duration // 0: no limit
	WaitQueueTimeout time.Duration // 0: no limit; bounds the wait for a place, not the establishment

	// Connect establishes a connection: dial, handshake, authentication. It gets the values of the context of the
	// check-out that wants it but not its end, since another may take the connection then. It must return soon after
	// ctx ends, which it does when the pool is closed or cleared with InterruptInUse.
	Connect func(ctx context.Context, connID uint64) (C, error)

	// ConnectFailed, if set, hears of an establishment that failed, before anybody else and with the generation that
	// the connection had. This is where the owner marks the server unknown and clears the pool. It is called without
	// locks, and not for an establishment that the pool itself cancelled.
	ConnectFailed func(generation uint64, err error)

	// Sink hears of the pool's events; it must not call the pool.
	Sink *event.Sink

	// MaintenanceInterval is how often idle connections are looked for and MinSize is seen to, beside the occasions
	// that call for it. 0: ten seconds; negative: never, and on no occasion (for the specification's tests).
	MaintenanceInterval time.Duration
}

// State is what a pool is doing.
type State uint8

// The states of the specification.
const (
	StatePaused State = iota // no connection is given out nor made: the server is not known to be there
	StateReady
	StateClosed
)

func (s State) String() string { return [...]string{"paused", "ready", "closed"}[s] }

// Stats is a pool at one moment. Total is Available + InUse + Pending.
type Stats struct {
	State      State
	Generation uint64

	Total, Available, InUse, Pending, Waiting int
}

// Pool is the pool of one server. Make one with New; end it with Close.
type Pool[C Resource] struct {
	cfg     Config[C]
	maxSize uint64        // 0: no maximum
	wake    chan struct{} // tells the maintenance goroutine that there is something to do; capacity 1
	stop    context.CancelFunc
	running sync.WaitGroup // the maintenance goroutine and the establishments
	outbox  sync.Mutex     // held while events are delivered; never taken under mu

	// mu guards the fields below. Nothing blocks while it is held; the owner may hold a lock of its own around Ready
	// and Clear.
	mu         sync.Mutex
	state      State
	generation uint64
	lastID     uint64
	pending    int
	inUse      int
	conns      map[*Conn[C]]struct{} // all that are not closed
	available  []*Conn[C]            // the last is the one that was used last
	waiters    queue[C]
	clearedBy  error // why the pool was cleared last
	populating bool  // a connection is being established for MinSize
	interrupt  bool  // an interrupting clear has not been carried out yet
	events     []fact
	spare      []fact // the slice that events will be next
}

// New makes a paused pool and starts its goroutine.
func New[C Resource](cfg Config[C]) *Pool[C] {
	if cfg.MaxConnecting == 0 {
		cfg.MaxConnecting = DefaultMaxConnecting
	}
	if cfg.MaintenanceInterval == 0 {
		cfg.MaintenanceInterval = defaultMaintenanceInterval
	}
	p := &Pool[C]{
		cfg: cfg, maxSize: DefaultMaxSize,
		wake:  make(chan struct{}, 1),
		conns: make(map[*Conn[C]]struct{}),
	}
	if cfg.MaxSize != nil {
		p.maxSize = *cfg.MaxSize
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	p.mu.Lock()
	p.emitLocked(fact{kind: poolCreated})
	p.unlock()
	p.running.Go(func() { p.maintain(ctx) })
	return p
}

// Ready lets connections be checked out. It does nothing to a pool that is ready or closed. It does not block and
// emits nothing itself, so it may be called with a lock held; Deliver afterwards hands over what it has to tell.
func (p *Pool[C]) Ready() {
	p.mu.Lock()
	if p.state == StatePaused {
		p.state = StateReady
		p.clearedBy = nil
		p.emitLocked(fact{kind: poolReady})
	}
	p.mu.Unlock()
	p.nudge()
}

// ClearOptions say how a pool is cleared.
type ClearOptions struct {
	// Cause is the error that the pool is cleared for; it stands in the errors of those who waited.
	Cause error
	// InterruptInUse also fails what is being done on the connections, and stops establishing new ones.
	InterruptInUse bool
}

// Clear makes every connection that exists stale, pauses the pool and sends the waiters away with a
// *PoolClearedError. Stale connections are closed when they come back or soon after. Clearing a paused pool only
// counts the generation up. Like Ready, Clear does not block and emits nothing itself.
func (p *Pool[C]) Clear(opt ClearOptions) {
	p.mu.Lock()
	if p.state == StateClosed {
		p.mu.Unlock()
		return
	}
	p.generation++
	if p.state == StateReady {
		p.state = StatePaused
		p.clearedBy = opt.Cause
		p.emitLocked(fact{kind: poolCleared, interrupt: opt.InterruptInUse, err: opt.Cause})
	}
	p.interrupt = p.interrupt || opt.InterruptInUse
	p.evictLocked(p.clearedErrorLocked(), event.CheckOutConnectionError)
	p.mu.Unlock()
	p.nudge()
}

// Close closes the pool for good: the available connections at once, those in use when they are checked in. Waiters
// fail with ErrClosed. It waits for the pool's goroutines. Closing again does nothing.
func (p *Pool[C]) Close() {
	p.mu.Lock()
	if p.state == StateClosed {
		p.mu.Unlock()
		p.running.Wait()
		return
	}
	p.state = StateClosed
	closedErr := &ClosedError{p.cfg.Address}
	p.evictLocked(closedErr, event.CheckOutPoolClosed)
	var doomed []*Conn[C]
	for _, c := range p.available {
		p.closeLocked(c, event.ClosedPoolClosed, nil)
		doomed = append(doomed, c)
	}
	p.available = nil
	for c := range p.conns {
		if c.state == connPending {
			c.cancel(closedErr)
		}
	}
	p.emitLocked(fact{kind: poolClosed})
	p.unlock()
	closeAll(doomed)
	p.stop()
	p.running.Wait()
	p.Deliver()
}

// Generation counts how often the pool was cleared.
func (p *Pool[C]) Generation() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.generation
}

// Stats counts what the pool has.
func (p *Pool[C]) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		State: p.state, Generation: p.generation,
		Total: len(p.conns), Available: len(p.available), InUse: p.inUse, Pending: p.pending, Waiting: p.waiters.len,
	}
}

// nudge wakes the maintenance goroutine.
func (p *Pool[C]) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Pool[C]) clearedErrorLocked() *PoolClearedError {
	return &PoolClearedError{Address: p.cfg.Address, Cause: p.clearedBy}
}

// evictLocked sends all waiters away, those whose connection is being established excepted: they hear from that.
func (p *Pool[C]) evictLocked(err error, reason event.CheckOutFailedReason) {
	for w := p.waiters.pop(); w != nil; w = p.waiters.pop() {
		p.refuseLocked(w, err, reason)
	}
}
