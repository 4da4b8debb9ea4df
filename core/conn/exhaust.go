package conn

import (
	"context"
	"fmt"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/wire"
)

// AwaitHello asks the server to reply to hello when its state differs from known, or after
// maxAwait, and to continue to do so (Server Monitoring, "streaming protocol"). If the server has
// announced another reply, AwaitHello sends nothing and reads that. ctx bounds the wait for this
// one reply; errors are as in RoundTrip. After the first call the connection can only be used for
// AwaitHello until Following is false.
func (c *Conn) AwaitHello(
	ctx context.Context, known *description.TopologyVersion, maxAwait time.Duration,
) (bson.Raw, error) {
	if c.follows == 0 {
		reply, err := c.sendAwait(ctx, awaitHello(c, known, maxAwait))
		return reply, asHello(err)
	}
	if b := c.broken.Load(); b != nil {
		return nil, asHello(c.fail(ctx, "read", false, b.err))
	}
	r := c.begin(ctx)
	defer r.end()
	reply, err := c.readStreamed(ctx)
	r.complete = err == nil
	return reply, asHello(err)
}

// Following reports whether the server has announced another reply, which AwaitHello reads.
func (c *Conn) Following() bool { return c.follows != 0 }

func (c *Conn) sendAwait(ctx context.Context, msg []byte) (bson.Raw, error) {
	if err := c.check(ctx, msg); err != nil {
		return nil, err
	}
	r := c.begin(ctx)
	defer r.end()
	if err := c.write(ctx, msg); err != nil {
		return nil, err
	}
	reply, err := c.readStreamed(ctx)
	r.complete = err == nil
	return reply, err
}

// readStreamed reads one reply: to the last request, or the next reply that the previous reply
// announced.
func (c *Conn) readStreamed(ctx context.Context) (bson.Raw, error) {
	var received wire.Msg
	h, m, _, err := c.readMessage(ctx, &received, false)
	if err != nil {
		return nil, c.fail(ctx, "read", true, err)
	}
	waitedFor := c.requestID
	if c.follows != 0 {
		waitedFor = c.follows
	}
	msg, ok := m.(*wire.Msg)
	switch {
	case !ok:
		err = &wire.FormatError{Offset: 12, Problem: "unexpected " + h.OpCode.String()}
	case h.ResponseTo != waitedFor:
		err = &wire.FormatError{
			Offset: 8, Problem: fmt.Sprintf("reply to request %d, expected a reply to %d",
				h.ResponseTo, waitedFor),
		}
	case msg.Flags&wire.MoreToCome != 0 && h.RequestID == 0:
		err = &wire.FormatError{Offset: 4, Problem: "moreToCome in a reply without an id"}
	}
	if err != nil {
		return nil, c.fail(ctx, "read", true, err)
	}
	c.follows = 0
	if msg.Flags&wire.MoreToCome != 0 {
		c.follows = h.RequestID
	}
	c.answered, c.rested = c.requestID, time.Now()
	return msg.Body, nil
}

func awaitHello(c *Conn, known *description.TopologyVersion, maxAwait time.Duration) []byte {
	b := bson.NewBuilder(wire.BeginMsg(nil, wire.ExhaustAllowed))
	c.beginHello(b)
	b.OpenDocument("topologyVersion").
		ObjectID("processId", known.ProcessID).Int64("counter", known.Counter).
		Close().
		Int64("maxAwaitTimeMS", maxAwait.Milliseconds())
	return endHello(b, c.api)
}
