package front

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Response writes to the client of a request. A response that is not a stream is written with
// Write, and a stream with Send. Both block until the client has taken what is written, or has read
// nothing for too long.
type Response struct {
	x          *Exchange
	compressor *coding.Writer // nil: the body is not compressed
	compressed *bufio.Writer  // what the compressor writes to
	torn       atomic.Bool    // a write has failed

	// mu guards the fields below. Nothing blocks while it is held.
	mu sync.Mutex
	// stall ends a write to the client of a stream; nil: there was none. A deadline for each write
	// costs much more over HTTP/2.
	stall   *time.Timer
	writing bool      // a stream writes
	last    bool      // what is written is the end of a stream
	hurry   time.Time // until when Send may write, when the call has ended: see Hurry
}

// Header returns the header of the response. It has the headers that all responses have.
func (o *Response) Header() http.Header { return o.x.w.Header() }

// WriteHeader writes the status and the header.
func (o *Response) WriteHeader(code int) { o.x.w.WriteHeader(code) }

// SetRetryAfter sets the header that says when a client may try again, if that is known to help.
func (o *Response) SetRetryAfter(failed rpcerr.Response) {
	if failed.Code == http.StatusServiceUnavailable || failed.Code == http.StatusTooManyRequests {
		wait := max(failed.RetryAfter, time.Second)
		seconds := int64((wait + time.Second - 1) / time.Second)
		o.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
}

// IsWorthCompressing reports whether a text of that length is compressed for a client that
// accepts it.
func (o *Response) IsWorthCompressing(length int) bool {
	return length >= o.x.front.config.MinCompressed
}

// CodingFor returns the coding of a response whose text has that length.
func (o *Response) CodingFor(length int) coding.Coding {
	if !o.IsWorthCompressing(length) {
		return coding.Identity
	}
	return o.StreamCoding()
}

// StreamCoding returns the coding that the client prefers. Streams always have it.
func (o *Response) StreamCoding() coding.Coding {
	return coding.Choose(o.x.r.Header["Accept-Encoding"])
}

// Compress begins a body in a coding, of so many bytes before it is compressed. It sets the header,
// which is not written yet. End writes the end of the body.
func (o *Response) Compress(in coding.Coding, length int) {
	if in != coding.Identity {
		o.compress(in, o.writeWhole, min(length, Chunk))
	}
}

// CompressStream does what Compress does for a stream, whose end SendLast writes.
func (o *Response) CompressStream(in coding.Coding) {
	if in != coding.Identity {
		o.compress(in, o.writePieces, Chunk)
	}
}

// compress begins a body that is written in pieces of so many bytes.
func (o *Response) compress(in coding.Coding, write writerFunc, piece int) {
	o.Header()["Content-Encoding"] = []string{in.String()}
	if o.x.r.Method == http.MethodHead {
		return // nothing is written
	}
	o.x.Memory.account.Force(coding.WriterCost)
	o.compressed = bufio.NewWriterSize(write, piece)
	o.compressor = in.Writer(o.compressed)
}

// writerFunc implements io.Writer.
type writerFunc func(b []byte) (int, error)

var _ io.Writer = writerFunc(nil)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Write writes a part of the body, and reports whether it could.
func (o *Response) Write(b []byte) bool {
	if o.compressor != nil {
		_, err := o.compressor.Write(b)
		return err == nil
	}
	_, err := o.writeWhole(b)
	return err == nil
}

// End writes the end of a compressed body.
func (o *Response) End() {
	if o.compressor == nil {
		return
	}
	if o.compressor.Close() == nil {
		_ = o.compressed.Flush() // if it fails, the client has disconnected
	}
	o.compressor.Free()
	o.compressor = nil
}

// Send writes to a stream's client and flushes. It blocks for at most StallTimeout, so that a
// client that does not read holds no goroutine and no memory for longer. If calls need the memory,
// it fails when the client has taken nothing for writePatience. One goroutine calls it at a time.
func (o *Response) Send(b []byte) error {
	defer o.limit(o.x.front.config.StallTimeout)()
	if o.compressor != nil {
		if err := o.sendCompressed(b); err != nil {
			return err
		}
		b = nil
	}
	defer o.awaitClient()()
	if len(b) > 0 {
		if _, err := o.writeChunks(b); err != nil {
			return err
		}
	}
	return http.NewResponseController(o.x.w).Flush()
}

// SendLast writes the last part of a stream. An error has no consequence.
func (o *Response) SendLast(b []byte) {
	o.mu.Lock()
	o.last = true
	o.mu.Unlock()
	if o.Send(b) == nil {
		defer o.limit(o.x.front.config.StallTimeout)()
		o.End()
	}
}

// hurried is how long a client has for what Send writes when its call ends.
const hurried = time.Second

// Hurry ends soon what Send writes now or later. It may be called at any time, also late: what
// SendLast writes has its time.
func (o *Response) Hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hurry = time.Now().Add(hurried)
	if o.writing && !o.last {
		o.stall.Reset(hurried)
	}
}

