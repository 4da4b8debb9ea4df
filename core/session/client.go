package session

import (
	"errors"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
)

// Options holds the options of a client session.
type Options struct {
	// CausalConsistency has each operation see what the operations of the session before it have
	// read and written. Nil is true, and false with Snapshot.
	CausalConsistency *bool
	// Snapshot has all reads of the session read from one snapshot. It excludes CausalConsistency.
	Snapshot bool
	// SnapshotTime is the snapshot to read from; zero: that of the first read. It needs Snapshot.
	SnapshotTime Timestamp
	// DefaultTimeout is timeoutMS for the end of the session and of its transactions; nil: the
	// client's.
	DefaultTimeout *time.Duration
	// DefaultTransaction holds the options of transactions that do not set them; nil fields inherit
	// the client's.
	DefaultTransaction TransactionOptions
}

// Errors of Pool.Start and Pool.Resume.
var (
	errSnapshotCausal = errors.New("a session is either causally consistent or reads from a " +
		"snapshot")
	errSnapshotTime = errors.New("a snapshot time needs a session that reads from a snapshot")
)

// ErrEnded is the error of an operation in a session that has ended.
var ErrEnded = errors.New("the session has ended")

// State holds what continues a session in another process: see Pool.Resume.
type State struct {
	// ID is the session's lsid.
	ID bson.UUID
	// TxnNumber is the last number that a transaction or a retryable write of the session had.
	TxnNumber     int64
	OperationTime Timestamp
	// ClusterTime is a $clusterTime document, nil for none.
	ClusterTime  bson.Raw
	SnapshotTime Timestamp
	// Shared says that other processes use the ID at the same time. They cannot agree on
	// transaction numbers, so retryable writes of the session have another id, and the session has
	// no transactions.
	Shared bool
	// Derive, if it is set, makes the ids: the n-th numbered write of the session, from 0, has the
	// id Derive(n) and the number 1. The server carries out writes of the same id and number once,
	// whichever process sends them. A command that gets no number fails before it is sent.
	Derive func(n int) bson.UUID
}

// Client represents a client session (Driver Sessions, "ClientSession"): a server session, and the
// times that the session has seen. An explicit one is made by Pool.Start or Pool.Resume, and an
// implicit one, which belongs to a cursor, by Pool.Implicit. Its methods may be called from many
// goroutines at once, but the specification does not say what operations mean that run in one
// session at the same time.
type Client struct {
	pool     *Pool
	opt      Options
	causal   bool
	implicit bool
	shared   bool
	derive   func(n int) bson.UUID // see State

	// mu guards the fields below.
	mu            sync.Mutex
	server        *Session
	foreign       bool // another process knows the id, so it does not return to the pool
	derived       int  // the number of ids that were derived
	sent          bool // a command with such an id was
	ended         bool
	running       int // operations in the session
	operationTime Timestamp
	clusterTime   ClusterTime
	snapshotTime  Timestamp
	transaction   transaction
}

// Start returns a new explicit session.
func (p *Pool) Start(opt Options) (*Client, error) {
	c, err := p.newClient(opt)
	if err != nil {
		return nil, err
	}
	c.server = p.Acquire()
	return c, nil
}

// Resume returns an explicit session that continues another one. Its id never gets into the pool.
func (p *Pool) Resume(s State, opt Options) (*Client, error) {
	if !s.SnapshotTime.IsZero() {
		opt.SnapshotTime = s.SnapshotTime
	}
	c, err := p.newClient(opt)
	if err != nil {
		return nil, err
	}
	c.server = &Session{id: s.ID, lastUse: time.Now(), txnNumber: s.TxnNumber}
	c.foreign, c.shared, c.derive = true, s.Shared, s.Derive
	c.operationTime = s.OperationTime
	c.clusterTime = NewClusterTime(s.ClusterTime).clone()
	return c, nil
}

// ResumeImplicit returns the implicit session with that id of a cursor that another process has
// opened. The id never gets into the pool.
func (p *Pool) ResumeImplicit(id bson.UUID) *Client {
	return &Client{
		pool: p, implicit: true, foreign: true, server: &Session{id: id, lastUse: time.Now()},
	}
}

// Implicit returns an implicit session, which holds s until End.
func (p *Pool) Implicit(s *Session) *Client {
	return &Client{pool: p, implicit: true, server: s}
}

