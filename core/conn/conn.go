// Package conn is one connection to one server: dial, SOCKS5, TLS, hello, then one request after the other. A Conn has one
// owner at a time; it knows nothing of pools, retries or commands other than hello and those of core/auth.
package conn

import (
	"bufio"
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
	"github.com/mooringdb/mooring/core/conn/ocsp"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/internal/ctxwatch"
	"github.com/mooringdb/mooring/core/internal/timeoutms"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/wire"
)

// DefaultConnectTimeout bounds Dial where Config.ConnectTimeout is zero.
const DefaultConnectTimeout = 10 * time.Second

// readBuffer is what one read from the socket may bring in; a small reply then costs one system call.
const readBuffer = 8 << 10

// Config says how connections are made. The zero value makes plain TCP connections.
type Config struct {
	// ID is the pool's number for the connection; only ID returns it.
	ID uint64

	// Metadata returns the client document of the first hello (metadata.Source.Document does). Nil
	// stands for one without an application.
	Metadata func() bson.Raw

	// ServerAPI is the stable API that is declared in each hello, if it is not nil.
	ServerAPI *ServerAPI

	// Dialer opens the transport, to the server or to the proxy; nil stands for a net.Dialer with keep-alive.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

	// Proxy is what TCP connections are made through, if it is not nil.
	Proxy *Proxy

	// TLS encrypts the connection if it is not nil. An empty ServerName stands for the address's host.
	TLS *tls.Config

	// Revocation checks the verified chain of a TLS connection before it is used, if it is not nil. It is shared by all
	// connections of a client, so that one profits from what another learned.
	Revocation *ocsp.Checker

	// Auth authenticates the connection, if it is not nil. It is shared by all connections of a client.
	Auth *auth.Authenticator

	// ConnectTimeout bounds Dial as a whole, hello and authentication included. Zero stands for DefaultConnectTimeout, less than zero
	// for no limit.
	ConnectTimeout time.Duration

	// SocketTimeout bounds each round trip after the first hello. Zero stands for no limit.
	SocketTimeout time.Duration

	// MaxMessageSize is the largest reply that is accepted; zero stands for wire.DefaultMaxMessageSize.
	MaxMessageSize int32

	// Compressors are those to offer to the server, by name, the best first. Requests are compressed with the first one
	// that it has, too.
	Compressors []string

	// ZlibLevel is how hard zlib tries, from 0 (not at all) to 9. Nil stands for zlib's own choice.
	ZlibLevel *int32

	// LoadBalanced says that a load balancer stands between: hello then asks for the server's service id.
	LoadBalanced bool

	// Query sends the first hello over OP_QUERY, for a monitor that asks whether a server is too old
	// for OP_MSG. It excludes ServerAPI and LoadBalanced.
	Query bool
}

// ErrClosed is inside the error of a request on a connection that its owner has closed.
var ErrClosed = errors.New("connection is closed")

// TooLargeError is a request that was not sent since it is larger than the server accepts. The connection is as good
// as before.
type TooLargeError struct {
	Address   address.Address
	Size, Max int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("message of %d bytes for %s is larger than its maximum of %d", e.Size, e.Address, e.Max)
}

// Conn is one connection after its hello. All methods but Interrupt, Alive and Close belong to its one owner.
type Conn struct {
	addr       address.Address
	id         uint64
	nc         net.Conn // what is spoken over: the transport, or TLS on it
	transport  *socket
	reader     *bufio.Reader
	packer     packer
	timeout    time.Duration // of the socket
	maxReply   int32
	maxRequest int
	api        *ServerAPI
	desc       description.Server
	hello      bson.Raw
	auth       *auth.State       // nil: there is no credential
	query      bool              // the server is too old for OP_MSG
	watcher    *ctxwatch.Watcher // of the request's context; calls c.unblock

	requestID int32 // of the last request
	answered  int32 // of the last request that had a reply; requests between the two wanted none
	follows   int32 // the last reply's, where it announced another one: then nothing may be sent. Else 0

	broken atomic.Pointer[breakage]
}

// breakage is why a connection must not be used any more.
type breakage struct{ err error }

// Description is what the server said in its hello on this connection; its AverageRTT is the time that hello took.
func (c *Conn) Description() *description.Server { return &c.desc }

// HelloReply is the server's reply to the connection's first hello.
func (c *Conn) HelloReply() bson.Raw { return c.hello }

// Address is the server's.
func (c *Conn) Address() address.Address { return c.addr }

// ID is the pool's number for the connection.
func (c *Conn) ID() uint64 { return c.id }

// ServerConnectionID is the server's number for the connection, or 0 if it gave none.
func (c *Conn) ServerConnectionID() int64 { return c.desc.ConnectionID }

