package rest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/mooringdb/mooring/service/rpcerr"
)

// A body has bodyPatience, and what it takes at bodyRate: who sends more slowly, or stops, is not
// waited for.
const (
	bodyPatience = 30 * time.Second
	bodyRate     = 16 << 10 // bytes a second
	// skipPatience is how long net/http may wait for a body that nobody reads, before it writes
	// the answer: it is less than writePatience.
	skipPatience = 10 * time.Second
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
	return decode(c.route.request, m, body.b)
}

func (c *call) readBody() (*buffer, error) {
	limit, length := c.handler.config.MaxBodyBytes, c.r.ContentLength
	if length > limit {
		c.w.Header().Set("Connection", "close")
		return nil, c.tooLarge()
	}
	// What a client announces is not believed beyond what is lent anyway.
	body := c.handler.buffers.get(int(min(max(length, 0), maxPooled-bytes.MinRead)) + bytes.MinRead)
	into := bytes.NewBuffer(body.b)
	from := c.r.Body
	if length < 0 {
		from, length = http.MaxBytesReader(c.w, from, limit), limit
	}
	c.limitReading(length)
	_, err := into.ReadFrom(from)
	body.b = into.Bytes()
	if err == nil {
		c.readUntil(time.Time{})
		return body, nil
	}
	c.handler.buffers.put(body)
	return nil, c.unread(err)
}

// limitReading ends reading at the call's deadline, or when a body of that length is too late.
func (c *call) limitReading(length int64) {
	until := time.Now().Add(bodyPatience + time.Duration(length/bodyRate)*time.Second)
	if !c.deadline.IsZero() && c.deadline.Before(until) {
		until = c.deadline
	}
	c.readUntil(until)
}

// limitSkipping ends reading for those that read no body.
func (c *call) limitSkipping() { c.readUntil(time.Now().Add(skipPatience)) }

// readUntil ends reading the body then; the zero time is never.
func (c *call) readUntil(t time.Time) {
	if c.r.ContentLength != 0 {
		_ = http.NewResponseController(c.w).SetReadDeadline(t) // fails where there is no connection
	}
}

// expectNoBody refuses the body of a GET. A client of HTTP/2 need not say before that there is
// none.
func (c *call) expectNoBody() error {
	if c.r.ContentLength == 0 {
		return nil
	}
	c.limitReading(0)
	n, err := io.ReadFull(c.r.Body, make([]byte, 1))
	switch {
	case n > 0:
		c.w.Header().Set("Connection", "close")
		return refuse(rpcerr.InvalidArgument, "a GET has no body: send the request as a POST")
	case !errors.Is(err, io.EOF):
		return c.unread(err)
	}
	c.readUntil(time.Time{})
	return nil
}

// unread says why a body could not be read to its end.
func (c *call) unread(err error) error {
	c.w.Header().Set("Connection", "close")
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	_, network := errors.AsType[net.Error](err)
	switch {
	case tooLarge:
		return c.tooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded) && !c.deadline.IsZero() && !time.Now().Before(c.deadline):
		return &rpcerr.Error{
			Reason: rpcerr.DeadlineExceeded, Retry: rpcerr.SameRequest, Err: context.DeadlineExceeded,
			Message: "the deadline of the call passed while it waited for the rest of the body",
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(rpcerr.BodyTimeout, "the body did not arrive in time")
	case errors.Is(err, io.ErrUnexpectedEOF), network, c.r.Context().Err() != nil:
		return refuse(rpcerr.Canceled, "the body could not be read: "+err.Error())
	}
	return refuse(rpcerr.InvalidArgument, "the body could not be read: "+err.Error())
}

func (c *call) tooLarge() error {
	return refuse(rpcerr.TooLarge, "the body is larger than "+strconv.FormatInt(c.handler.config.MaxBodyBytes, 10)+" bytes")
}
