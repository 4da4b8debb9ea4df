// Package changestream reads the changes of a collection, a database or a deployment. A stream is
// the cursor of an aggregate that begins with $changeStream. After an error from which a server or
// the network recovers, the stream opens a new cursor at the place that it has reached.
//
// Pure functions decide where a stream resumes, and after which errors (position, resumable). A
// stream has no goroutine. It does not decode events: they are views on the replies, which stay
// valid and must not be changed.
package changestream

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/operation"
)

// Options holds what a stream asks for. Fields that are not set are not sent.
type Options struct {
	// Collection is empty for the changes of a database.
	Collection string
	// Deployment asks for the changes of all databases. The operation runs on admin then, and
	// Collection is empty.
	Deployment bool
	// Start is where the stream begins.
	Start Start
	// FullDocument and FullDocumentBeforeChange say which documents events have, in MongoDB's
	// words. The server checks them.
	FullDocument, FullDocumentBeforeChange string
	ShowExpandedEvents                     *bool
	// Pipeline holds the stages behind $changeStream.
	Pipeline  bson.Array
	BatchSize *int32
	// MaxAwaitTimeMS is how long the server waits for changes in a getMore.
	MaxAwaitTimeMS *int64
	// Comment goes with the aggregate, and with each getMore to a server that takes one there.
	Comment bson.Value
	// Append appends further fields to the aggregate command; nil: none.
	Append func(b *bson.Builder, to operation.Target)
	// Timeout is the operation's timeoutMS, nil for the Runner's. It begins anew with each call of
	// Next and TryNext, and holds for all commands of the call.
	Timeout *time.Duration
}

// Stream reads changes. It is for one goroutine at a time.
type Stream struct {
	runner *operation.Runner
	op     operation.Operation
	opt    Options

	position position
	cur      *cursor.Cursor
	// batch holds the events that have arrived, of which the first next ones were returned.
	batch cursor.Batch
	next  int
	// lost is why the cursor cannot go on, so that the next call opens another one; nil while it
	// can.
	lost error
	// ended is the error of all further calls; nil while the stream goes on.
	ended error
}

// Open runs the aggregate, and returns the stream, which the caller must close. op says where the
// aggregate runs: Open sets its Command, and its RunOn does not apply to getMores. If the aggregate
// fails, Open returns its error as it is, and there is nothing to close.
func Open(
	ctx context.Context, r *operation.Runner, op operation.Operation, opt Options,
) (*Stream, error) {
	s := &Stream{runner: r, op: op, opt: opt, position: startingAt(opt.Start)}
	res, err := s.open(ctx, func(int32) Start { return opt.Start })
	if err != nil {
		return nil, err
	}
	s.position = s.position.opened(&s.batch, res.Reply, res.Hello.MaxWireVersion)
	return s, nil
}

// open opens a cursor and takes its first batch.
func (s *Stream) open(
	ctx context.Context, start func(wire int32) Start,
) (operation.Result, error) {
	op := s.op
	op.Command = &aggregate{&s.opt, start}
	op.DeadlineAsMaxTime = true
	opt := cursor.Options{
		MaxAwaitTimeMS: s.opt.MaxAwaitTimeMS, Comment: s.opt.Comment, Timeout: s.opt.Timeout,
	}
	if s.opt.BatchSize != nil {
		opt.BatchSize = *s.opt.BatchSize
	}
	cur, res, err := cursor.OpenResult(ctx, s.runner, op, opt)
	if err != nil {
		return res, err
	}
	// Nothing is lost if a getMore is interrupted, since the stream then opens another cursor.
	cur.SetRunOn(false)
	s.cur = cur
	first, err := cur.Next(ctx) // without I/O
	s.receive(first)
	return res, err
}

func (s *Stream) receive(b cursor.Batch) {
	s.batch, s.next = b, 0
	s.position = s.position.received(&b)
	n, sink := len(b.Documents), s.runner.Sink
	if n == 0 || sink == nil || sink.ChangesReceived == nil {
		return
	}
	sink.ChangesReceived(event.ChangesReceived{
		Database: s.op.Database, Collection: s.opt.Collection, Events: n,
		WallTime: wallTime(b.Documents[n-1]), ReceivedAt: time.Now(),
	})
}