// RequestID is the id of the last request.
func (c *Conn) RequestID() int32 { return c.requestID }

// Alive is false once the connection is broken or closed. It does no I/O: a server that went away while nothing was
// sent is noticed by the next request, which then sends nothing.
func (c *Conn) Alive() bool { return c.broken.Load() == nil }

// Err is why the connection is not alive, or nil.
func (c *Conn) Err() error {
	if b := c.broken.Load(); b != nil {
		return b.err
	}
	return nil
}

// Close closes the connection. It does not block: a TLS connection is cut without a farewell. It may be called more
// than once and at any time.
func (c *Conn) Close() error {
	c.broken.CompareAndSwap(nil, &breakage{ErrClosed})
	return c.transport.Close()
}

// Interrupt breaks the connection from outside: a request that is under way, and any later one, fails with cause.
// It does not block.
func (c *Conn) Interrupt(cause error) {
	c.broken.CompareAndSwap(nil, &breakage{cause})
	c.unblock()
}

// unblock makes reads and writes fail at once, also those that are blocked.
func (c *Conn) unblock() { _ = c.nc.SetDeadline(time.Unix(1, 0)) }

// RoundTrip sends msg, a complete OP_MSG, and returns the body of the reply: a fresh buffer whose frame is checked and
// whose contents are not. msg gets a request id, and may be reused once RoundTrip has returned. If ctx ends first, or
// anything else goes wrong, the error is a *mongoerr.NetworkError that wraps it and the connection is broken, except
// that nothing was sent, and nothing is broken, if ctx had ended before or msg is too large. If ctx ends when the reply is
// complete, the reply is returned, and the connection stays as good as it was.
func (c *Conn) RoundTrip(ctx context.Context, msg []byte) (bson.Raw, error) {
	if wire.MsgFlags(msg)&wire.MoreToCome != 0 {
		panic("bug: RoundTrip of a message that wants no reply")
	}
	if err := c.check(ctx, msg); err != nil {
		return nil, err
	}
	r := c.begin(ctx)
	defer r.end()
	if err := c.write(ctx, msg); err != nil {
		return nil, err
	}
	body, err := c.readReply(ctx)
	r.complete = err == nil
	return body, err
}

// Write sends msg, a complete OP_MSG with moreToCome, to which the server sends no reply. Errors are as in RoundTrip.
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

// check finds what is wrong before anything is sent.
func (c *Conn) check(ctx context.Context, msg []byte) error {
	if c.follows != 0 {
		panic("bug: a request while the server is still replying to the last one")
	}
	if b := c.broken.Load(); b != nil {
		return &mongoerr.NetworkError{Address: c.addr, Op: "write", Err: b.err}
	}
	if err := ctxwatch.Err(ctx); err != nil {
		return fmt.Errorf("send to %s: %w", c.addr, err)
	}
	if len(msg) > c.maxRequest {
		return &TooLargeError{c.addr, len(msg), c.maxRequest}
	}
	if err := c.checkUnused(); err != nil {
		return c.fail(ctx, "write", false, err)
	}
	return nil
}

var (
	// errGone is the end of a connection that the server closed while it was not used.
	errGone = errors.New("the server has closed the connection")
	// errUnread is the end of a connection on which bytes lie that nothing asked for: the next request
	// would get them for its reply.
	errUnread = &wire.FormatError{Problem: "bytes from the server that are no reply to any request"}
)

// checkUnused returns an error if something has arrived since the last reply. The next request has not
// been sent then, so it is known to have done nothing on the server. After requests that wanted no
// reply only the end of the connection counts, since some servers reply to them.
func (c *Conn) checkUnused() error {
	if c.answered != c.requestID {
		if c.transport.arrival() == arrivedEnd {
			return errGone
		}
		return nil
	}
	c.transport.dry = true
	_, err := c.reader.Peek(1) // through TLS, if there is, whose own messages may have arrived
	c.transport.dry = false
	switch {
	case err == nil:
		return errUnread
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return errGone
	}
	if !c.Alive() {
		c.unblock() // the deadline of an Interrupt may have been taken off
	}
	return nil
}

// request is one that is under way, interrupted if its context ends.
type request struct {
	conn     *Conn
	watch    ctxwatch.Watch
	complete bool // all that was to be sent and read is
}

func (c *Conn) begin(ctx context.Context) request {
	return request{conn: c, watch: c.watcher.Start(ctx)}
}

// errUnfinished breaks a connection whose request ended by a panic, somewhere in the middle.
var errUnfinished = errors.New("bug: a request was not finished")

