// Package pool keeps the connections to one server, as the Connection Monitoring and Pooling
// specification (CMAP) defines it and in its words. It is generic and knows no MongoDB: the owner
// decides what a connection is, how one is made, and what a failed establishment means.
//
// Its concurrency is one mutex over one group of fields, one goroutine that New starts and Close
// waits for, and one short-lived goroutine for each connection that is being established. Nothing
// is dialed, closed or emitted under the mutex. Waiters are served strictly in the order of
// arrival, or in turns between callers if Config.Caller tells them apart.
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

// Resource describes what the pool holds. None of the methods may block.
type Resource interface {
	// Alive reports whether the connection may still be used. Once false, it stays false.
	Alive() bool
	// Close is called once, when the pool has given the connection up.
	Close() error
	// Interrupt makes what the owner is doing with the connection fail with cause. It is called
	// from another goroutine.
	Interrupt(cause error)
}

// Config holds what New needs. Connect is required.
type Config[C Resource] struct {
	Address address.Address

	MaxSize       *uint64       // nil: DefaultMaxSize; 0: no maximum
	MinSize       uint64        // connections to keep established while the pool is ready
	MaxConnecting uint64        // 0: DefaultMaxConnecting
	MaxIdleTime   time.Duration // 0: no limit
	// WaitQueueTimeout bounds the wait for a place, not the establishment; 0 means no limit.
	WaitQueueTimeout time.Duration
	// WaitLimit, if set, returns the bound of a wait that begins now, in place of WaitQueueTimeout.
	// It must not block.
	WaitLimit func() time.Duration

	// Connect establishes a connection: dial, handshake, authentication. Its context has the
	// values of the check-out that needs the connection, but not its end, since another check-out
	// may take the connection. Connect must return soon after ctx ends: when the pool is closed,
	// or cleared with InterruptInUse.
	Connect func(ctx context.Context, connID uint64) (C, error)

	// Caller, if set, returns whose check-out it is that has to wait, by its context; the result
	// must be comparable. Each caller's check-outs are served in the order of arrival, and the
	// turn goes round between callers. If Caller is nil, there is one caller. It must not block.
	Caller func(ctx context.Context) any

	// ConnectFailed, if set, is called first when an establishment has failed, with the pool's
	// generation at the time when it began. The owner marks the server unknown and clears the
	// pool here. It is called without locks, and not for an establishment that the pool itself
	// has canceled. In load-balancer mode the failure is stale if the generation is below
	// GenerationOf the service that it reached, if that is known.
	//
	// It returns true if the failure is the owner's own and says nothing about the server. Then the
	// pool begins no establishment for half a second: the check-outs that wait are for the
	// connections that it has. If it has none, they fail with the same error.
	ConnectFailed func(generation uint64, err error) (own bool)

	// Service, if set, puts the pool in load-balancer mode. It returns the service that an
	// established connection leads to. Each service has its own generation and is cleared
	// separately.
	Service func(C) ServiceID

	// MaxPinned limits how many connections may be pinned at a time; 0 means no limit.
	MaxPinned uint64

	// Sink receives the pool's events. It must not call the pool.
	Sink *event.Sink

	// MaintenanceInterval sets how often the pool looks for idle connections and for MinSize, in
	// addition to the changes that require it. 0 means ten seconds; a negative value turns both
	// off, which the specification's tests need.
	MaintenanceInterval time.Duration
}

// State says whether the pool gives out connections.
type State uint8

// The states of the specification.
const (
	// StatePaused gives out and makes no connections: the server is not known to be available.
	StatePaused State = iota
	StateReady
	StateClosed
)

func (s State) String() string { return [...]string{"paused", "ready", "closed"}[s] }

// Stats holds counts of a pool at one moment. Total is Available + InUse + Pending; Cursors and
// Transactions are the pinned ones of those in use.
type Stats struct {
	State      State
	Generation uint64

	Total, Available, InUse, Pending, Waiting int
	Cursors, Transactions                     int
	// The limits are as configured, MaxSize with its default; 0 means no limit.
	MaxSize, MinSize, MaxPinned uint64
}

// Pool keeps the connections to one server. New makes one; Close ends it.
type Pool[C Resource] struct {
	cfg     Config[C]
	maxSize uint64 // 0: no maximum
	wake    signal // wakes the maintenance goroutine
	stop    context.CancelFunc
	running sync.WaitGroup // the maintenance goroutine and the establishments
	ages    bool           // MaxIdleTime needs the time since when connections are available
	timed   bool           // an event needs the duration of check-outs, or ages is set
	retired retired[C]     // waiters for reuse
	facts   facts          // queued under mu

	// mu guards the fields below. Nothing blocks while it is held; the owner may hold a lock of
	// its own around Ready and Clear.
	mu          sync.Mutex
	state       State
	generations generations
	lastID      uint64
	counts      counts
	conns       map[*Conn[C]]struct{} // all that are not closed
	available   []*Conn[C]            // the most recently used last
	waiting     waiting[C]
	clearedBy   error // the cause of the last Clear
	growth      growth
}

// New returns a paused pool and starts its goroutine.
func New[C Resource](cfg Config[C]) *Pool[C] {
	if cfg.MaxConnecting == 0 {
		cfg.MaxConnecting = DefaultMaxConnecting
	}
	if cfg.MaintenanceInterval == 0 {
		cfg.MaintenanceInterval = defaultMaintenanceInterval
	}
	p := &Pool[C]{
		cfg: cfg, maxSize: DefaultMaxSize,
		wake:  make(signal, 1),
		conns: make(map[*Conn[C]]struct{}),
	}
	if cfg.MaxSize != nil {
		p.maxSize = *cfg.MaxSize
	}
	p.facts = newFacts(cfg.Sink, cfg.Address, cfg.options(p.maxSize))
	p.ages = cfg.MaxIdleTime > 0
	p.timed = p.ages || p.facts.wants(checkedOut) || p.facts.wants(checkOutFailed)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	p.mu.Lock()
	p.facts.emit(fact{kind: poolCreated})
	p.unlock(nil)
	p.running.Go(func() { p.maintain(ctx) })
	return p
}

