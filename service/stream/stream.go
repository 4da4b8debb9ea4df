// Package stream sends all that a cursor brings, at the pace at which the client takes it.
//
// The next batch is asked for when the transport has taken the last one, so a stream holds two at
// most, however slow its client is. How large they are is decided by size, out of a budget that
// all streams share. The cursor ends with the stream, whatever ends that.
package stream

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/batch"
)

// Defaults of Config.
const (
	DefaultBudget       = 32 << 20
	DefaultMessageBytes = 1 << 20
)

// Cursor is what a stream needs of *cursor.Cursor.
type Cursor interface {
	Next(ctx context.Context) (cursor.Batch, error)
	Done() bool
	SetBatchSize(n int32)
	Close(ctx context.Context) error
}

var _ Cursor = (*cursor.Cursor)(nil)

// Config of the streams of a gateway; zero fields are the defaults.
type Config struct {
	// Budget is how many bytes of batches all streams together may hold, as long as each has its
	// least.
	Budget int
	// MessageBytes is the most that a message holds, unless one document is larger.
	MessageBytes int
}

// Streams are all streams of a gateway: what they share.
type Streams struct {
	budget       *batch.Budget
	messageBytes int
}

// New returns no stream yet.
func New(cfg Config) *Streams {
	if cfg.Budget == 0 {
		cfg.Budget = DefaultBudget
	}
	if cfg.MessageBytes == 0 {
		cfg.MessageBytes = DefaultMessageBytes
	}
	return &Streams{budget: batch.NewBudget(cfg.Budget), messageBytes: cfg.MessageBytes}
}

// MessageBytes returns the most that a message of a stream should have.
func (s *Streams) MessageBytes() int { return s.messageBytes }

// Source is where a stream's documents come from.
type Source struct {
	// Cursor was opened with RunOn, so that a client that goes away before the command's reply
	// leaves no unknown cursor; its getMores are without, since closing the cursor ends them.
	Cursor Cursor
	// Documents come before those of the cursor.
	Documents []bson.Raw
	// MaxBatch is the batch size that the client has chosen: none is larger. 0 is no bound.
	MaxBatch int32
}

// First is the batch size for the command that opens a stream's cursor: the server's own, or less
// if the client has chosen less. It is never more, since nothing is known of the documents yet,
// and a stream holds two batches.
func First(chosen *int32) *int32 {
	n := int32(batch.First)
	if chosen != nil {
		n = min(n, *chosen)
	}
	return &n
}

// Run sends all documents of a source, in order, and closes its cursor. send returns when the
// transport has taken the message; the documents may be shared, but not kept by anyone who
// changes them. When ctx ends, Run returns its cause.
func (s *Streams) Run(ctx context.Context, src Source, send func([]bson.Raw) error) error {
	defer s.budget.Join()()
	cur := src.Cursor
	defer func() { _ = cur.Close(ctx) }() // outlives ctx
	err := s.run(ctx, src, send)
	if err != nil && ctx.Err() != nil && isCanceled(err) {
		return context.Cause(ctx)
	}
	return err
}

func (s *Streams) run(ctx context.Context, src Source, send func([]bson.Raw) error) error {
	out := sender{send: send, messageBytes: s.messageBytes}
	if err := out.all(src.Documents); err != nil {
		return err
	}
	src.Documents = nil
	var sizer batch.Sizer
	var pause pacer
	for !src.Cursor.Done() {
		n := sizer.Next(s.budget.Target())
		if src.MaxBatch > 0 {
			n = min(n, src.MaxBatch)
		}
		src.Cursor.SetBatchSize(n)
		pause.begin()
		documents, bytes, err := out.batch(ctx, src.Cursor)
		if err != nil {
			return err
		}
		sizer.Saw(documents, bytes)
		if src.Cursor.Done() {
			return nil
		}
		if err := pause.after(ctx, documents); err != nil {
			return err
		}
	}
	return nil
}

// sender splits batches into messages.
type sender struct {
	send         func([]bson.Raw) error
	messageBytes int
}

// batch is a function of its own so that nothing holds the documents any more when it has
// returned.
func (s sender) batch(ctx context.Context, cur Cursor) (n, bytes int, err error) {
	b, err := cur.Next(ctx)
	if err != nil {
		return 0, 0, err
	}
	return len(b.Documents), b.Bytes, s.all(b.Documents)
}

func (s sender) all(docs []bson.Raw) error {
	for len(docs) > 0 {
		n, _ := batch.Cut(docs, s.messageBytes, 0)
		if err := s.send(docs[:n:n]); err != nil {
			return err
		}
		docs = docs[n:]
	}
	return nil
}

// isCanceled: the stream was interrupted, whatever has noticed it.
func isCanceled(err error) bool {
	return errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled
}

// pacer keeps a tailable cursor whose server does not wait at the end from asking without a break.
type pacer struct{ begun time.Time }

const (
	quick      = 20 * time.Millisecond  // an empty batch in less time: the server has not waited
	quietPause = 250 * time.Millisecond // until it is asked again
)

func (p *pacer) begin() { p.begun = time.Now() }

func (p *pacer) after(ctx context.Context, documents int) error {
	if documents > 0 || time.Since(p.begun) > quick {
		return nil
	}
	timer := time.NewTimer(quietPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
