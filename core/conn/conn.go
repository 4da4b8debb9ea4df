// Package conn makes a connection to a server (dial, SOCKS5, TLS, hello, authentication) and
// sends one request after the other on it. A Conn has one owner at a time. The package knows
// nothing of pools, retries, or commands other than hello and those of core/auth.
package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/compress"
	"github.com/mooringdb/mooring/core/conn/ocsp"
	"github.com/mooringdb/mooring/core/ctxwatch"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/internal/timeoutms"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/wire"
)

// DefaultConnectTimeout bounds Dial where Config.ConnectTimeout is zero.
const DefaultConnectTimeout = 10 * time.Second

// readBuffer sets how much one read from the socket may return; a small reply then costs one
// system call.
const readBuffer = 8 << 10

// Config says how connections are made. The zero value makes plain TCP connections.
type Config struct {
	// ID is the pool's number for the connection; only ID returns it.
	ID uint64

	// Metadata returns the client document of the first hello (metadata.Source.Document does).
	// Nil means a document without an application.
	Metadata func() bson.Raw

	// ServerAPI, if set, is the stable API that each hello declares.
	ServerAPI *ServerAPI

	// Dialer opens the transport, to the server or to the proxy. Nil means a net.Dialer with
	// keep-alive.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

	// Proxy, if set, is the proxy for TCP connections.
	Proxy *Proxy

	// TLS, if set, returns the configuration that the connection is encrypted with. It is called
	// once for each connection. What it has returned must not change: new certificates come in a
	// new value. An empty ServerName means the host of the address. (*TLS).Config is such a
	// function.
	TLS func() *tls.Config

	// Revocation, if set, checks the verified chain of a TLS connection before it is used. All
	// connections of a client share it, and so its cache.
	Revocation *ocsp.Checker

	// Auth, if set, authenticates the connection. All connections of a client share it.
	Auth *auth.Authenticator

	// ConnectTimeout bounds Dial as a whole, including hello and authentication, except for the
	// time in which a provider obtains a credential. Zero means DefaultConnectTimeout, a negative
	// value no limit.
	ConnectTimeout time.Duration

	// SocketTimeout bounds each round trip after the first hello. Zero means no limit.
	SocketTimeout time.Duration

	// MaxMessageSize is the largest reply that is accepted; zero means
	// wire.DefaultMaxMessageSize.
	MaxMessageSize int32

	// Compressors are offered to the server by name, in order of preference. Requests are
	// compressed with the first one that the server supports.
	Compressors []string

	// ZlibLevel is the compression level of zlib, from 0 (none) to 9. Nil means zlib's default.
	ZlibLevel *int32

	// Compressed, if set, is called for each message that is compressed or decompressed. It must
	// not block.
	Compressed func(event.MessageCompressed)

	// LoadBalanced says that there is a load balancer: hello then asks for the server's service
	// id.
	LoadBalanced bool

	// Admit, if set, is called before a reply of at least LargeReply bytes is read, and before one
	// is decompressed to so many, with the context of the request. It may block. If it fails, the
	// request fails with its error, and the connection is broken. Otherwise done is called when the
	// reply has been read, and says whether its bytes are kept: those of a compressed one are not.
	Admit func(ctx context.Context, size int) (done func(kept bool), err error)

	// Spare, if set, is called before a message of at least LargeReply bytes is compressed, with
	// the bytes that this takes beside the message. It does not block. If it reports false, the
	// message is sent as it is. Otherwise done is called when the message was sent.
	Spare func(ctx context.Context, size int) (done func(), ok bool)

	// Turn, if set, returns the turn of reading such a reply, which is heavy work.
	Turn func(ctx context.Context) Turn

	// Query sends the first hello over OP_QUERY, for a monitor that asks if a server is too old
	// for OP_MSG. It excludes ServerAPI and LoadBalanced.
	Query bool
}

// Turn lets one of several goroutines do heavy work at a time. Take blocks until the caller may
// work, Yield lets others work if the caller has worked for long, and Leave ends the work before
// the caller waits for something.
type Turn interface {
	Take()
	Yield()
	Leave() bool
}

// LargeReply is the size of the smallest reply that Config.Admit is asked for.
const LargeReply = 64 << 10

// ErrClosed is inside the error of a request on a connection that its owner has closed.
var ErrClosed = errors.New("connection is closed")

// TooLargeError refuses to send a request that is larger than the server accepts. The connection
// can still be used.
type TooLargeError struct {
	Address   address.Address
	Size, Max int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("message of %d bytes for %s is larger than its maximum of %d", e.Size,
		e.Address, e.Max)
}

// Delivery returns mongoerr.Unsent.
func (e *TooLargeError) Delivery() mongoerr.Delivery { return mongoerr.Unsent }