// Ready lets connections be checked out. It does nothing to a pool that is ready or closed. It
// does not block and delivers no event, so the caller may hold a lock. If it returns true, it
// holds back its event and all later ones until the caller calls Deliver, once.
func (p *Pool[C]) Ready() (held bool) {
	p.mu.Lock()
	if held = p.state == StatePaused; held {
		p.state = StateReady
		p.clearedBy = nil
		p.growth.restart()
		p.facts.hold()
		p.facts.emit(fact{kind: poolReady})
	}
	p.mu.Unlock()
	if held {
		p.wake.nudge()
	}
	return held
}

// ClearOptions holds what Clear needs to know.
type ClearOptions struct {
	// Cause is the error that the pool is cleared for. The errors of refused waiters carry it.
	Cause error
	// InterruptInUse also interrupts the connections in use and cancels the pending ones.
	InterruptInUse bool
	// Service names the service to clear. It is required in load-balancer mode and zero in the
	// other.
	Service ServiceID
}

// Clear makes every existing connection stale, pauses the pool and refuses the waiters with a
// *PoolClearedError. Stale connections are closed when they are checked in, or soon after.
// Clearing a paused pool only increases the generation. In load-balancer mode only the
// connections to opt.Service become stale; the pool is not paused and the waiters stay, since the
// load balancer may lead them to another service.
//
// Like Ready, Clear does not block and delivers no event. If it returns true, the caller calls
// Deliver.
func (p *Pool[C]) Clear(opt ClearOptions) (held bool) {
	if (opt.Service != ServiceID{}) != (p.cfg.Service != nil) {
		panic("bug: a service is cleared in load-balancer mode, and only there")
	}
	p.mu.Lock()
	if p.state == StateClosed {
		p.mu.Unlock()
		return false
	}
	p.generations.clear(opt.Service, opt.InterruptInUse)
	if held = p.state == StateReady; held {
		p.facts.hold()
		p.facts.emit(fact{
			kind: poolCleared, interrupt: opt.InterruptInUse, err: opt.Cause,
			service: opt.Service,
		})
	}
	if opt.InterruptInUse {
		p.generations.interrupt = &PoolClearedError{
			Address: p.cfg.Address, Cause: opt.Cause, Interrupted: true,
		}
	}
	if p.cfg.Service == nil {
		p.pauseLocked(opt.Cause)
	}
	p.mu.Unlock()
	p.wake.nudge()
	return held
}

// pauseLocked refuses all waiters, and all check-outs until Ready.
func (p *Pool[C]) pauseLocked(cause error) {
	if p.state == StateReady {
		p.state = StatePaused
		p.clearedBy = cause
	}
	p.evictLocked(p.clearedErrorLocked(), event.CheckOutConnectionError)
}

// Close closes the pool: available connections at once, those in use when they are checked in.
// Waiters fail with ErrClosed. Close blocks until the pool's goroutines have ended. A second
// Close does nothing.
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
	p.facts.emit(fact{kind: poolClosed})
	p.unlock(doomed)
	p.stop()
	p.running.Wait()
	p.facts.flush()
}

// Generation returns how often the pool was cleared; in load-balancer mode all services count.
func (p *Pool[C]) Generation() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.generations.count
}

// GenerationOf returns the generation of a service in load-balancer mode. A connection that is
// established now gets it; a connection with another one is stale. It grows by 1 or more with
// each Clear of the service. In the other mode it returns Generation.
func (p *Pool[C]) GenerationOf(service ServiceID) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg.Service == nil {
		return p.generations.count
	}
	return p.generations.services.generation(service)
}

// IsServing reports whether the pool has established connections that can be used: to that service
// in load-balancer mode. It takes time in proportion to the connections.
func (p *Pool[C]) IsServing(service ServiceID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		established := c.state != connPending && c.service == service
		if established && c.resource.Alive() && !c.isStaleLocked() {
			return true
		}
	}
	return false
}

// Stats returns the pool's counts.
func (p *Pool[C]) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := &p.counts
	return Stats{
		State: p.state, Generation: p.generations.count,
		Total: len(p.conns), Available: len(p.available), InUse: n.inUse, Pending: n.pending,
		Waiting: p.waiting.queued.len,
		Cursors: n.pinned[PurposeCursor], Transactions: n.pinned[PurposeTransaction],
		MaxSize: p.maxSize, MinSize: p.cfg.MinSize, MaxPinned: p.cfg.MaxPinned,
	}
}

// signal wakes a goroutine; capacity 1.
type signal chan struct{}

// nudge wakes the goroutine, now or when it waits next.
func (s signal) nudge() {
	select {
	case s <- struct{}{}:
	default:
	}
}

func (p *Pool[C]) clearedErrorLocked() *PoolClearedError {
	return &PoolClearedError{Address: p.cfg.Address, Cause: p.clearedBy}
}

// evictLocked refuses all waiters, except those whose connection is being established: the end of
// the establishment serves or refuses them.
func (p *Pool[C]) evictLocked(err error, reason event.CheckOutFailedReason) {
	for w := p.waiting.queued.pop(); w != nil; w = p.waiting.queued.pop() {
		w.refuse(&p.facts, err, reason)
	}
}
