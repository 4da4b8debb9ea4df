// Package cursor reads the result of a command in batches, with one getMore each on the server
// that holds the cursor. It ends a cursor on that server when it is closed early.
//
// A cursor has no goroutine, and its State is all that a getMore needs, so another process can
// continue it. It holds no connection between its calls, except behind a load balancer. There only
// the connection that opened the cursor leads to the service that holds it, so the cursor pins the
// connection until it is exhausted or closed. The package retries nothing, since a getMore cannot
// be repeated, and does not decode documents: those of a batch are views on the reply. They stay
// valid, unless the caller asks for lent memory.
package cursor

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/ctxwatch"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/session"
)

// Batch holds the content of one reply.
type Batch struct {
	// Documents are views on the reply's buffer. The batch may be empty although the cursor goes
	// on.
	Documents []bson.Raw
	// Bytes is the sum of the documents' lengths.
	Bytes int
	// Buffer is the size of the reply, which the documents keep in memory: at least Bytes, and much
	// more if the server sends other large fields.
	Buffer int
	// PostBatchResumeToken is a change stream's position after the batch; nil for other cursors.
	PostBatchResumeToken bson.Raw
	// Lent is the memory of the reply, of which the caller of NextLent has one reference. Nil: what
	// the batch has stays valid.
	Lent *buffer.Buffer
}

// State holds all that a getMore needs. It can be stored, sealed into a token and given to another
// client of the same deployment. Only one cursor at a time may continue it.
type State struct {
	// Server holds the cursor. getMore and killCursors go only there.
	Server address.Address
	// ID is the server's number of the cursor; 0: the server holds none.
	ID int64
	// Database and Collection are the namespace that the server's last reply gave.
	Database, Collection string
	// BatchSize goes with each getMore; 0: the server decides.
	BatchSize int32
	// Remaining is the number of documents that the limit still allows; 0: no limit.
	Remaining int64
	// MaxAwaitTimeMS is the maxTimeMS of each getMore: how long a tailable awaitData cursor waits
	// for documents. If less is left until the deadline of Next, that is sent. Nil sends nothing.
	MaxAwaitTimeMS *int64
	// Comment goes with each getMore to a server that takes one there (4.4 and later); the zero
	// Value sends nothing.
	Comment bson.Value
	// Session is the lsid of each getMore; zero: none.
	Session bson.UUID
}

// killTimeout bounds killCursors. It is short because the server closes abandoned cursors itself.
const killTimeout = 3 * time.Second

var (
	// ErrBusy is the error of a call of Next during another one. Nothing was done.
	ErrBusy = errors.New("cursor is in use by another call of Next")
	// ErrClosed is wrapped by the error of a Next that Close interrupted, and of one after a Close
	// before the end of the result.
	ErrClosed = errors.New("cursor was closed")
)

// Cursor reads the result of a command. Next is for one goroutine at a time; all other methods
// may be called at any time.
type Cursor struct {
	runner *operation.Runner
	// timeout is the operation's timeoutMS, nil for the runner's. A deadline that is not zero is
	// that of all getMores; otherwise timeout begins anew with each.
	timeout  *time.Duration
	deadline time.Time
	// unconfirmed is the write concern error of the command, nil if there is none.
	unconfirmed *mongoerr.WriteConcernError
	// expires says that the server ends the cursor at the deadline, so that code 50 stands for the
	// deadline.
	expires bool

	// mu guards the fields below. No I/O is done while it is held: turn excludes a second getMore.
	mu    sync.Mutex
	state State
	// server selects that of the state; nil: the first getMore sets it.
	server selection.Selector
	runOn  bool
	// first is the batch that came with the command, until Next has returned it.
	first    Batch
	hasFirst bool
	// limitReached says that the limit allows no more documents.
	limitReached bool
	// broken is why the position is not known any more. Next returns it.
	broken error
	// pin is the connection that the cursor holds, nil if it holds none; lost says that it broke.
	pin  *operation.Pin
	lost bool
	// hello is the server's on the connection of the last command; nil while there was none.
	hello *description.Server
	// session is what the cursor's commands run in; nil: nothing. An implicit one is the cursor's
	// own, which ends it with the last command.
	session *session.Client

	turn *turn         // the getMore under way; nil: there is none
	used *turn         // can be used again; nil: there is none
	idle chan struct{} // closed when turn ends; nil unless Close waits for that
}

