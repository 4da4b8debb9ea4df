package operation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/wire"
)

// request holds a message that is being built. Requests are pooled. One belongs to the exchange
// that uses it.
type request struct {
	msg     []byte
	builder bson.Builder
	memory  memory
}

var requests = sync.Pool{New: func() any { return &request{msg: make([]byte, 0, 1024)} }}

// maxPooled bounds the buffers that are pooled, so that a rare large insert does not keep its
// memory.
const maxPooled = 1 << 20

func (q *request) release() {
	q.builder.Reset(nil)
	q.memory.release()
	q.memory = memory{}
	if cap(q.msg) <= maxPooled {
		requests.Put(q)
	}
}

// body returns the command document in the finished message.
func (q *request) body() bson.Raw {
	doc, _, err := bson.Read(q.msg[wire.HeaderSize+flagsAndKind:])
	if err != nil {
		panic("bug: operation: malformed request: " + err.Error())
	}
	return doc
}

// build makes the message for this connection. It is the last step before sending, since maxTimeMS
// is what is left of the time. If it turns out that the command must not be repeated, it makes
// another one without a transaction number.
func (q *request) build(ctx context.Context, op *Operation, x *exchange, c *course) error {
	if err := q.write(ctx, op, x, c); err != nil {
		return err
	}
	m, ok := op.Command.(Mixed)
	if !ok || c.txnNumber == 0 || m.Retryable() {
		return nil
	}
	if op.isExact() {
		return ErrNotRetryable
	}
	c.plain, c.txnNumber = true, 0
	return q.write(ctx, op, x, c)
}

func (q *request) write(ctx context.Context, op *Operation, x *exchange, c *course) error {
	to := Target{Hello: x.conn.Hello(), Repeated: c.ledger.repeated}
	if x.runner.Admit != nil {
		q.memory.ctx, q.memory.admit = ctx, x.runner.Admit
		to.memory = &q.memory
	}
	var flags wire.Flags
	if op.Unacknowledged {
		flags = wire.MoreToCome
	}
	b := &q.builder
	b.ResetIn(wire.BeginMsg(q.msg[:0], flags), to.memory)
	if err := op.Command.Append(b, to); err != nil {
		return err
	}
	op.appendReadConcern(b, &c.part)
	if err := op.appendMaxTime(ctx, b, x); err != nil {
		return err
	}
	b.AppendElements(x.runner.API)
	b.String("$db", op.Database)
	x.appendSession(c, op, b)
	if op.Kind != Write && op.Selector == nil {
		if rp := x.preference.ToSend(x.server.TopologyKind(), x.server.Description()); rp != nil {
			rp.AppendTo(b, "$readPreference")
		}
	}
	if err := b.Err(); err != nil {
		return fmt.Errorf("build %s: %w", op.Command.Name(), err)
	}
	b.Finish()
	q.msg = b.Bytes()
	if err := q.appendSequences(op, to); err != nil {
		return err
	}
	wire.EndMsg(q.msg)
	if limit := int(to.Hello.MaxMessageSize); limit > 0 && len(q.msg) > limit {
		return &TooLargeError{Size: len(q.msg), Limit: limit}
	}
	return nil
}

func (q *request) appendSequences(op *Operation, to Target) error {
	s, ok := op.Command.(Sequencer)
	if !ok {
		return nil
	}
	msg, err := s.AppendSequences(q.msg, to)
	if err != nil {
		return err
	}
	q.msg = msg
	return nil
}

// appendMaxTime appends the time that the server may use: the caller's MaxTimeMS, or what is left
// until the deadline, less the shortest round trip that was seen, in whole milliseconds. The
// latter is never 0, which servers read as no limit (Client Side Operations Timeout, "Command
// Execution").
func (op *Operation) appendMaxTime(ctx context.Context, b *bson.Builder, x *exchange) error {
	deadline, timed := ctx.Deadline()
	given := op.MaxTimeMS
	if !timed || !op.DeadlineAsMaxTime {
		if given != nil {
			b.Int64("maxTimeMS", *given)
		}
		return nil
	}
	left := (time.Until(deadline) - x.server.Description().MinRTT).Milliseconds()
	switch {
	case left <= 0:
		return &TimeoutError{Err: errNoTimeLeft}
	case given != nil && *given > 0 && *given <= left:
		b.Int64("maxTimeMS", *given)
	default:
		x.deadlineSent = true
		b.Int64("maxTimeMS", min(left, maxMaxTime))
	}
	return nil
}

// maxMaxTime is the largest maxTimeMS that servers take.
const maxMaxTime = 1<<31 - 1

var errNoTimeLeft = errors.New("the remaining time is less than a round trip takes; " +
	"nothing was sent")
