// Package stream sends all documents of a cursor as fast as the client receives them.
//
// A stream asks for the next batch when the transport has accepted the last one, so it holds two
// batches at most, however slow its client is. Their size in bytes comes from a budget that all
// streams share. The stream closes its cursor when it ends, whatever the reason.
package stream

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/batch"
)

// Defaults of Config.
const (
	DefaultBudget       = 32 << 20
	DefaultMessageBytes = 1 << 20
)

// Cursor lists the methods of *cursor.Cursor that a stream needs.
type Cursor interface {
	Next(ctx context.Context) (cursor.Batch, error)
	Done() bool
	SetBatchSize(n int32)
	Close(ctx context.Context) error
}

var _ Cursor = (*cursor.Cursor)(nil)

// Config configures the streams of a gateway. Zero fields mean the defaults.
type Config struct {
	// Budget is the number of bytes of batches that all streams together may hold. Each stream
	// gets its minimum even if the sum exceeds the budget.
	Budget int
	// MessageBytes limits the documents of a message, in bytes. A larger document is a message of
	// its own.
	MessageBytes int
	// Sizes is what is known of the sizes of documents; nil: nothing yet.
	Sizes *batch.Sizes
}

// Streams holds the state that all streams of a gateway share.
type Streams struct {
	budget       *batch.Budget
	messageBytes int
	sizes        *batch.Sizes
}

// New returns the shared state. No stream is open yet.
func New(cfg Config) *Streams {
	if cfg.Budget == 0 {
		cfg.Budget = DefaultBudget
	}
	if cfg.MessageBytes == 0 {
		cfg.MessageBytes = DefaultMessageBytes
	}
	if cfg.Sizes == nil {
		cfg.Sizes = batch.NewSizes()
	}
	return &Streams{
		budget: batch.NewBudget(cfg.Budget), messageBytes: cfg.MessageBytes, sizes: cfg.Sizes,
	}
}

// MessageBytes returns the number of bytes that the documents of a message should not exceed.
func (s *Streams) MessageBytes() int { return s.messageBytes }

// Source describes where a stream's documents come from.
type Source struct {
	// Cursor was opened with RunOn, so that a client that disconnects before the command's reply
	// leaves no unknown cursor. Its getMores do not use RunOn, since closing the cursor ends them.
	Cursor Cursor
	// Documents are sent before those of the cursor.
	Documents []bson.Raw
	// Of is where the documents come from; zero: nothing is learned of them.
	Of batch.Source
	// Sizer is what is known of the cursor's documents. If it is zero, what is known of Of counts.
	Sizer batch.Sizer
	// MaxBatch is the batch size that the client has chosen. No batch is larger. 0 means no bound.
	MaxBatch int32
}

// First returns the batch size for the command that opens a stream's cursor: the server's own, or
// less if the client has chosen less, or if what is known of the source's documents says that fewer
// fill a batch. Of an unknown source, the first batch is small.
func (s *Streams) First(of batch.Source, chosen *int32) *int32 {
	most := int32(batch.First)
	if chosen != nil {
		most = min(most, *chosen)
	}
	n := batch.Start(s.budget.Target(), s.sizes.Mean(of), most)
	return &n
}

// Open runs the command that opens the cursor of a stream. The command has a place among the calls
// in flight of its principal; so has each getMore of Run. A stream whose client is slow holds none.
func Open[C any](ctx context.Context, run func() (C, error)) (C, error) {
	account := admission.From(ctx)
	if err := account.EnterCommand(ctx, false); err != nil {
		var none C
		return none, err
	}
	defer account.LeaveCommand()
	return run()
}

// Run sends all documents of a source, in order, and closes its cursor. It blocks until all are
// sent, ctx ends, or the cursor or send fails. send returns when the transport has accepted the
// message; it may keep the documents but must not change them. If ctx ends, Run returns its cause.
func (s *Streams) Run(ctx context.Context, src Source, send func([]bson.Raw) error) error {
	defer s.budget.Join()()
	cur := src.Cursor
	defer func() { _ = cur.Close(ctx) }() // outlives ctx
	admission.From(ctx).GoOn()            // the client would have a part of the result
	err := s.run(ctx, src, send)
	if err != nil && ctx.Err() != nil && isCanceled(err) {
		return context.Cause(ctx)
	}
	return err
}

func (s *Streams) run(ctx context.Context, src Source, send func([]bson.Raw) error) error {
	out := sender{
		send: send, messageBytes: s.messageBytes,
		account: admission.From(ctx),
	}
	if ctx.Err() != nil { // the command that opened the stream was refused its reply, or has run on
		return context.Cause(ctx)
	}
	if err := out.all(src.Documents); err != nil {
		return err
	}
	src.Documents = nil
	sizer := src.Sizer
	if sizer == (batch.Sizer{}) {
		sizer = batch.Resume(s.sizes.Mean(src.Of), batch.First)
	}
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
		s.sizes.Saw(src.Of, documents, bytes)
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
	account      *admission.Account // of the call
	before       int64              // charged for the batch before
}

// batch reads one batch and sends it. It is a separate function so that no variable references the
// documents after it returns.
func (s *sender) batch(ctx context.Context, cur Cursor) (n, bytes int, err error) {
	b, err := s.next(ctx, cur)
	if err != nil {
		return 0, 0, err
	}
	err = s.all(b.Documents)
	s.release()
	return len(b.Documents), b.Bytes, err
}

// release returns the memory of the batch before the last, which the client has taken. The last
// message may still be on the way when the transport has accepted it.
func (s *sender) release() {
	s.account.Shrink(s.before)
	s.before = s.account.TakeReplies()
}

// next reads one batch, in a place among the calls in flight.
func (s *sender) next(ctx context.Context, cur Cursor) (cursor.Batch, error) {
	if err := s.account.EnterCommand(ctx, true); err != nil {
		return cursor.Batch{}, err
	}
	defer s.account.LeaveCommand()
	return cur.Next(ctx)
}

func (s *sender) all(docs []bson.Raw) error {
	for len(docs) > 0 {
		n, _ := batch.Cut(docs, batch.Limits{Bytes: s.messageBytes})
		if err := s.send(docs[:n:n]); err != nil {
			return err
		}
		docs = docs[n:]
	}
	return nil
}

// isCanceled reports whether err means that the stream was interrupted. The error can come from the
// cursor or from the transport.
func isCanceled(err error) bool {
	return errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled
}

// pacer delays the getMores of a tailable cursor whose server does not wait at the end.
type pacer struct{ begun time.Time }

const (
	quick      = 20 * time.Millisecond  // a faster empty batch means that the server did not wait
	quietPause = 250 * time.Millisecond // before the next getMore
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