// Conn represents one connection after its hello. All methods but Interrupt, Alive and Close
// belong to its one owner.
type Conn struct {
	addr       address.Address
	id         uint64
	nc         net.Conn // the transport, or TLS on it
	transport  *socket
	replies    replies
	packer     packer
	timeout    time.Duration // the socket timeout
	maxRequest int
	api        *ServerAPI
	desc       description.Server
	hello      bson.Raw
	auth       *auth.State       // nil: there is no credential
	query      bool              // the server is too old for OP_MSG
	watcher    *ctxwatch.Watcher // of the request's context; calls c.unblock

	requestID int32     // of the last request
	answered  int32     // the last request that had a reply; those after it wanted none
	rested    time.Time // when that reply had arrived
	// follows is the id of the last reply if it announced another, which forbids to send; else 0.
	follows int32

	broken atomic.Pointer[breakage]
}

// breakage holds the reason that a connection must not be used any more.
type breakage struct{ err error }

// Description returns the server's description from the hello of this connection; its AverageRTT
// is the duration of that hello.
func (c *Conn) Description() *description.Server { return &c.desc }

// HelloReply returns the server's reply to the connection's first hello.
func (c *Conn) HelloReply() bson.Raw { return c.hello }

// Address returns the server's address.
func (c *Conn) Address() address.Address { return c.addr }

// ID returns the pool's number for the connection.
func (c *Conn) ID() uint64 { return c.id }

// ServerConnectionID returns the server's number for the connection, or 0 if it gave none.
func (c *Conn) ServerConnectionID() int64 { return c.desc.ConnectionID }

// RequestID returns the id of the last request.
func (c *Conn) RequestID() int32 { return c.requestID }

// Alive reports whether the connection is neither broken nor closed. It does no I/O: if the
// server has gone away meanwhile, the next request notices that, and then sends nothing.
func (c *Conn) Alive() bool { return c.broken.Load() == nil }

// Err returns the reason that the connection is not alive, or nil.
func (c *Conn) Err() error {
	if b := c.broken.Load(); b != nil {
		return b.err
	}
	return nil
}

// Close closes the connection. It does not block: a TLS connection is cut without a close_notify
// alert. It may be called at any time and more than once.
func (c *Conn) Close() error {
	c.broken.CompareAndSwap(nil, &breakage{ErrClosed})
	return c.transport.Close()
}

// Interrupt breaks the connection from another goroutine: the request in flight, and any later
// one, fails with cause. It does not block.
func (c *Conn) Interrupt(cause error) {
	c.broken.CompareAndSwap(nil, &breakage{cause})
	c.unblock()
}

// unblock makes reads and writes fail at once, including those that are blocked.
func (c *Conn) unblock() { _ = c.nc.SetDeadline(time.Unix(1, 0)) }

// RoundTrip sends msg, a complete OP_MSG, and returns the body of the reply: a new buffer whose
// frame is checked and whose contents are not. It sets the request id in msg, which the caller
// may reuse afterwards. It blocks until the reply has arrived, ctx ends, or the socket timeout is
// over.
//
// If ctx ends first or anything else fails, the connection is broken, and the error is a
// *mongoerr.NetworkError that wraps the cause. If ctx has ended before the call or msg is too
// large, nothing is sent and the connection stays usable. If ctx ends when the reply is complete,
// RoundTrip returns the reply.
func (c *Conn) RoundTrip(ctx context.Context, msg []byte) (bson.Raw, error) {
	body, _, err := c.roundTrip(ctx, msg, false)
	return body, err
}

// RoundTripLent does what RoundTrip does, but reads the reply into lent memory, of which the caller
// has one reference. It is nil if the reply is not of a size that is lent: the body is then new, as
// that of RoundTrip.
func (c *Conn) RoundTripLent(
	ctx context.Context, msg []byte,
) (bson.Raw, *buffer.Buffer, error) {
	return c.roundTrip(ctx, msg, true)
}

func (c *Conn) roundTrip(
	ctx context.Context, msg []byte, lend bool,
) (bson.Raw, *buffer.Buffer, error) {
	if wire.MsgFlags(msg)&wire.MoreToCome != 0 {
		panic("bug: RoundTrip of a message that wants no reply")
	}
	if err := c.check(ctx, msg); err != nil {
		return nil, nil, err
	}
	r := c.begin(ctx)
	defer r.end()
	if err := c.write(ctx, msg); err != nil {
		return nil, nil, err
	}
	body, lent, err := c.readReply(ctx, lend)
	r.complete = err == nil
	return body, lent, err
}

