package stream

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/batch"
)

// Changes lists the methods of *changestream.Stream that a watch needs. If TryNext finds nothing,
// it is called again at once.
type Changes interface {
	TryNext(ctx context.Context) (event bson.Raw, found bool, err error)
	Buffered() int
	ResumeToken() bson.Raw
	SetBatchSize(n int32)
	Close(ctx context.Context) error
}

var _ Changes = (*changestream.Stream)(nil)

// Watch describes where the events of a watch come from, and where they go.
type Watch struct {
	Changes Changes
	// MaxBatch is the batch size that the client has chosen. No batch is larger. 0 means no bound.
	MaxBatch int32
	// Send sends events. It returns when the transport has accepted them.
	Send func(events []bson.Raw) error
	// Progress sends a resume token that is not an event's, nil if there is none yet. It returns
	// when the transport has accepted it.
	Progress func(token bson.Raw) error
}

// Watch sends the events of a change stream, in order, and closes the stream. Before the first
// event, and whenever the server has a newer resume token but no event, it sends the token. It
// blocks until the server has ended the stream, ctx ends, or the stream, Send or Progress fails. If
// ctx ends, Watch returns its cause.
func (s *Streams) Watch(ctx context.Context, w Watch) error {
	defer s.budget.Join()()
	defer func() { _ = w.Changes.Close(ctx) }() // outlives ctx
	err := s.watch(ctx, &watcher{Watch: w, out: sender{
		send: w.Send, messageBytes: s.messageBytes, account: admission.From(ctx),
	}})
	if err != nil && ctx.Err() != nil && isCanceled(err) {
		return context.Cause(ctx)
	}
	return err
}

func (s *Streams) watch(ctx context.Context, w *watcher) error {
	if err := w.open(ctx); err != nil {
		return err
	}
	var sizer batch.Sizer
	for {
		n := sizer.Next(s.budget.Target())
		if w.MaxBatch > 0 {
			n = min(n, w.MaxBatch)
		}
		w.Changes.SetBatchSize(n)
		documents, size, err := w.batch(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		sizer.Saw(documents, size)
	}
}

// watcher sends what a change stream has.
type watcher struct {
	Watch

	out sender
	// token is the last one that was sent.
	token bson.Raw
}

// open sends what came with the reply that opened the stream. If that is no event, open sends the
// resume token, so that the client learns that the stream is open.
func (w *watcher) open(ctx context.Context) error {
	if ctx.Err() != nil { // the command that opened the stream has run on
		return context.Cause(ctx)
	}
	if w.Changes.Buffered() == 0 {
		return w.progress()
	}
	_, _, err := w.batch(ctx)
	return err
}

// batch sends the next events, or a newer resume token. It is a separate function so that no
// variable references the events after it returns.
func (w *watcher) batch(ctx context.Context) (n, size int, err error) {
	events, err := w.next(ctx)
	if len(events) > 0 {
		if err := w.out.all(events); err != nil {
			return 0, 0, err
		}
		w.token = tokenOf(events[len(events)-1])
	}
	w.out.accepted(held{charge: w.out.account.TakeReplies()})
	if err != nil {
		return 0, 0, err
	}
	if token := w.Changes.ResumeToken(); len(events) == 0 && !bytes.Equal(token, w.token) {
		err = w.progress()
	}
	for _, event := range events {
		size += len(event)
	}
	return len(events), size, err
}

// next returns all events of the next batch. If an event cannot be returned, next returns those
// before it with the error.
func (w *watcher) next(ctx context.Context) (events []bson.Raw, err error) {
	for {
		event, found, err := w.Changes.TryNext(ctx)
		if err != nil || !found {
			return events, err
		}
		if events == nil {
			events = make([]bson.Raw, 0, 1+w.Changes.Buffered())
		}
		if events = append(events, event); w.Changes.Buffered() == 0 {
			return events, nil
		}
	}
}

func (w *watcher) progress() error {
	w.token = w.Changes.ResumeToken()
	return w.Progress(w.token)
}

// tokenOf returns a copy of an event's resume token. Every event of a change stream has one.
func tokenOf(event bson.Raw) bson.Raw {
	id, _ := event.Lookup("_id")
	token, _ := id.Document()
	return token.Clone()
}