// wallTime returns when the server made an event, zero if the event does not say so.
func wallTime(event bson.Raw) time.Time {
	v, _ := event.Lookup("wallTime")
	ms, ok := v.DateTime()
	if !ok {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Next returns the next event, a view on the reply. It blocks until there is one, the stream or ctx
// ends, or timeoutMS is over. It returns io.EOF after the last event of a stream that the server
// has closed, as it does after an invalidate event.
//
// If ctx ends or timeoutMS is over, the stream stays valid, and Next may be called again. Any other
// error ends the stream: all further calls return it. Another stream can then start at ResumeToken.
// Close the stream in any case.
func (s *Stream) Next(ctx context.Context) (bson.Raw, error) {
	if s.Buffered() > 0 {
		return s.take(ctx)
	}
	ctx, done := s.runner.Begin(ctx, s.opt.Timeout, time.Time{})
	defer done()
	for {
		doc, found, err := s.try(ctx)
		if found || err != nil {
			return doc, err
		}
	}
}

// TryNext returns what Next returns, but runs at most one getMore: found is false if its reply has
// no event. If nothing changes, it blocks for MaxAwaitTimeMS.
func (s *Stream) TryNext(ctx context.Context) (doc bson.Raw, found bool, err error) {
	if s.Buffered() > 0 {
		doc, err = s.take(ctx)
		return doc, err == nil, err
	}
	ctx, done := s.runner.Begin(ctx, s.opt.Timeout, time.Time{})
	defer done()
	return s.try(ctx)
}

// SetBatchSize sets the most events that a reply of the server has, from the next getMore on.
func (s *Stream) SetBatchSize(n int32) {
	s.opt.BatchSize = &n
	s.cur.SetBatchSize(n)
}

// Buffered returns the number of events that Next returns without I/O.
func (s *Stream) Buffered() int { return len(s.batch.Documents) - s.next }

// ResumeToken returns the token of the event that was returned last, or a later token that the
// server has sent because nothing changed; nil while there is none. A stream that has it as its
// ResumeAfter or StartAfter continues after that event. After an invalidate event only StartAfter
// does.
func (s *Stream) ResumeToken() bson.Raw { return s.position.token }

// Close ends the stream. If the server still holds a cursor, Close sends killCursors, with a short
// time limit of its own. The error is always nil.
func (s *Stream) Close(ctx context.Context) error {
	if s.ended == nil {
		s.ended = cursor.ErrClosed
	}
	s.batch, s.next = cursor.Batch{}, 0
	_ = s.cur.Close(ctx)
	if session := s.op.Session; session != nil && session.IsImplicit() {
		session.End() // unless the cursor has ended it
	}
	return nil
}

// try runs one getMore, with what is needed before and after it for the stream to go on.
func (s *Stream) try(ctx context.Context) (doc bson.Raw, found bool, err error) {
	if s.ended != nil {
		return nil, false, s.ended
	}
	if s.lost != nil {
		if err := s.resume(ctx, s.lost); err != nil {
			return nil, false, err
		}
	}
	if s.Buffered() == 0 {
		if err := s.fetch(ctx); err != nil {
			return nil, false, err
		}
	}
	if s.Buffered() == 0 {
		return nil, false, nil
	}
	doc, err = s.take(ctx)
	return doc, err == nil, err
}

// fetch runs a getMore. After a resumable error it opens another cursor, once.
func (s *Stream) fetch(ctx context.Context) error {
	b, err := s.cur.Next(ctx)
	switch {
	case err == nil:
		s.receive(b)
		return nil
	case errors.Is(err, io.EOF): // for good, also if the call is out of time
		return s.end(ctx, err)
	case outOfTime(ctx, err):
		s.lost = err
		return err
	case !resumable(err, s.cur.WireVersion()):
		return s.end(ctx, err)
	}
	return s.resume(ctx, err)
}

// resume opens another cursor where the stream has come to, after the old one was lost. An error of
// its aggregate ends the stream, since retries are that command's own. The old cursor is ended
// before, if its server can be reached.
func (s *Stream) resume(ctx context.Context, lost error) error {
	s.lost = lost
	// A call whose context has ended can neither kill the old cursor nor open one: the next does.
	if ctx.Err() == nil {
		if session := s.cur.Abandon(ctx); session != nil {
			s.op.Session = session
		}
	}
	_, err := s.open(ctx, s.position.resume)
	if session := s.op.Session; session != nil && session.IsImplicit() && session.Err() != nil {
		s.op.Session = nil // it has ended with the cursor, and the next one has another
	}
	switch {
	case err == nil:
		s.lost = nil
		if sink := s.runner.Sink; sink != nil && sink.ChangeStreamResumed != nil {
			sink.ChangeStreamResumed(event.ChangeStreamResumed{
				Database: s.op.Database, Collection: s.opt.Collection, Err: lost,
			})
		}
		return nil
	case outOfTime(ctx, err):
		return err
	}
	return s.end(ctx, err)
}

// outOfTime reports whether the call ended because its time was over or its caller gave up. That
// says nothing about the stream (Client Side Operations Timeout, "Change Streams").
func outOfTime(ctx context.Context, err error) bool {
	_, timedOut := errors.AsType[*operation.TimeoutError](err)
	// The cursor's context has the same deadline, and may end before this one does.
	deadline, timed := ctx.Deadline()
	return timedOut || ctx.Err() != nil || timed && !time.Now().Before(deadline)
}

// take returns the next event of the batch.
func (s *Stream) take(ctx context.Context) (bson.Raw, error) {
	position, err := s.position.returning(&s.batch, s.next)
	if err != nil {
		return nil, s.end(ctx, err)
	}
	doc := s.batch.Documents[s.next]
	s.position = position
	if s.next++; s.Buffered() == 0 {
		s.batch, s.next = cursor.Batch{}, 0 // an idle stream keeps no reply
	}
	return doc, nil
}

// end ends the stream with err, which it returns.
func (s *Stream) end(ctx context.Context, err error) error {
	_ = s.Close(ctx)
	s.ended = err
	return err
}