func (p *Pool) newClient(opt Options) (*Client, error) {
	causal := !opt.Snapshot
	if opt.CausalConsistency != nil {
		causal = *opt.CausalConsistency
	}
	switch {
	case causal && opt.Snapshot:
		return nil, errSnapshotCausal
	case !opt.Snapshot && !opt.SnapshotTime.IsZero():
		return nil, errSnapshotTime
	}
	return &Client{pool: p, opt: opt, causal: causal, snapshotTime: opt.SnapshotTime}, nil
}

// Of reports whether the pool has made the session.
func (c *Client) Of(p *Pool) bool { return c.pool == p }

// Options returns the options that the session was made with.
func (c *Client) Options() Options { return c.opt }

// IsImplicit reports whether no user has started the session.
func (c *Client) IsImplicit() bool { return c.implicit }

// IsShared reports whether other processes use the id at the same time: see State.
func (c *Client) IsShared() bool { return c.shared }

// ID returns the id of the session, also after its end.
func (c *Client) ID() bson.UUID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server.id
}

// State returns what continues the session in another process. From then on its id does not return
// to the pool.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.foreign = true
	return State{
		ID: c.server.id, TxnNumber: c.server.txnNumber,
		OperationTime: c.operationTime, ClusterTime: c.clusterTime.doc,
		SnapshotTime: c.snapshotTime, Shared: c.shared,
	}
}

// IsDirty reports whether a command of the session ended with a network error.
func (c *Client) IsDirty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server.dirty
}

// OperationTime returns the operationTime of the newest reply, zero if there is none.
func (c *Client) OperationTime() Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.operationTime
}

// ClusterTime returns the newest cluster time of the session.
func (c *Client) ClusterTime() ClusterTime {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clusterTime
}

// SnapshotTime returns the time of the snapshot that the session reads from, zero until that is
// known.
func (c *Client) SnapshotTime() Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshotTime
}

// AdvanceOperationTime moves the operation time to t if that is later.
func (c *Client) AdvanceOperationTime(t Timestamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.operationTime) {
		c.operationTime = t
	}
}

// AdvanceClusterTime moves the session's cluster time to t if that is later. The client's clock
// stays as it is, since only servers move that. It keeps a copy of t's document.
func (c *Client) AdvanceClusterTime(t ClusterTime) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.clusterTime) {
		c.clusterTime = t.clone()
	}
}

// AfterClusterTime returns the time that a causally consistent session asks its next read to see;
// zero for none.
func (c *Client) AfterClusterTime() Timestamp {
	if !c.causal || c.implicit {
		return Timestamp{}
	}
	return c.OperationTime()
}

// ReadsSnapshot reports whether the session reads from a snapshot.
func (c *Client) ReadsSnapshot() bool { return c.opt.Snapshot }

// SetSnapshotTime sets the time of the snapshot, unless it is set or t is zero.
func (c *Client) SetSnapshotTime(t Timestamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.snapshotTime.IsZero() {
		c.snapshotTime = t
	}
}

// Err returns ErrEnded if the session has ended, else nil.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return ErrEnded
	}
	return nil
}

// Append appends the session to a command as lsid, and counts that as a use of the session.
func (c *Client) Append(b *bson.Builder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server.Append(b)
}

// MarkDirty records that a command of the session ended with a network error.
func (c *Client) MarkDirty() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server.MarkDirty()
}

// IsExact reports whether the session derives its ids: see State.
func (c *Client) IsExact() bool { return c.derive != nil }

// NextTxnNumber returns a number for a transaction or a retryable write. If the session derives its
// ids, it takes the next one.
func (c *Client) NextTxnNumber() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.derive != nil {
		c.server = &Session{id: c.derive(c.derived), lastUse: time.Now()}
		c.derived++
	}
	return c.server.NextTxnNumber()
}

// MarkSent records that a command with an id that the session has derived is about to be sent.
func (c *Client) MarkSent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = true
}

// WasSent reports whether such a command was sent.
func (c *Client) WasSent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent
}

// Enter records that an operation begins in the session, and Leave that it has ended.
func (c *Client) Enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running++
}

// Leave records that an operation has ended: see Enter.
func (c *Client) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
}

// End ends the session, which is not pinned any more. Its server session returns to the pool,
// unless another process knows its id, or an operation runs in it. End may be called again.
func (c *Client) End() { release(c.end()) }

func (c *Client) end() (old Pin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	c.ended = true
	old, c.transaction.pin = c.transaction.pin, nil
	if c.foreign || c.running > 0 {
		return old
	}
	// The session keeps a copy for ID and IsDirty, since the original gets another holder.
	server, kept := c.server, *c.server
	c.server = &kept
	c.pool.Release(server)
	return old
}
