// Package cursor reads the result of a command in batches, each by one getMore on the server that
// holds the cursor, and ends the cursor on that server when it is closed early.
//
// A cursor holds no connection and no goroutine between its calls, and all that a getMore needs is in
// its State: another process can continue it. It retries nothing (a getMore cannot be repeated), and it
// does not decode documents: those of a batch are views on the reply.
package cursor

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/topology/selection"
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
	// documents. Nil sends nothing.
	MaxAwaitTimeMS *int64
	// Comment goes with each getMore to a server that takes one there (4.4 and later); the zero Value sends nothing.
	Comment bson.Value
}

// Options are what the getMores of a new cursor need besides the reply; see State.
type Options struct {
	BatchSize int32
	// Limit is the number of documents over all batches; 0: no limit.
	Limit          int64
	MaxAwaitTimeMS *int64
	Comment        bson.Value
	RunOn          bool
}

// killTimeout bounds killCursors, which nobody waits for gladly: the server closes forgotten cursors itself.
const killTimeout = 3 * time.Second

// Cursor is the result of a command. One goroutine at a time may use it.
type Cursor struct {
	runner *operation.Runner
	state  State
	runOn  bool
	// first is the batch that came with the command, until Next has returned it.
	first    Batch
	hasFirst bool
	// broken is the error after which the position is not known any more: Next repeats it.
	broken error
}

// New makes the cursor of a command's reply. A reply without a cursor is a *mongoerr.MalformedReplyError.
func New(r *operation.Runner, res operation.Result, opt Options) (*Cursor, error) {
	p, err := parse(res.Server, res.Reply, "firstBatch")
	if err != nil {
		return nil, err
	}
	c := &Cursor{
		runner: r,
		runOn:  opt.RunOn,
		state: State{
			Server: res.Server, BatchSize: opt.BatchSize, Remaining: opt.Limit,
			MaxAwaitTimeMS: opt.MaxAwaitTimeMS, Comment: opt.Comment,
		},
	}
	c.first, c.hasFirst = c.take(p), true
	return c, nil
}

// Continue makes a cursor of what another one has left.
func Continue(r *operation.Runner, s State) *Cursor { return &Cursor{runner: r, state: s} }

// Next returns the next batch: first the one that came with the command (no I/O), then one getMore a call.
// After the last batch it returns io.EOF. A batch may be empty without being the last.
//
// The context bounds this call only. After an error that leaves it open whether the server has moved on, every further
// call returns the same error, so that no batch is skipped unseen; other errors may be tried again. Close in any
// case.
func (c *Cursor) Next(ctx context.Context) (Batch, error) {
	if c.hasFirst {
		b := c.first
		c.first, c.hasFirst = Batch{}, false
		return b, c.finish(ctx)
	}
	if c.broken != nil {
		return Batch{}, c.broken
	}
	if c.state.ID == 0 {
		return Batch{}, io.EOF
	}
	b, err := c.getMore(ctx)
	if err != nil {
		return Batch{}, c.fail(ctx, err)
	}
	return b, c.finish(ctx)
}

func (c *Cursor) getMore(ctx context.Context) (Batch, error) {
	res, err := c.runner.Run(ctx, &operation.Operation{
		Database: c.state.Database,
		Command:  (*getMore)(&c.state),
		Selector: selection.Address(c.state.Server),
		RunOn:    c.runOn,
	})
	if err != nil {
		return Batch{}, err
	}
	p, err := parse(res.Server, res.Reply, "nextBatch")
	if err != nil {
		return Batch{}, err
	}
	return c.take(p), nil
}

// take makes the state that of the reply, and counts its documents against the limit.
func (c *Cursor) take(p reply) Batch {
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
	if c.state.Remaining == 0 {
		c.state.Remaining = reached
	}
	return p.batch
}

// reached is State.Remaining where the limit allows no more: the cursor is then closed before anyone sees it.
const reached = -1

// finish ends a cursor whose limit is reached: since version 5.0, servers may leave that to the driver.
func (c *Cursor) finish(ctx context.Context) error {
	if c.state.Remaining != reached {
		return nil
	}
	c.state.Remaining = 0
	return c.Close(ctx)
}

// fail decides what an error of getMore means for the cursor.
func (c *Cursor) fail(ctx context.Context, err error) error {
	var malformed *mongoerr.MalformedReplyError
	var network *mongoerr.NetworkError
	switch {
	case mongoerr.Code(err) == codeCursorNotFound:
		c.state.ID, c.broken = 0, err
	case errors.As(err, &malformed):
		c.broken = err
	case errors.As(err, &network) && network.Sent:
		c.broken = err
		if ctx.Err() == nil && !network.Timeout() {
			c.state.ID = 0 // the server is gone, or has closed the cursor with the connection
		}
	}
	return err
}

const codeCursorNotFound = 43

// Done says that nothing is left, neither here nor on the server.
func (c *Cursor) Done() bool { return !c.hasFirst && c.state.ID == 0 }

// ID is the server's number of the cursor, 0 once the server has closed it.
func (c *Cursor) ID() int64 { return c.state.ID }

// State is what continues the cursor elsewhere. It does not include a first batch that Next has not
// returned yet.
func (c *Cursor) State() State { return c.state }

// SetBatchSize sets the batch size of the following getMores; 0 lets the server decide.
func (c *Cursor) SetBatchSize(n int32) { c.state.BatchSize = n }

// SetMaxAwaitTimeMS sets how long the server may wait for documents in the following getMores; nil sends nothing.
func (c *Cursor) SetMaxAwaitTimeMS(ms *int64) { c.state.MaxAwaitTimeMS = ms }

// SetRunOn says whether a getMore that has been sent goes on although its context is canceled: see operation.Operation.
func (c *Cursor) SetRunOn(on bool) { c.runOn = on }

// Close ends the cursor, on the server too if it still has it: killCursors, detached from ctx's end,
// for a short time. Its outcome is not reported, since the server closes forgotten cursors itself: the error is always nil.
// Close may be repeated, and may follow any error of Next.
func (c *Cursor) Close(ctx context.Context) error {
	c.first, c.hasFirst = Batch{}, false
	if c.state.ID == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	_, _ = c.runner.Run(ctx, &operation.Operation{
		Database: c.state.Database,
		Command:  (*killCursors)(&c.state),
		Selector: selection.Address(c.state.Server),
	})
	c.state.ID = 0
	return nil
}

// Batches iterates over what Next returns, and closes the cursor at the end, at an error, which is the
// last that it yields, and when the caller breaks off.
func (c *Cursor) Batches(ctx context.Context) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		defer func() { _ = c.Close(ctx) }()
		for !c.Done() || c.broken != nil {
			b, err := c.Next(ctx)
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// First is the first document of a reply that has all of the result in one batch: a limit of 1, or a count.
func First(res operation.Result) (doc bson.Raw, found bool, err error) {
	p := parser{from: res.Server, batchName: "firstBatch", firstOnly: true}
	if err := p.parse(res.Reply); err != nil {
		return nil, false, err
	}
	return p.first, p.first != nil, nil
}
