package front

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// A call does not wait for a client that sends more slowly or stops. A chunked body is no
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

// Body reads the body of a request. The client must keep pace.
type Body struct {
	x     *Exchange
	paced pacedBody
	// piece is how much of the piece Read has read, and waited how long that took.
	piece  int
	waited time.Duration
	over   atomic.Bool // Read returns errOver
}

// MaxBytes returns the limit on a body that is read as a whole.
func (b *Body) MaxBytes() int64 { return b.x.front.config.MaxBodyBytes }

// ReadAll returns the whole body, which is charged. The caller frees the buffer.
func (b *Body) ReadAll() (*Buffer, error) {
	x := b.x
	limit, length := b.MaxBytes(), x.r.ContentLength
	if length > limit {
		x.w.Header().Set("Connection", "close")
		return nil, b.tooLarge()
	}
	if err := x.Memory.account.CheckTotal(bodyCost * length); err != nil {
		x.w.Header().Set("Connection", "close")
		return nil, err
	}
	from := io.Reader(x.r.Body)
	if length < 0 {
		from = http.MaxBytesReader(x.w, x.r.Body, limit)
	}
	b.paced = pacedBody{body: b, from: from}
	into := x.Buffer()
	if err := b.readAll(into, length); err != nil {
		into.Free()
		return nil, b.Unread(err)
	}
	b.until(time.Time{})
	return into, nil
}

// readAll reads the body into a buffer. Its length is negative if it is not known.
func (b *Body) readAll(into *Buffer, length int64) error {
	if length < 0 {
		length = math.MaxInt32 // it ends before
	}
	charged, room := 0, 0
	for {
		if len(into.B) == room {
			room = nextRoom(room, int(length))
			if cost := bodyCost * room; room > smallBody+1 {
				if err := b.x.Memory.Charge(int64(cost - charged)); err != nil {
					return err
				}
				charged, into.charged = cost, &b.x.Memory
			}
			if room > cap(into.B) {
				into.B = append(make([]byte, 0, room), into.B...)
			}
		}
		n, err := b.paced.Read(into.B[len(into.B):room])
		into.B = into.B[:len(into.B)+n]
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
	body             *Body
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
		b.body.limit(earlier(now, b.begun.Add(average)))
	}
	n, err := b.from.Read(p)
	b.received += n
	return n, err
}

// limit sets the time at which reading ends: Config.BodyTimeout after the given time, or the
// call's deadline if that is earlier.
func (b *Body) limit(from time.Time) {
	until := from.Add(b.x.front.config.BodyTimeout)
	if !b.x.deadline.IsZero() {
		until = earlier(until, b.x.deadline)
	}
	b.until(until)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// limitSkipping sets the time at which reading ends for calls that do not read the body. Over
// HTTP/2 net/http does not read it, either.
func (b *Body) limitSkipping() {
	if !b.isStream() {
		b.until(time.Now().Add(min(skipPatience, b.x.front.config.BodyTimeout)))
	}
}

// isStream reports whether the body is of HTTP/2, which a deadline ends for good even if nothing
// reads. Over HTTP/1 it matters to reads only, also to those of net/http at the end of a request.
func (b *Body) isStream() bool { return b.x.r.ProtoMajor > 1 }

// until sets the time at which reading the body ends; the zero time means never.
func (b *Body) until(t time.Time) {
	if b.x.r.ContentLength != 0 {
		// This fails if there is no connection.
		_ = http.NewResponseController(b.x.w).SetReadDeadline(t)
	}
}

// ExpectNone refuses the body of a GET or a DELETE. It reads the body, because an HTTP/2 client
// may send an empty body without a length.
func (b *Body) ExpectNone() error {
	if b.x.r.ContentLength == 0 {
		return nil
	}
	b.limit(time.Now())
	n, err := io.ReadFull(b.x.r.Body, make([]byte, 1))
	switch {
	case n > 0:
		b.x.w.Header().Set("Connection", "close")
		return refuse(rpcerr.InvalidArgument, "a "+b.x.r.Method+" here must not have a body")
	case !errors.Is(err, io.EOF):
		return b.Unread(err)
	}
	b.until(time.Time{})
	return nil
}

// Unread returns the error of a body that could not be read to its end.
func (b *Body) Unread(err error) error {
	b.x.w.Header().Set("Connection", "close")
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	_, network := errors.AsType[net.Error](err)
	late := errors.Is(err, os.ErrDeadlineExceeded)
	_, refused := errors.AsType[*admission.Error](err)
	_, waited := errors.AsType[*admission.WaitError](err)
	switch {
	case refused, waited:
		return err
	case tooLarge:
		return b.tooLarge()
	case late && !b.x.deadline.IsZero() && !time.Now().Before(b.x.deadline):
		return &rpcerr.Error{
			Reason: rpcerr.DeadlineExceeded, Retry: rpcerr.SameRequest,
			Err:     context.DeadlineExceeded,
			Message: "the deadline of the call passed while it waited for the rest of the body",
		}
	case late:
		return refuse(rpcerr.BodyTimeout, "the body did not arrive in time")
	case errors.Is(err, io.ErrUnexpectedEOF), network, b.x.r.Context().Err() != nil:
		return refuse(rpcerr.Canceled, "the body could not be read: "+err.Error())
	}
	return refuse(rpcerr.InvalidArgument, "the body could not be read: "+err.Error())
}

func (b *Body) tooLarge() error {
	limit := strconv.FormatInt(b.MaxBytes(), 10)
	return refuse(rpcerr.TooLarge, "the body is larger than "+limit+" bytes")
}

// Read reads a part of a body that may take any time as a whole: each bodyPiece of it, up to
// Advance, has Config.BodyTimeout, or until the call's deadline. The time between reads does not
// count. What is read is not charged and has no limit.
func (b *Body) Read(p []byte) (int, error) {
	begun := time.Now()
	b.limit(begun.Add(-b.waited))
	if b.over.Load() {
		return 0, errOver
	}
	resume := b.x.Memory.work.Pause()
	n, err := b.x.r.Body.Read(p)
	b.waited += time.Since(begun)
	if errors.Is(err, io.EOF) || err == nil && b.isStream() {
		b.until(time.Time{}) // the call goes on
	}
	resume()
	if b.piece += n; b.piece >= bodyPiece {
		b.Advance()
	}
	return n, err
}

// Advance begins the time of the next piece of a body that Read reads, since the client has sent
// what counts as one.
func (b *Body) Advance() { b.piece, b.waited = 0, 0 }

// errOver ends reading for a call that has ended.
var errOver = errors.New("the call has ended")

// While ends a Read that waits for the client, a wait for memory, and those that follow, when the
// handler that gets what is read has ended. ctx is the context of the call, and handler that of the
// handler, which is derived from it. The caller calls stop when it reads no more, which reports
// whether the handler has ended reading. The context of an HTTP/1 request has ended then, too.
func (b *Body) While(ctx, handler context.Context) (stop func() bool) {
	done, ended := make(chan struct{}), false
	b.x.Memory.within(handler)
	forget := context.AfterFunc(handler, func() {
		defer close(done)
		ended = ctx.Err() == nil
		b.over.Store(true)
		b.until(time.Unix(1, 0))
	})
	return func() bool { //nolint:contextcheck // of the request
		b.x.Memory.within(b.x.r.Context())
		if forget() {
			return false
		}
		<-done
		b.x.w.Header().Set("Connection", "close") // the rest of the body is not read
		return ended
	}
}