// turn holds what one getMore needs: its context, which Close can cancel, and its operation, with
// the state that it is made of. Most cursors use one turn for all.
type turn struct {
	ctxwatch.Child
	operation operation.Operation
	state     State
}

// Continue returns a cursor that goes on at a State. It holds no connection, so it does not work
// behind a load balancer.
func Continue(r *operation.Runner, s State) *Cursor {
	c := &Cursor{runner: r, state: s}
	if s.Session != (bson.UUID{}) && r.Sessions != nil {
		c.session = r.Sessions.ResumeImplicit(s.Session)
	}
	return c
}

// Next returns the next batch: first the command's own batch, without I/O, then the batch of one
// getMore a call. After the last batch it returns io.EOF. A batch may be empty without being
// the last.
//
// It blocks until the reply has arrived, ctx has ended, or timeoutMS is over. If an error or a
// panic leaves it open whether the server has moved on, every further call returns an error, so
// that no batch is skipped silently. After any other error Next may be called again. Close the
// cursor in any case.
//
// What the batch has stays valid. NextLent is cheaper.
func (c *Cursor) Next(ctx context.Context) (Batch, error) {
	b, err := c.next(ctx, false)
	b.Lent.Keep() // the first batch may be in lent memory
	b.Lent = nil
	return b, err
}

// NextLent does what Next does, with memory that is used again: documents, their list and the
// resume token are valid until the last Release of Batch.Lent.
func (c *Cursor) NextLent(ctx context.Context) (Batch, error) { return c.next(ctx, true) }

func (c *Cursor) next(ctx context.Context, lend bool) (Batch, error) {
	c.mu.Lock()
	if b, ready, err := c.readyLocked(); ready {
		c.mu.Unlock()
		return b, err
	}
	ctx, done := c.runner.Begin(ctx, c.timeout, c.deadline)
	defer done()
	t := c.beginLocked(ctx, lend)
	c.mu.Unlock()
	return c.fetch(t) //nolint:contextcheck // the turn is the context
}

// readyLocked returns what Next returns without I/O. If ready is false, a getMore is needed.
func (c *Cursor) readyLocked() (b Batch, ready bool, err error) {
	switch {
	case c.turn != nil:
		return Batch{}, true, ErrBusy
	case c.hasFirst:
		b := c.first
		c.first, c.hasFirst = Batch{}, false
		return b, true, nil
	case c.broken != nil:
		return Batch{}, true, c.broken
	case c.state.ID == 0:
		return Batch{}, true, io.EOF
	}
	return Batch{}, false, nil
}

// beginLocked returns the getMore to run.
func (c *Cursor) beginLocked(ctx context.Context, lend bool) *turn {
	t := c.used
	if t == nil {
		t = new(turn)
	}
	c.used = nil
	t.state = c.state
	t.Init(ctx)
	if c.server == nil {
		c.server = selection.Address(c.state.Server)
	}
	t.operation = operation.Operation{
		Database: t.state.Database, Collection: t.state.Collection,
		Command: (*getMore)(&t.state), RunOn: c.runOn, On: c.pin, Lend: lend,
		Session: c.session, Selector: c.server,
		MaxTimeMS: t.state.MaxAwaitTimeMS, DeadlineAsMaxTime: t.state.MaxAwaitTimeMS != nil,
	}
	c.turn = t
	return t
}

// fetch gets the next batch from the server and ends the turn.
func (c *Cursor) fetch(t *turn) (Batch, error) {
	returned := false // rather than panicked
	defer func() { c.rest(t, returned) }()
	p, err := c.getMore(t, &t.operation)
	b, end := c.conclude(t, p, err)
	_ = end.run(t)
	returned = true
	return b, err
}

// errPanicked is the error of a cursor that may have lost a batch in a panic.
var errPanicked = errors.New("bug: a panic ended the call that read the cursor before")

