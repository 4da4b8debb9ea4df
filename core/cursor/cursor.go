// Package cursor reads the result of a command in batches, each by one getMore on the server that
// holds the cursor, and ends the cursor on that server when it is closed early.
//
// A cursor has no goroutine, and all that a getMore needs is in its State: another process can continue it. It holds no
// connection between its calls either, except behind a load balancer, where only the connection that it was opened on leads
// to the service that knows it: there the cursor is pinned to it until it is exhausted or closed. It retries nothing (a
// getMore cannot be repeated), and it does not decode documents: those of a batch are views on the reply.
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
	"github.com/mooringdb/mooring/core/internal/ctxwatch"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/selection"
)

// Batch is what one reply brought.
type Batch struct {
	// Documents are views on the reply's buffer. The batch may be empty although the cursor goes on.
	Documents []bson.Raw
	// Bytes is the sum of the documents' lengths.
	Bytes int
	// Buffer is the size of the reply, which the documents keep in memory: at least Bytes, and from a strange server much more.
	Buffer int
	// PostBatchResumeToken is a change stream's position behind the batch; nil elsewhere.
	PostBatchResumeToken bson.Raw
}

// State is all that a getMore needs. It can be stored, sealed into a token and given to another
// client of the same deployment, as long as one continues it at a time.
type State struct {
	// Server holds the cursor; getMore and killCursors go there and nowhere else.
	Server address.Address
	// ID is the server's number of the cursor; 0: the server has none any more.
	ID int64
	// Database and Collection are the namespace that the server's last reply gave.
	Database, Collection string
	// BatchSize goes with each getMore; 0: the server decides.
	BatchSize int32
	// Remaining is the number of documents that the limit still allows; 0: no limit.
	Remaining int64
	// MaxAwaitTimeMS is the maxTimeMS of each getMore: how long a tailable awaitData cursor waits for
	// documents. If less is left until the deadline of Next, that is sent. Nil sends nothing.
	MaxAwaitTimeMS *int64
	// Comment goes with each getMore to a server that takes one there (4.4 and later); the zero Value sends nothing.
	Comment bson.Value
}

// killTimeout bounds killCursors, which nobody waits for gladly: the server closes forgotten cursors itself.
const killTimeout = 3 * time.Second

var (
	// ErrBusy is a call of Next while another one is under way. Nothing was done.
	ErrBusy = errors.New("cursor is in use by another call of Next")
	// ErrClosed is inside the error of a Next that Close interrupted, or that comes after a Close which was not the end of the
	// result.
	ErrClosed = errors.New("cursor was closed")
)

// Cursor is the result of a command. One goroutine at a time reads it with Next; all other methods may be called at any time.
type Cursor struct {
	runner *operation.Runner
	// timeout is the operation's timeoutMS, nil for the runner's. A deadline that is not zero is that
	// of all getMores; otherwise timeout begins anew with each.
	timeout  *time.Duration
	deadline time.Time
	// unconfirmed is the write concern error of the command, nil if there is none.
	unconfirmed *mongoerr.WriteConcernError
	// expires says that the server ends the cursor at the deadline: its code 50 is that then.
	expires bool

	// mu guards the fields below. No I/O is done while it is held: busy keeps others out of a getMore.
	mu    sync.Mutex
	state State
	runOn bool
	// first is the batch that came with the command, until Next has returned it.
	first    Batch
	hasFirst bool
	// limitReached says that no more documents are wanted.
	limitReached bool
	// broken is why the position is not known any more: Next returns it.
	broken error
	// pin is the connection that the cursor holds, if it does; lost says that it broke.
	pin  *operation.Pin
	lost bool

	busy      bool
	request   State // the state that the getMore under way was made of
	interrupt context.CancelCauseFunc
	idle      chan struct{} // closed when busy ends, if somebody waits for that
}

// Continue makes a cursor of what another one has left. It holds no connection, so it does not work behind a load balancer.
func Continue(r *operation.Runner, s State) *Cursor { return &Cursor{runner: r, state: s} }

// Next returns the next batch: first the one that came with the command (no I/O), then one getMore a call.
// After the last batch it returns io.EOF. A batch may be empty without being the last.
//
// The context bounds this call only. After an error that leaves it open whether the server has moved on, or a panic, every
// further call returns an error that tells of it, so that no batch is skipped unseen; other errors may be tried again. Close in
// any case.
func (c *Cursor) Next(ctx context.Context) (Batch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.busy:
		return Batch{}, ErrBusy
	case c.hasFirst:
		b := c.first
		c.first, c.hasFirst = Batch{}, false
		return b, nil
	case c.broken != nil:
		return Batch{}, c.broken
	case c.state.ID == 0:
		return Batch{}, io.EOF
	}
	return c.fetchLocked(ctx)
}

// fetchLocked gets the next batch from the server.
func (c *Cursor) fetchLocked(ctx context.Context) (Batch, error) {
	ctx, done := c.runner.Begin(ctx, c.timeout, c.deadline)
	defer done()
	ctx, c.interrupt = context.WithCancelCause(ctx)
	c.busy, c.request = true, c.state
	returned := false // rather than panicked
	defer func() { c.restLocked(returned) }()
	p, err := c.getMoreLocked(ctx)
	if err != nil {
		c.failLocked(ctx, err)
		returned = true
		return Batch{}, err
	}
	b := c.takeLocked(p)
	c.settleLocked(ctx)
	returned = true
	return b, nil
}