// Write sends msg, a complete OP_MSG with moreToCome, to which the server sends no reply. Errors
// are as in RoundTrip.
func (c *Conn) Write(ctx context.Context, msg []byte) error {
	if wire.MsgFlags(msg)&wire.MoreToCome == 0 {
		panic("bug: Write of a message that wants a reply")
	}
	if err := c.check(ctx, msg); err != nil {
		return err
	}
	r := c.begin(ctx)
	defer r.end()
	err := c.write(ctx, msg)
	r.complete = err == nil
	return err
}

// check returns the error of a request that must not be sent.
func (c *Conn) check(ctx context.Context, msg []byte) error {
	if c.follows != 0 {
		panic("bug: a request while the server is still replying to the last one")
	}
	if b := c.broken.Load(); b != nil {
		return &mongoerr.NetworkError{Address: c.addr, Op: "write", Err: b.err}
	}
	if err := ctxwatch.Err(ctx); err != nil {
		err = fmt.Errorf("send to %s: %w", c.addr, err)
		return mongoerr.WithDelivery(err, mongoerr.Unsent)
	}
	if len(msg) > c.maxRequest {
		return &TooLargeError{c.addr, len(msg), c.maxRequest}
	}
	if err := c.checkUnused(wire.MsgFlags(msg)&wire.MoreToCome == 0); err != nil {
		return c.fail(ctx, "write", false, err)
	}
	return nil
}

var (
	// errGone ends a connection that the server closed while it was idle.
	errGone = errors.New("the server has closed the connection")
	// errUnread ends a connection with unread bytes: the next request would take them for its
	// reply.
	errUnread = &wire.FormatError{Problem: "the server sent bytes that answer no request"}
)

// restTime is how long after a reply a connection may be used without a look at what has arrived
// since. The look is a system call, and servers close connections that are idle for long.
const restTime = time.Second

// checkUnused returns an error if something has arrived since the last reply. The next request
// has not been sent then, so it has had no effect on the server. After requests that wanted no
// reply only the end of the connection counts, since some servers reply to them.
//
// It does not look at the socket within restTime of the last reply if the next request wants one:
// the end of the connection, or the reply to nothing, is in the place of that reply then.
func (c *Conn) checkUnused(wantsReply bool) error {
	if c.answered != c.requestID {
		if c.transport.arrival() == arrivedEnd {
			return errGone
		}
		return nil
	}
	if c.replies.reader.Buffered() > 0 {
		return errUnread
	}
	if wantsReply && time.Since(c.rested) <= restTime {
		return nil
	}
	c.transport.dry = true
	_, err := c.replies.reader.Peek(1) // through TLS, whose own messages may have arrived
	c.transport.dry = false
	switch {
	case err == nil:
		return errUnread
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return errGone
	}
	if !c.Alive() {
		c.unblock() // an Interrupt may have set a deadline that is gone now
	}
	return nil
}

// request represents a request in flight on a connection. The end of its context interrupts it.
type request struct {
	conn     *Conn
	watch    ctxwatch.Watch
	complete bool // everything is sent and read
}

func (c *Conn) begin(ctx context.Context) request {
	return request{conn: c, watch: c.watcher.Start(ctx)}
}

// errUnfinished breaks a connection whose request ended in a panic.
var errUnfinished = errors.New("bug: a request was not finished")

// end leaves the connection ready for another request, or broken. It clears the deadline that a
// harmless late interruption has set; an Interrupt has broken the connection and stays.
func (r *request) end() {
	interrupted := r.watch.Stop()
	switch {
	case !r.complete:
		r.conn.broken.CompareAndSwap(nil, &breakage{errUnfinished})
	case interrupted:
		_ = r.conn.nc.SetDeadline(time.Time{}) // the next request reports an error
	}
}

func (c *Conn) write(ctx context.Context, msg []byte) error {
	c.requestID++
	wire.SetRequestID(msg, c.requestID)
	if c.timeout > 0 {
		var deadline time.Time // none, also if an earlier request had one
		if !timeoutms.Governs(ctx) {
			deadline = time.Now().Add(c.timeout)
		}
		_ = c.nc.SetDeadline(deadline) // the write reports an error
		if ctx.Err() != nil || !c.Alive() {
			c.unblock() // the interruption may have preceded the deadline above
		}
	}
	packed := c.packer.pack(ctx, msg, c.maxRequest)
	n, err := c.nc.Write(packed.msg)
	packed.release()
	if err != nil {
		return c.fail(ctx, "write", n > 0, err)
	}
	return nil
}