// rest ends a turn. If the call panicked, a batch is lost, and the connection is in an unknown
// state.
func (c *Cursor) rest(t *turn, returned bool) {
	t.End()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !returned {
		c.broken, c.lost = errPanicked, c.pin != nil
	} else if !c.endedLocked() && t.IsUnseen() { // a dial for killCursors may still look at it
		t.Init(context.Background()) // it keeps nothing of the caller's
		c.used = t
	}
	c.turn = nil
	if c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// getMore runs a getMore and parses the reply.
func (c *Cursor) getMore(ctx context.Context, op *operation.Operation) (reply, error) {
	res, err := c.runner.Run(ctx, op)
	c.heard(res.Hello)
	if err != nil {
		if c.expires {
			err = operation.Expired(err)
		}
		return reply{}, err
	}
	return parse(res.Server, res.Reply, nextBatch, res.Lent)
}

// heard keeps what the server said of itself on the connection of a command; nil is nothing.
func (c *Cursor) heard(hello *description.Server) {
	if hello == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hello = hello
}

// WireVersion returns the server's maxWireVersion by the connection that was used last, 0 if none
// was.
func (c *Cursor) WireVersion() int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hello == nil {
		return 0
	}
	return c.hello.MaxWireVersion
}

// conclude applies the result of a getMore, and returns what is left to do if the cursor has ended.
func (c *Cursor) conclude(ctx context.Context, p reply, err error) (b Batch, end ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failLocked(ctx, err)
		return Batch{}, ending{}
	}
	return c.acceptLocked(p)
}

// acceptLocked applies a reply, and returns what is left to do if the cursor has ended: the server
// has closed it, or its limit is reached. Servers since 5.0 may leave the latter to the driver.
func (c *Cursor) acceptLocked(p reply) (b Batch, end ending) {
	b = c.takeLocked(p)
	if c.state.ID == 0 || c.limitReached {
		end = c.endLocked()
	}
	return b, end
}

// takeLocked takes the state from the reply, and counts its documents against the limit.
func (c *Cursor) takeLocked(p reply) Batch {
	c.state.ID = p.id
	if p.database != "" && (p.database != c.state.Database || p.collection != c.state.Collection) {
		// p has views on the reply, which the cursor must not keep alive.
		c.state.Database = strings.Clone(p.database)
		c.state.Collection = strings.Clone(p.collection)
	}
	if c.state.Remaining == 0 {
		return p.batch
	}
	if int64(len(p.batch.Documents)) > c.state.Remaining {
		p.batch.cut(int(c.state.Remaining))
	}
	c.state.Remaining -= int64(len(p.batch.Documents))
	c.limitReached = c.state.Remaining == 0
	return p.batch
}

// failLocked decides what an error of getMore means for the cursor. A connection stays pinned
// until Close in any case (Load Balancer Support, "Behaviour With Cursors").
func (c *Cursor) failLocked(ctx context.Context, err error) {
	network, isNetwork := errors.AsType[*mongoerr.NetworkError](err)
	sent := mongoerr.Judge(err).Delivery == mongoerr.Unanswered
	switch {
	case mongoerr.Code(err) == codeCursorNotFound:
		c.state.ID, c.broken = 0, err
	case isNetwork && c.pin != nil:
		c.broken, c.lost = lasting(network), true
	case isNetwork && sent:
		c.broken = lasting(network)
		if ctx.Err() == nil && !network.Timeout() {
			c.state.ID = 0 // the server is gone, or has closed the cursor with the connection
		}
	case sent: // a reply that cannot be read
		c.broken = err
	}
}

// lasting returns the error for later calls, whose contexts have not ended.
func lasting(err *mongoerr.NetworkError) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	past := *err
	past.Err = ctxwatch.Past(err.Err)
	return &past
}

const codeCursorNotFound = 43

// WriteConcernError returns that of the reply that opened the cursor, nil if there was none. Only
// pipelines that end with $out or $merge write: what they wrote was not confirmed as asked.
func (c *Cursor) WriteConcernError() *mongoerr.WriteConcernError { return c.unconfirmed }

// Done reports whether nothing is left, neither here nor on the server, and the cursor holds no
// connection.
func (c *Cursor) Done() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doneLocked()
}

func (c *Cursor) doneLocked() bool { return !c.hasFirst && c.endedLocked() }

// endedLocked reports whether nothing is left on the server and no connection is held.
func (c *Cursor) endedLocked() bool { return c.state.ID == 0 && c.pin == nil }

// ID returns the server's number of the cursor, 0 once the server has closed it.
func (c *Cursor) ID() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.ID
}

