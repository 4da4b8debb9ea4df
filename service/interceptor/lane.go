package interceptor

import (
	"context"
	"time"
)

// interruptible describes streams whose calls a context can end.
type interruptible interface {
	SendMsgContext(ctx context.Context, m any) error
	RecvMsgContext(ctx context.Context, m any) error
}

// lane passes the messages of a stream in one direction, one at a time, and limits how long each
// may take. It has one timer and, if the stream's calls cannot be ended, one goroutine, which makes
// them. The goroutine of the handler owns the fields.
type lane struct {
	// ctx ends with the stream's, with the handler, and when a message has taken too long.
	ctx      context.Context //nolint:containedctx // a stream has one
	end      context.CancelCauseFunc
	timer    *time.Timer
	patience time.Duration

	direct func(context.Context, any) error // of an interruptible stream
	// Of others: messages takes each message to the goroutine, and done its error back. done has
	// room for one, so the goroutine ends also if the handler has.
	messages chan any
	done     chan error
}

// newLane returns a lane for a stream with a context. If a message takes longer than patience, the
// lane ends with the error late. The caller sets direct or calls start.
func newLane(ctx context.Context, patience time.Duration, late error) *lane {
	l := &lane{patience: patience}
	l.ctx, l.end = context.WithCancelCause(ctx)
	l.timer = time.AfterFunc(patience, func() { l.end(late) })
	return l
}

// start starts the goroutine, which passes messages by plain.
func (l *lane) start(plain func(any) error) {
	l.messages, l.done = make(chan any), make(chan error, 1)
	go l.run(plain)
}

// run passes messages until the lane has ended. The call that blocks then ends with the stream,
// which the transport ends when the handler has returned.
func (l *lane) run(plain func(any) error) {
	for {
		select {
		case m := <-l.messages:
			l.done <- plain(m)
		case <-l.ctx.Done():
			return
		}
	}
}

// pass passes a message. It blocks until the transport has done so or the lane ends, and returns
// the cause then. A lane that has ended passes nothing more.
func (l *lane) pass(m any) error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	l.timer.Reset(l.patience)
	defer l.timer.Stop()
	if l.direct != nil {
		err := l.direct(l.ctx, m)
		if err != nil && l.ctx.Err() != nil {
			return context.Cause(l.ctx)
		}
		return err
	}
	select {
	case l.messages <- m:
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
	select {
	case err := <-l.done:
		return err
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// close ends the lane. A nil lane does nothing.
func (l *lane) close() {
	if l != nil {
		l.timer.Stop()
		l.end(nil)
	}
}