// readReply reads replies up to that to the last request. It drops replies to requests that
// wanted none, which some servers send nevertheless.
func (c *Conn) readReply(ctx context.Context, lend bool) (bson.Raw, *buffer.Buffer, error) {
	for {
		var msg wire.Msg
		h, m, lent, err := c.readMessage(ctx, &msg, lend)
		if err != nil {
			return nil, nil, c.fail(ctx, "read", true, err)
		}
		if h.ResponseTo != c.requestID && c.wantedNone(h.ResponseTo) {
			lent.Release()
			continue
		}
		body, err := replyBody(h, m, c.requestID)
		if err != nil {
			lent.Release()
			return nil, nil, c.fail(ctx, "read", true, err)
		}
		c.answered, c.rested = c.requestID, time.Now()
		return body, lent, nil
	}
}

// readMessage reads the next message, to whichever request, and decompresses it if necessary. It
// uses msg, which must be zero, for an OP_MSG. With lend the message may be in lent memory, of
// which the caller has the reference.
func (c *Conn) readMessage(
	ctx context.Context, msg *wire.Msg, lend bool,
) (wire.Header, wire.Message, *buffer.Buffer, error) {
	buf, lent, done, err := c.replies.read(ctx, lend)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // callers take io.EOF for the end of a result
	}
	if err != nil {
		return wire.Header{}, nil, nil, err
	}
	h, m, err := wire.ParseInto(msg, buf)
	packed, ok := m.(*wire.Compressed)
	defer func() { done(!ok && err == nil) }() // nothing of a compressed one is kept
	switch {
	case err != nil:
		lent.Release()
		return h, nil, nil, err
	case !ok:
		return h, m, lent, nil
	}
	defer lent.Release()
	if err := compress.Check(compress.ID(packed.Compressor), int(packed.UncompressedSize),
		int(c.replies.max-wire.HeaderSize), packed.Data); err != nil {
		return h, nil, nil, err
	}
	unpacked, err := c.replies.admitted(ctx, packed.UncompressedSize)
	if err != nil {
		return h, nil, nil, err
	}
	defer unpacked(true)
	return c.unpack(h, packed, msg, lend)
}

// wantedNone reports whether id is of a request between the last answered one and the current
// one.
func (c *Conn) wantedNone(id int32) bool {
	return id-c.answered > 0 && c.requestID-id > 0
}

func replyBody(h wire.Header, m wire.Message, requestID int32) (bson.Raw, error) {
	if h.ResponseTo != requestID {
		return nil, &wire.FormatError{
			Offset: 8, Problem: fmt.Sprintf("reply to request %d, expected a reply to %d",
				h.ResponseTo, requestID),
		}
	}
	switch m := m.(type) {
	case *wire.Msg:
		if m.Flags&wire.MoreToCome != 0 {
			return nil, &wire.FormatError{
				Offset:  wire.HeaderSize,
				Problem: "moreToCome in a reply to a request without exhaustAllowed",
			}
		}
		return m.Body, nil
	case *wire.Reply:
		if m.Flags&wire.QueryFailure != 0 && len(m.Documents) == 1 {
			return nil, queryFailure(m.Documents[0])
		}
		if m.Flags&(wire.CursorNotFound|wire.QueryFailure) != 0 || len(m.Documents) != 1 {
			return nil, &wire.FormatError{
				Offset:  wire.HeaderSize,
				Problem: "reply to a command without exactly one document",
			}
		}
		return m.Documents[0], nil
	default:
		return nil, &wire.FormatError{Offset: 12, Problem: "unexpected " + h.OpCode.String()}
	}
}

// queryFailure returns the error of a server that cannot run a legacy hello.
func queryFailure(d bson.Raw) error {
	var text string
	if v, ok := d.Lookup("$err"); ok {
		text, _ = v.Str()
	}
	code, _ := d.Lookup("code")
	n, _ := code.AsInt64()
	return fmt.Errorf("the server rejected it: %q (code %d)", text, n)
}

// fail breaks the connection and returns the error, with the cause of the interruption if there
// was one, else with err.
func (c *Conn) fail(ctx context.Context, op string, sent bool, err error) error {
	lasting := err // what later requests return
	if ctxErr := ctxwatch.Err(ctx); ctxErr != nil {
		err, lasting = ctxErr, ctxwatch.Past(ctxErr)
	}
	if !c.broken.CompareAndSwap(nil, &breakage{lasting}) {
		err = c.broken.Load().err
	}
	return &mongoerr.NetworkError{Address: c.addr, Op: op, Sent: sent, Err: err}
}

func newConn(addr address.Address, cfg Config, transport *socket, nc net.Conn) *Conn {
	c := &Conn{
		addr: addr, id: cfg.ID, nc: nc, transport: transport, api: cfg.ServerAPI,
		replies:    newReplies(&cfg, transport, nc),
		maxRequest: int(wire.DefaultMaxMessageSize),
		requestID:  rand.Int32N(1 << 30),
	}
	c.answered = c.requestID
	c.watcher = ctxwatch.New(c.unblock)
	return c
}
