package rest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// The call does not wait for a client that sends more slowly or stops. A chunked body is no
// different from one with a length.
const (
	// Each bodyPiece must arrive within Config.BodyTimeout.
	bodyPiece          = 64 << 10
	defaultBodyTimeout = 30 * time.Second
	// bodyRate is the least average rate, after Config.BodyTimeout.
	bodyRate = 16 << 10 // bytes a second
	// skipPatience is how long net/http may wait for a body that no handler reads before it writes
	// the answer, unless Config.BodyTimeout is less. It is less than writePatience.
	skipPatience = 10 * time.Second
)

// A body is charged as it arrives, unless it is small: bodyCost bytes for each byte of the buffer
// that it is read into, for the buffer and the BSON that the body becomes. The buffer begins with
// firstPiece bytes and grows by doubling, up to the length that the client has announced.
const (
	smallBody  = 16 << 10
	firstPiece = 64 << 10
	bodyCost   = 2
)

// decode reads the body into a request.
func (c *call) decode(m message) error {
	body, err := c.readBody()
	if err != nil {
		return err
	}
	defer c.handler.buffers.put(body)
	if len(bytes.TrimSpace(body.b)) == 0 {
		return nil // as {}
	}
	return c.work(len(body.b), func() error {
		items := itemLimit{c.handler.config.MaxItems, c}
		return decode(c.route.request, m, body.b, items)
	})
}

// charge charges the call with memory before it is taken.
func (c *call) charge(bytes int64) error {
	defer c.pause()()
	return c.account.Grow(c.r.Context(), bytes)
}

// chargeLast charges the call with memory of its response.
func (c *call) chargeLast(bytes int64) error {
	defer c.pause()()
	return c.account.GrowLast(c.r.Context(), bytes)
}

func (c *call) readBody() (*buffer, error) {
	limit, length := c.handler.config.MaxBodyBytes, c.r.ContentLength
	if length > limit {
		c.w.Header().Set("Connection", "close")
		return nil, c.tooLarge()
	}
	if err := c.account.CheckTotal(bodyCost * length); err != nil {
		c.w.Header().Set("Connection", "close")
		return nil, err
	}
	from := io.Reader(c.r.Body)
	if length < 0 {
		from = http.MaxBytesReader(c.w, c.r.Body, limit)
	}
	c.paced = pacedBody{call: c, from: from}
	body := c.handler.buffers.get(0)
	err := c.readAll(body, length)
	if err == nil {
		c.readUntil(time.Time{})
		return body, nil
	}
	c.handler.buffers.put(body)
	return nil, c.unread(err)
}

// readAll reads the body into a buffer. Its length is negative if it is not known.
func (c *call) readAll(into *buffer, length int64) error {
	if length < 0 {
		length = math.MaxInt32 // it ends before
	}
	charged, room := 0, 0
	for {
		if len(into.b) == room {
			room = nextRoom(room, int(length))
			if cost := bodyCost * room; room > smallBody+1 {
				if err := c.charge(int64(cost - charged)); err != nil {
					return err
				}
				charged = cost
			}
			if room > cap(into.b) {
				into.b = append(make([]byte, 0, room), into.b...)
			}
		}
		n, err := c.paced.Read(into.b[len(into.b):room])
		into.b = into.b[:len(into.b)+n]
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// nextRoom returns how large the buffer of a body is when a body of that length has filled what it
// had before. There is always room for one byte more, since the end is found by reading.
func nextRoom(before, length int) int {
	if before == 0 {
		return min(length, smallBody) + 1
	}
	return min(length+1, max(2*before, firstPiece))
}

// pacedBody reads a body whose client must keep pace.
type pacedBody struct {
	call             *call
	from             io.Reader
	begun            time.Time
	received, marked int // bytes, and how many when the time was set
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if now := time.Now(); b.begun.IsZero() || b.received-b.marked >= bodyPiece {
		if b.begun.IsZero() {
			b.begun = now
		}
		b.marked = b.received
		average := time.Duration(b.received) * time.Second / bodyRate
		b.call.limitReading(earlier(now, b.begun.Add(average)))
	}
	n, err := b.from.Read(p)
	b.received += n
	return n, err
}

// limitReading sets the time at which reading ends: Config.BodyTimeout after the given time, or the
// call's deadline if that is earlier.
func (c *call) limitReading(from time.Time) {
	until := from.Add(c.handler.config.BodyTimeout)
	if !c.deadline.IsZero() {
		until = earlier(until, c.deadline)
	}
	c.readUntil(until)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// limitSkipping sets the time at which reading ends for calls that do not read the body.
func (c *call) limitSkipping() {
	c.readUntil(time.Now().Add(min(skipPatience, c.handler.config.BodyTimeout)))
}

// readUntil sets the time at which reading the body ends; the zero time means never.
func (c *call) readUntil(t time.Time) {
	if c.r.ContentLength != 0 {
		// This fails if there is no connection.
		_ = http.NewResponseController(c.w).SetReadDeadline(t)
	}
}

// expectNoBody refuses the body of a GET or a DELETE. It reads the body, because an HTTP/2 client
// may send an empty body without a length.
func (c *call) expectNoBody() error {
	if c.r.ContentLength == 0 {
		return nil
	}
	c.limitReading(time.Now())
	n, err := io.ReadFull(c.r.Body, make([]byte, 1))
	switch {
	case n > 0:
		c.w.Header().Set("Connection", "close")
		return refuse(rpcerr.InvalidArgument, "a "+c.r.Method+" has no body here")
	case !errors.Is(err, io.EOF):
		return c.unread(err)
	}
	c.readUntil(time.Time{})
	return nil
}

// unread returns the error of a body that could not be read to its end.
func (c *call) unread(err error) error {
	c.w.Header().Set("Connection", "close")
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	_, network := errors.AsType[net.Error](err)
	late := errors.Is(err, os.ErrDeadlineExceeded)
	_, refused := errors.AsType[*admission.Error](err)
	switch {
	case refused:
		return err
	case tooLarge:
		return c.tooLarge()
	case late && !c.deadline.IsZero() && !time.Now().Before(c.deadline):
		return &rpcerr.Error{
			Reason: rpcerr.DeadlineExceeded, Retry: rpcerr.SameRequest,
			Err:     context.DeadlineExceeded,
			Message: "the deadline of the call passed while it waited for the rest of the body",
		}
	case late:
		return refuse(rpcerr.BodyTimeout, "the body did not arrive in time")
	case errors.Is(err, io.ErrUnexpectedEOF), network, c.r.Context().Err() != nil:
		return refuse(rpcerr.Canceled, "the body could not be read: "+err.Error())
	}
	return refuse(rpcerr.InvalidArgument, "the body could not be read: "+err.Error())
}

func (c *call) tooLarge() error {
	limit := strconv.FormatInt(c.handler.config.MaxBodyBytes, 10)
	return refuse(rpcerr.TooLarge, "the body is larger than "+limit+" bytes")
}