// Pinned reports whether the cursor holds a connection, as it does behind a load balancer until it
// is exhausted or closed. Only this Cursor can continue it then.
func (c *Cursor) Pinned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pin != nil
}

// State returns what continues the cursor elsewhere. It does not include a first batch that Next
// has not returned yet. If the server still holds the cursor, the id of the cursor's session does
// not return to the pool any more.
func (c *Cursor) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state
	if s.ID != 0 && c.session != nil {
		s.Session = c.session.State().ID
	}
	return s
}

// Kept returns how many bytes the cursor keeps of its request: its comment and names.
func (c *Cursor) Kept() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.state.Comment.Data) + len(c.state.Database) + len(c.state.Collection)
}

// Server returns the server that holds the cursor.
func (c *Cursor) Server() address.Address {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Server
}

// SetBatchSize sets the batch size of the following getMores; 0 lets the server decide.
func (c *Cursor) SetBatchSize(n int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.BatchSize = n
}

// SetMaxAwaitTimeMS sets how long the server may wait for documents in the following getMores; nil
// sends nothing.
func (c *Cursor) SetMaxAwaitTimeMS(ms *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.MaxAwaitTimeMS = ms
}

// SetRunOn sets whether a getMore that has been sent goes on although its context is canceled: see
// operation.Operation.
func (c *Cursor) SetRunOn(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runOn = on
}

// Close ends the cursor. If the server still holds it, Close sends killCursors, with a short time
// limit of its own and not that of ctx. The result is not reported, since the server closes
// abandoned cursors itself: the error is always nil. Close may be called again, and after any
// error of Next.
//
// Close interrupts a Next that has not returned, which breaks its connection, and blocks until it
// has ended. It returns a connection that the cursor holds to the pool. If that broke, nothing is
// sent.
func (c *Cursor) Close(ctx context.Context) error {
	_ = c.Kill(ctx, nil)
	return nil
}

// Kill does what Close does, and returns the error of killCursors. A timeout that is not nil
// replaces the operation's timeoutMS, beside the short limit.
func (c *Cursor) Kill(ctx context.Context, timeout *time.Duration) error {
	return c.stop(ctx, timeout, false)
}

// Abandon does what Close does, but sends killCursors only within ctx, and only if the server is
// known to be there. It is for a caller that goes on with another cursor, in the same session: it
// returns that, nil if there is none. An implicit one is the caller's from then on.
func (c *Cursor) Abandon(ctx context.Context) *session.Client {
	c.mu.Lock()
	kept := c.session
	c.mu.Unlock()
	_ = c.stop(ctx, nil, true)
	return kept
}

func (c *Cursor) stop(ctx context.Context, timeout *time.Duration, atOnce bool) error {
	c.mu.Lock()
	for c.turn != nil {
		idle := c.interruptLocked()
		c.mu.Unlock()
		<-idle
		c.mu.Lock()
	}
	if c.broken == nil && !c.doneLocked() {
		c.broken = ErrClosed
	}
	c.first.Lent.Release()
	c.first, c.hasFirst = Batch{}, false
	e := c.endLocked()
	e.atOnce = atOnce
	c.mu.Unlock()
	if timeout != nil {
		e.timeout = timeout
	}
	return e.run(ctx)
}

// interruptLocked interrupts the running getMore and returns a channel that is closed when it has
// ended.
func (c *Cursor) interruptLocked() <-chan struct{} {
	c.turn.Cancel(ErrClosed)
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	return c.idle
}

// Batches iterates over the results of Next. It closes the cursor at the end, after the first
// error, which it yields, and when the caller breaks the loop.
func (c *Cursor) Batches(ctx context.Context) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		defer func() { _ = c.Close(ctx) }()
		for c.hasNext() {
			b, err := c.Next(ctx)
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// LentBatches does what Batches does, with NextLent: a batch is valid until the body of the loop
// has ended.
func (c *Cursor) LentBatches(ctx context.Context) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		defer func() { _ = c.Close(ctx) }()
		for c.hasNext() {
			b, err := c.NextLent(ctx)
			goesOn := yield(b, err)
			b.Lent.Release()
			if !goesOn || err != nil {
				return
			}
		}
	}
}

// hasNext reports whether Next would return anything but io.EOF.
func (c *Cursor) hasNext() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hasFirst || c.state.ID != 0 || c.broken != nil
}
