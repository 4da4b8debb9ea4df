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

// request is a message that is being built. Requests are pooled. One belongs to the exchange that
// uses it.
type request struct {
	msg     []byte
	builder bson.Builder
}

var requests = sync.Pool{New: func() any { return &request{msg: make([]byte, 0, 1024)} }}

// maxPooled bounds the buffers that are pooled, so that a rare large insert does not keep its
// memory.
const maxPooled = 1 << 20

func (q *request) release() {
	q.builder.Reset(nil)
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
// is what is left of the time.
func (q *request) build(ctx context.Context, op *Operation, x *exchange) error {
	to := Target{Hello: x.conn.Hello()}
	var flags wire.Flags
	if op.Unacknowledged {
		flags = wire.MoreToCome
	}
	b := &q.builder
	b.Reset(wire.BeginMsg(q.msg[:0], flags))
	if err := op.Command.Append(b, to); err != nil {
		return err
	}
	ms, err := op.maxTime(ctx, x)
	if err != nil {
		return err
	}
	if ms != nil {
		b.Int64("maxTimeMS", *ms)
	}
	b.String("$db", op.Database)
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
	if err := q.appendSequence(op, to); err != nil {
		return err
	}
	wire.EndMsg(q.msg)
	if limit := int(to.Hello.MaxMessageSize); limit > 0 && len(q.msg) > limit {
		return &TooLargeError{Size: len(q.msg), Limit: limit}
	}
	return nil
}

func (q *request) appendSequence(op *Operation, to Target) error {
	s, ok := op.Command.(Sequencer)
	if !ok {
		return nil
	}
	msg, start := wire.BeginSequence(q.msg, s.Sequence())
	msg, err := s.AppendDocuments(msg, to)
	if err != nil {
		return err
	}
	q.msg = wire.EndSequence(msg, start)
	return nil
}

// maxTime returns the time that the server may use, nil for no limit: the caller's MaxTimeMS, or
// what is left until the deadline, less the shortest round trip that was seen, in whole
// milliseconds. The latter is never 0, which servers read as no limit (Client Side Operations
// Timeout, "Command Execution").
func (op *Operation) maxTime(ctx context.Context, x *exchange) (*int64, error) {
	deadline, ok := ctx.Deadline()
	if !ok || !op.DeadlineAsMaxTime {
		return op.MaxTimeMS, nil
	}
	left := (time.Until(deadline) - x.server.Description().MinRTT).Milliseconds()
	if left <= 0 {
		return nil, &TimeoutError{Err: errNoTimeLeft}
	}
	if given := op.MaxTimeMS; given != nil && *given > 0 && *given <= left {
		return given, nil
	}
	x.deadlineSent = true
	return new(min(left, maxMaxTime)), nil
}

// maxMaxTime is the largest maxTimeMS that servers take.
const maxMaxTime = 1<<31 - 1

var errNoTimeLeft = errors.New("less time is left than a round trip takes; nothing was sent")