// end leaves the connection ready for another request, or broken. An interruption that came too late to do harm has left a
// deadline behind, which has to go; an Interrupt from outside stays, since it has broken the connection before.
func (r *request) end() {
	interrupted := r.watch.Stop()
	switch {
	case !r.complete:
		r.conn.broken.CompareAndSwap(nil, &breakage{errUnfinished})
	case interrupted:
		_ = r.conn.nc.SetDeadline(time.Time{}) // an error shows in the next request
	}
}

func (c *Conn) write(ctx context.Context, msg []byte) error {
	c.requestID++
	wire.SetRequestID(msg, c.requestID)
	if c.timeout > 0 && !timeoutms.Governs(ctx) {
		_ = c.nc.SetDeadline(time.Now().Add(c.timeout)) // an error shows in the write
		if ctx.Err() != nil || !c.Alive() {
			c.unblock() // the interruption may have come before the deadline above
		}
	}
	packed := c.packer.pack(msg, c.maxRequest)
	n, err := c.nc.Write(packed.msg)
	packed.release()
	if err != nil {
		return c.fail(ctx, "write", n > 0, err)
	}
	return nil
}

// readReply reads replies up to the one to the last request. Replies to requests that wanted none are dropped, since
// some servers send them nevertheless.
func (c *Conn) readReply(ctx context.Context) (bson.Raw, error) {
	for {
		h, m, err := c.readMessage()
		if err != nil {
			return nil, c.fail(ctx, "read", true, err)
		}
		if h.ResponseTo != c.requestID && c.wantedNone(h.ResponseTo) {
			continue
		}
		body, err := replyBody(h, m, c.requestID)
		if err != nil {
			return nil, c.fail(ctx, "read", true, err)
		}
		c.answered = c.requestID
		return body, nil
	}
}

// readMessage reads the next message, whatever it answers, and decompresses it if it is compressed.
func (c *Conn) readMessage() (wire.Header, wire.Message, error) {
	buf, err := wire.ReadFrom(c.reader, c.maxReply)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // in wait for a reply there is no good end; callers take io.EOF for that of a result
	}
	if err != nil {
		return wire.Header{}, nil, err
	}
	h, m, err := wire.Parse(buf)
	if packed, ok := m.(*wire.Compressed); ok {
		return unpack(h, packed, c.maxReply)
	}
	return h, m, err
}

// wantedNone says whether id is of a request after the last answered one and before the current.
func (c *Conn) wantedNone(id int32) bool {
	return id-c.answered > 0 && c.requestID-id > 0
}

func replyBody(h wire.Header, m wire.Message, requestID int32) (bson.Raw, error) {
	if h.ResponseTo != requestID {
		return nil, &wire.FormatError{Offset: 8, Problem: fmt.Sprintf("reply to request %d where %d is waited for", h.ResponseTo, requestID)}
	}
	switch m := m.(type) {
	case *wire.Msg:
		if m.Flags&wire.MoreToCome != 0 {
			return nil, &wire.FormatError{Offset: wire.HeaderSize, Problem: "moreToCome in a reply that was not allowed to have it"}
		}
		return m.Body, nil
	case *wire.Reply:
		if m.Flags&wire.QueryFailure != 0 && len(m.Documents) == 1 {
			return nil, queryFailure(m.Documents[0])
		}
		if m.Flags&(wire.CursorNotFound|wire.QueryFailure) != 0 || len(m.Documents) != 1 {
			return nil, &wire.FormatError{Offset: wire.HeaderSize, Problem: "reply to a command without exactly one document"}
		}
		return m.Documents[0], nil
	default:
		return nil, &wire.FormatError{Offset: 12, Problem: "unexpected " + h.OpCode.String()}
	}
}

// queryFailure is what a server says that cannot even run a legacy hello.
func queryFailure(d bson.Raw) error {
	var text string
	if v, ok := d.Lookup("$err"); ok {
		text, _ = v.Str()
	}
	code, _ := d.Lookup("code")
	n, _ := code.AsInt64()
	return fmt.Errorf("the server refused it: %q (code %d)", text, n)
}

// fail breaks the connection and makes the error: for the cause of an interruption if there was one, else for err.
func (c *Conn) fail(ctx context.Context, op string, sent bool, err error) error {
	lasting := err // what later requests get
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
		reader:     bufio.NewReaderSize(nc, readBuffer),
		maxReply:   cfg.MaxMessageSize,
		maxRequest: int(wire.DefaultMaxMessageSize),
		requestID:  rand.Int32N(1 << 30),
	}
	if c.maxReply <= 0 {
		c.maxReply = wire.DefaultMaxMessageSize
	}
	c.answered = c.requestID
	c.watcher = ctxwatch.New(c.unblock)
	return c
}