// limit limits the time of a write. The caller calls done afterwards.
func (o *Response) limit(d time.Duration) (done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = true
	if !o.hurry.IsZero() && !o.last {
		d = min(d, max(0, time.Until(o.hurry)))
	}
	if o.stall == nil {
		o.stall = time.AfterFunc(d, o.end)
	} else {
		o.stall.Reset(d)
	}
	return o.written
}

// written ends the time of a write.
func (o *Response) written() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = false
	o.stall.Stop()
}

// end has a write fail whose time is over.
func (o *Response) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writing {
		o.until(time.Unix(1, 0))
	}
}

// IsTorn reports whether a write has failed. Over HTTP/2 net/http may read what was to be written
// even then, so that its memory must not go to another request.
func (o *Response) IsTorn() bool { return o.torn.Load() }

// write writes bytes, at most Chunk of them.
func (o *Response) write(b []byte) (n int, err error) {
	if n, err = o.x.w.Write(b); err != nil {
		o.torn.Store(true)
	}
	return n, err
}

// Rest removes the deadline of what Write has written, before a wait for what follows: over HTTP/2
// a deadline ends the response even if nothing is being written.
func (o *Response) Rest() { o.until(time.Time{}) }

// until sets the time until which the client must take what is written; the zero time means never.
func (o *Response) until(t time.Time) {
	// This fails if there is no connection.
	_ = http.NewResponseController(o.x.w).SetWriteDeadline(t)
}

// sendCompressed writes a part of a stream up to its end, so that the client can read all of it.
func (o *Response) sendCompressed(b []byte) error {
	if _, err := o.compressor.Write(b); err != nil {
		return err
	}
	if err := o.compressor.Flush(); err != nil {
		return err
	}
	return o.compressed.Flush()
}

// writePieces writes bytes of a stream to its client.
func (o *Response) writePieces(b []byte) (n int, err error) {
	defer o.awaitClient()()
	return o.writeChunks(b)
}

// writeChunks writes bytes of a stream, in a wait for its client. Each Chunk that the client takes
// is progress.
func (o *Response) writeChunks(b []byte) (n int, err error) {
	for err == nil && n < len(b) {
		if n > 0 {
			o.x.front.unread.moved(o.x)
		}
		var written int
		written, err = o.write(b[n:min(n+Chunk, len(b))])
		n += written
	}
	return n, err
}

// awaitClient begins a wait for the client of a stream, in which the stream has no turn and may be
// cut. The caller calls resume afterwards.
func (o *Response) awaitClient() (resume func()) {
	again := o.x.Memory.work.Pause()
	o.x.front.unread.moved(o.x)
	return func() {
		o.x.front.unread.over(o.x)
		again()
	}
}

// A client has writePatience for each Chunk of a response that is not a stream. A client that
// reads slowly gets all of the response. A client that has stopped reading holds a goroutine and
// memory for at most writePatience.
const (
	writePatience = 30 * time.Second
	// Chunk is the size of a part of a response that is written at once.
	Chunk = 64 << 10
)

// writeWhole writes a part of a body that is not a stream. If a write fails, the client has
// disconnected or does not read. net/http writes the rest of its buffer under the last deadline,
// and removes the deadline afterwards.
func (o *Response) writeWhole(b []byte) (int, error) {
	defer o.x.Memory.work.Pause()()
	for n := 0; ; {
		o.until(time.Now().Add(writePatience))
		written, err := o.write(b[n:min(n+Chunk, len(b))])
		if n += written; err != nil || n == len(b) {
			return n, err
		}
	}
}
