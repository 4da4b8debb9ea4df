// Package stream sends all documents of a cursor as fast as the client receives them.
//
// A stream reads one batch ahead, if there is memory for it, while the transport takes the one
// before, so that it waits for the server or for the client, and not for one after the other. It
// holds three batches at most, however slow its client is. Their size in bytes comes from a budget
// that all streams share. The stream closes its cursor when it ends, whatever the reason.
package stream

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/call"
)

// Defaults of Config. A gRPC message of DefaultMessageBytes has room for its framing in a buffer of
// 512 KiB, or of 1 MiB if its documents are tiny. Larger buffers are not used again.
const (
	DefaultBudget       = 32 << 20
	DefaultMessageBytes = 448 << 10
)

// Cursor lists the methods of *cursor.Cursor that a stream needs.
type Cursor interface {
	NextLent(ctx context.Context) (cursor.Batch, error)
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

// Target returns the bytes that a batch of a stream should have now.
func (s *Streams) Target() int { return s.budget.Target() }

// Source describes where a stream's documents come from.
type Source struct {
	// Cursor was opened with RunOn, so that a client that disconnects before the command's reply
	// leaves no unknown cursor. Its getMores do not use RunOn, since closing the cursor ends them.
	Cursor Cursor
	// Documents are sent before those of the cursor. They are in Lent, of which Run gets the
	// references.
	Documents []bson.Raw
	Lent      []*buffer.Buffer
	// Charge is what the call is charged for them. Run returns it.
	Charge int64
	// ReadAhead allows a batch to be read while the one before is sent. It is not for cursors whose
	// server waits for documents, and not for those that are in a transaction or hold a connection,
	// where one command at a time may run.
	ReadAhead bool
	// Of is where the documents come from; zero: nothing is learned of them.
	Of batch.Source
	// Sizer is what is known of the cursor's documents. If it is zero, what is known of Of counts.
	Sizer batch.Sizer
	// MaxBatch is the batch size that the client has chosen. No batch is larger. 0 means no bound.
	MaxBatch int32
	// GoesOn says that the call may go on for days after Run.
	GoesOn bool
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
// message. If it returns nil, the documents are read until it is called for the batch after them
// and has returned, and those of the last two until the call ends. It must not change them. If
// Source.GoesOn is set, the last two are not charged after Run. If ctx ends, Run returns its cause.
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
	r := reader{streams: s, src: src, sizer: src.Sizer, out: sender{
		send: send, messageBytes: s.messageBytes,
		account: admission.From(ctx),
	}}
	if ctx.Err() != nil { // the command that opened the stream was refused its reply, or has run on
		keep(src.Lent)
		return context.Cause(ctx)
	}
	if err := r.out.all(src.Documents); err != nil {
		keep(src.Lent)
		return err
	}
	r.out.accepted(held{charge: src.Charge, rest: src.Lent})
	r.src.Documents, r.src.Lent = nil, nil
	if r.sizer == (batch.Sizer{}) {
		r.sizer = batch.Resume(s.sizes.Mean(src.Of), batch.First)
	}
	defer func() { r.end(ctx) }()
	for r.ahead != nil || !src.Cursor.Done() {
		if err := r.batch(ctx); err != nil {
			return err
		}
	}
	return nil
}

func keep(lent []*buffer.Buffer) {
	for _, b := range lent {
		b.Keep()
	}
}

// reader reads the batches of a cursor and sends them.
type reader struct {
	streams *Streams
	src     Source
	sizer   batch.Sizer
	out     sender
	ahead   *ahead // nil: nothing is read ahead
	pause   Pacer
}

// batch sends the next batch, and reads another one meanwhile. It is a separate function so that no
// variable references the documents after it returns.
func (r *reader) batch(ctx context.Context) error {
	b, err := r.next(ctx)
	if err != nil {
		return err
	}
	last := held{charge: r.out.account.TakeReplies(), lent: b.Lent}
	documents := len(b.Documents)
	r.sizer.Saw(documents, b.Bytes)
	r.streams.sizes.Saw(r.src.Of, documents, b.Bytes)
	if r.src.ReadAhead && documents > 0 && !r.src.Cursor.Done() {
		r.readAhead(ctx)
	}
	if err := r.out.all(b.Documents); err != nil {
		b.Lent.Keep() // the transport may still read it
		return err
	}
	if documents > 0 {
		r.out.accepted(last)
	} else { // it is not sent, so nothing says that the client has taken the one before
		last.end(r.out.account)
		if !r.src.Cursor.Done() { // it may be hours until there is another one
			r.out.before.keep(r.out.account)
			r.out.before = held{}
		}
	}
	if r.ahead != nil || r.src.Cursor.Done() {
		return nil
	}
	return r.pause.After(ctx, documents)
}

// next returns the batch that is read ahead, or reads one.
func (r *reader) next(ctx context.Context) (cursor.Batch, error) {
	if a := r.ahead; a != nil {
		r.ahead = nil
		return a.wait()
	}
	r.setSize()
	r.pause.Begin()
	return r.out.next(ctx, r.src.Cursor)
}

// setSize sets the size of the next batch, and returns how many bytes its documents may have.
func (r *reader) setSize() (bytes int) {
	n := r.sizer.Next(r.streams.budget.Target())
	if r.src.MaxBatch > 0 {
		n = min(n, r.src.MaxBatch)
	}
	r.src.Cursor.SetBatchSize(n)
	mean, _ := r.sizer.Seen()
	return int(n) * mean
}

// readAhead begins to read the next batch, if there is memory for it.
func (r *reader) readAhead(ctx context.Context) {
	if r.out.account.ReserveSpare(int64(r.setSize())) {
		r.ahead = begin(ctx, func(ctx context.Context) (cursor.Batch, error) {
			return r.out.next(ctx, r.src.Cursor)
		})
	}
}

// end stops what is read ahead, and leaves the last batch to the call, since its client may read
// it still. If the call goes on, it leaves it to the collector.
func (r *reader) end(ctx context.Context) {
	r.ahead.stop()
	if r.src.GoesOn {
		r.out.before.keep(r.out.account)
		return
	}
	call.Lend(ctx, r.out.before.lent)
	for _, b := range r.out.before.rest {
		call.Lend(ctx, b)
	}
}

// sender splits batches into messages.
type sender struct {
	send         func([]bson.Raw) error
	messageBytes int
	account      *admission.Account // of the call
	before       held
}

// held has what a batch holds until the client has taken the batch after it: the last message may
// still be on the way when the transport has accepted it.
type held struct {
	charge int64
	lent   *buffer.Buffer
	rest   []*buffer.Buffer // of a cursor that a stream has taken over
}

// accepted records that the transport has accepted a batch. It returns the memory of the one
// before, which the client has taken.
func (s *sender) accepted(last held) {
	s.before.end(s.account)
	s.before = last
}

// keep leaves the memory to the client, which may still read it.
func (h held) keep(account *admission.Account) {
	h.lent.Keep()
	keep(h.rest)
	account.Shrink(h.charge)
}

// end returns the memory.
func (h held) end(account *admission.Account) {
	h.lent.Release()
	for _, b := range h.rest {
		b.Release()
	}
	account.Shrink(h.charge)
}

// next reads one batch, in a place among the calls in flight.
func (s *sender) next(ctx context.Context, cur Cursor) (cursor.Batch, error) {
	if err := s.account.EnterCommand(ctx, true); err != nil {
		return cursor.Batch{}, err
	}
	defer s.account.LeaveCommand()
	return cur.NextLent(ctx)
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

// Pacer delays the getMores of a tailable cursor whose server does not wait at the end. The zero
// value is ready.
type Pacer struct{ begun time.Time }

const (
	quick      = 20 * time.Millisecond  // a faster empty batch means that the server did not wait
	quietPause = 250 * time.Millisecond // before the next getMore
)

// Begin begins a getMore.
func (p *Pacer) Begin() { p.begun = time.Now() }

// After blocks for the pause after a getMore that has brought so many documents, if there is one.
// If ctx ends before, it returns its cause.
func (p *Pacer) After(ctx context.Context, documents int) error {
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