// errPanicked is a cursor of which a batch may have been lost in a panic.
var errPanicked = errors.New("bug: a panic ended the call that read the cursor before")

// restLocked ends busy. A batch that a panic kept from its reader is lost, and so is what the connection was doing.
func (c *Cursor) restLocked(returned bool) {
	if !returned {
		c.broken, c.lost = errPanicked, c.pin != nil
	}
	c.interrupt(nil)
	c.busy, c.interrupt, c.request = false, nil, State{}
	if c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// getMoreLocked sends a getMore. mu is not held meanwhile; busy is.
func (c *Cursor) getMoreLocked(ctx context.Context) (reply, error) {
	op := operation.Operation{
		Database: c.request.Database, Command: (*getMore)(&c.request), RunOn: c.runOn,
		On: c.pin, Selector: selection.Address(c.request.Server),
		MaxTimeMS: c.request.MaxAwaitTimeMS, DeadlineAsMaxTime: c.request.MaxAwaitTimeMS != nil,
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	res, err := c.runner.Run(ctx, &op)
	if err != nil {
		if c.expires {
			err = operation.Expired(err)
		}
		return reply{}, err
	}
	return parse(res.Server, res.Reply, nextBatch)
}

// takeLocked makes the state that of the reply, and counts its documents against the limit.
func (c *Cursor) takeLocked(p reply) Batch {
	c.state.ID = p.id
	if p.database != "" && (p.database != c.state.Database || p.collection != c.state.Collection) {
		// p has views on the reply, which the cursor must not keep alive.
		c.state.Database, c.state.Collection = strings.Clone(p.database), strings.Clone(p.collection)
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

// settleLocked ends a cursor that the server has closed, or whose limit is reached: since version 5.0, servers may leave that
// to the driver. mu is not held while it does.
func (c *Cursor) settleLocked(ctx context.Context) {
	if c.state.ID != 0 && !c.limitReached || c.endedLocked() {
		return
	}
	e := c.endLocked()
	c.mu.Unlock()
	defer c.mu.Lock()
	e.run(ctx)
}

// failLocked decides what an error of getMore means for the cursor. Whatever it was, a connection stays pinned until Close
// (Load Balancer Support, "Behaviour With Cursors").
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

// lasting is the error for later calls, whose contexts have not ended.
func lasting(err *mongoerr.NetworkError) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	past := *err
	past.Err = ctxwatch.Past(err.Err)
	return &past
}

const codeCursorNotFound = 43

// WriteConcernError returns that of the reply that opened the cursor, nil if there was none. Only the
// pipelines that end with $out or $merge write: what they wrote was not confirmed as asked then.
func (c *Cursor) WriteConcernError() *mongoerr.WriteConcernError { return c.unconfirmed }

// Done says that nothing is left, neither here nor on the server, and that the cursor holds no connection.
func (c *Cursor) Done() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doneLocked()
}

func (c *Cursor) doneLocked() bool { return !c.hasFirst && c.endedLocked() }

// endedLocked says that nothing is left on the server, and no connection is held.
func (c *Cursor) endedLocked() bool { return c.state.ID == 0 && c.pin == nil }

// ID is the server's number of the cursor, 0 once the server has closed it.
func (c *Cursor) ID() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.ID
}

// Pinned says that the cursor holds a connection, as it does behind a load balancer until it is exhausted or closed. Only this
// Cursor can continue it then: its State is of no use elsewhere.
func (c *Cursor) Pinned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pin != nil
}

// State is what continues the cursor elsewhere. It does not include a first batch that Next has not
// returned yet.
func (c *Cursor) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// SetBatchSize sets the batch size of the following getMores; 0 lets the server decide.
func (c *Cursor) SetBatchSize(n int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.BatchSize = n
}

// SetMaxAwaitTimeMS sets how long the server may wait for documents in the following getMores; nil sends nothing.
func (c *Cursor) SetMaxAwaitTimeMS(ms *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.MaxAwaitTimeMS = ms
}

// SetRunOn says whether a getMore that has been sent goes on although its context is canceled: see operation.Operation.
func (c *Cursor) SetRunOn(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runOn = on
}

// Close ends the cursor, on the server too if it still has it: killCursors, detached from ctx's end,
// for a short time. Its outcome is not reported, since the server closes forgotten cursors itself: the error is always nil.
// Close may be repeated, and may follow any error of Next.
//
// A Next that is under way is interrupted, which costs its connection, and Close goes on when it has ended: the two never talk
// to the server at once. A connection that the cursor holds is given back in any case, and if it broke, nothing is sent.
func (c *Cursor) Close(ctx context.Context) error {
	c.mu.Lock()
	for c.busy {
		c.awaitIdleLocked()
	}
	if c.broken == nil && !c.doneLocked() {
		c.broken = ErrClosed
	}
	c.first, c.hasFirst = Batch{}, false
	if c.endedLocked() {
		c.mu.Unlock()
		return nil
	}
	e := c.endLocked()
	c.mu.Unlock()
	e.run(ctx)
	return nil
}

// awaitIdleLocked interrupts the getMore under way and waits for its end, without mu.
func (c *Cursor) awaitIdleLocked() {
	c.interrupt(ErrClosed)
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	<-idle
	c.mu.Lock()
}

// Batches iterates over what Next returns, and closes the cursor at the end, at an error, which is the
// last that it yields, and when the caller breaks off.
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

// hasNext says that Next would return something else than io.EOF.
func (c *Cursor) hasNext() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hasFirst || c.state.ID != 0 || c.broken != nil
}
