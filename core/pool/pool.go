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
	"github.com/mooringdb/mooring/core/internal/outbox"
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
	// the pool had when the connection was begun. This is where the owner marks the server unknown and clears the pool.
	// It is called without locks, and not for an establishment that the pool itself cancelled. In load-balancer mode
	// the failure is stale if the generation is below GenerationOf the service that it met, if that is known.
	ConnectFailed func(generation uint64, err error)

	// Service, if set, puts the pool in load-balancer mode: it says which service an established connection leads to.
	// Each service has a generation of its own, and is cleared on its own.
	Service func(C) ServiceID

	// MaxPinned is how many connections may be pinned at a time. 0: no bound.
	MaxPinned uint64

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

// Stats is a pool at one moment. Total is Available + InUse + Pending; Cursors and Transactions are those in use that
// are pinned.
type Stats struct {
	State      State
	Generation uint64

	Total, Available, InUse, Pending, Waiting int
	Cursors, Transactions                     int
	MaxSize, MinSize, MaxPinned               uint64 // as configured, MaxSize by default too; 0: no bound
}

// Pool is the pool of one server. Make one with New; end it with Close.
type Pool[C Resource] struct {
	cfg     Config[C]
	maxSize uint64        // 0: no maximum
	wake    chan struct{} // tells the maintenance goroutine that there is something to do; capacity 1
	stop    context.CancelFunc
	running sync.WaitGroup // the maintenance goroutine and the establishments
	wanted  uint16         // the kinds of facts that the sink listens to, as bits
	ages    bool           // it matters since when connections are available
	timed   bool           // it matters, or how long check-outs take does

	retired sync.Pool // of *waiter[C]

	outbox *outbox.Outbox[fact] // facts are added to it under mu

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
	handed     queue[C]         // waiters that have a connection and do not know it yet; unlock tells them
	clearedBy  error            // why the pool was cleared last
	populating bool             // a connection is being established for MinSize
	retry      backoff          // after establishments that failed
	interrupt  error            // what an interrupting clear that has not been carried out yet has connections fail with
	pinned     [numPurposes]int // of those in use
	server     service          // what all connections lead to, but in load-balancer mode
	services   services         // load-balancer mode's
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
		wake:   make(chan struct{}, 1),
		wanted: wants(cfg.Sink),
		conns:  make(map[*Conn[C]]struct{}),
	}
	p.outbox = outbox.New(p.deliver)
	p.ages = cfg.MaxIdleTime > 0
	p.timed = p.ages || p.wants(checkedOut) || p.wants(checkOutFailed)
	if cfg.MaxSize != nil {
		p.maxSize = *cfg.MaxSize
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	p.mu.Lock()
	p.emitLocked(fact{kind: poolCreated})
	p.unlock(nil)
	p.running.Go(func() { p.maintain(ctx) })
	return p
}

// Ready lets connections be checked out. It does nothing to a pool that is ready or closed. It does not block and
// emits nothing itself, so it may be called with a lock held. If it returns true, it has something to tell: that, and
// all that happens in the pool from then on, is held back until the caller calls Deliver, which he must do once.
func (p *Pool[C]) Ready() (held bool) {
	p.mu.Lock()
	if held = p.state == StatePaused; held {
		p.state = StateReady
		p.clearedBy = nil
		p.retry = backoff{}
		p.holdLocked()
		p.emitLocked(fact{kind: poolReady})
	}
	p.mu.Unlock()
	if held {
		p.nudge()
	}
	return held
}

// ClearOptions say how a pool is cleared.
type ClearOptions struct {
	// Cause is the error that the pool is cleared for; it stands in the errors of those who waited.
	Cause error
	// InterruptInUse also fails what is being done on the connections, and stops establishing new ones.
	InterruptInUse bool
	// Service is the one to clear in load-balancer mode, where it is required. It must be zero in the other mode.
	Service ServiceID
}

// Clear makes every connection that exists stale, pauses the pool and sends the waiters away with a
// *PoolClearedError. Stale connections are closed when they come back or soon after. Clearing a paused pool only
// counts the generation up. In load-balancer mode only the connections to opt.Service become stale; the pool stays as
// it is, and so do the waiters, since the load balancer may lead them elsewhere.
//
// Like Ready, Clear does not block and emits nothing itself, and Deliver must follow if it returns true.
func (p *Pool[C]) Clear(opt ClearOptions) (held bool) {
	if (opt.Service != ServiceID{}) != (p.cfg.Service != nil) {
		panic("bug: a service is cleared in load-balancer mode, and only there")
	}
	p.mu.Lock()
	if p.state == StateClosed {
		p.mu.Unlock()
		return false
	}
	p.generation++
	if p.cfg.Service != nil {
		p.services.clear(opt.Service, p.generation, opt.InterruptInUse)
	} else {
		p.server.clear(p.generation, opt.InterruptInUse)
	}
	if held = p.state == StateReady; held {
		p.holdLocked()
		p.emitLocked(fact{kind: poolCleared, interrupt: opt.InterruptInUse, err: opt.Cause, service: opt.Service})
	}
	if opt.InterruptInUse {
		p.interrupt = &PoolClearedError{Address: p.cfg.Address, Cause: opt.Cause, Interrupted: true}
	}
	if p.cfg.Service == nil {
		p.pauseLocked(opt.Cause)
	}
	p.mu.Unlock()
	p.nudge()
	return held
}

// pauseLocked sends all waiters away, and whoever comes until Ready.
func (p *Pool[C]) pauseLocked(cause error) {
	if p.state == StateReady {
		p.state = StatePaused
		p.clearedBy = cause
	}
	p.evictLocked(p.clearedErrorLocked(), event.CheckOutConnectionError)
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
	p.unlock(doomed)
	p.stop()
	p.running.Wait()
	p.flush()
}

// Generation counts how often the pool was cleared; in load-balancer mode, of whatever service.
func (p *Pool[C]) Generation() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.generation
}

// GenerationOf is the generation of a service in load-balancer mode: what is established now gets it, and what has
// another is stale. It grows with each Clear of the service, by 1 or more. In the other mode it is Generation.
func (p *Pool[C]) GenerationOf(service ServiceID) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg.Service == nil {
		return p.generation
	}
	return p.services.generation(service)
}

// Stats counts what the pool has.
func (p *Pool[C]) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		State: p.state, Generation: p.generation,
		Total: len(p.conns), Available: len(p.available), InUse: p.inUse, Pending: p.pending, Waiting: p.waiters.len,
		Cursors: p.pinned[PurposeCursor], Transactions: p.pinned[PurposeTransaction],
		MaxSize: p.maxSize, MinSize: p.cfg.MinSize, MaxPinned: p.cfg.MaxPinned,
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
