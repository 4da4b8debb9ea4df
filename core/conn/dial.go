package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/ctxwatch"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// Dial connects to addr, says hello and authenticates. It blocks until that is done, ctx ends or
// ConnectTimeout is over, which does not include the time in which a provider obtains a credential.
// Its error is a *mongoerr.NetworkError, in a *mongoerr.OverloadError if
// the server may have refused because it is overloaded, the error that hello reported, or an
// *auth.Error.
func Dial(ctx context.Context, addr address.Address, cfg Config) (*Conn, error) {
	limit := newLimit(cfg.ConnectTimeout)
	c, err := open(ctx, addr, cfg, limit)
	if err != nil {
		return nil, err
	}
	if err := c.authenticate(ctx, &loginRunner{c, limit}); err != nil {
		_ = c.Close()
		return nil, err
	}
	c.timeout = cfg.SocketTimeout
	return c, nil
}

// open connects to addr and says hello, within the limit.
func open(ctx context.Context, addr address.Address, cfg Config, limit *limit) (*Conn, error) {
	ctx, end := limit.apply(ctx)
	defer end()
	opened, err := openTransport(ctx, addr, cfg)
	if err != nil {
		return nil, dialError(ctx, addr, "dial", err)
	}
	transport := newSocket(opened)
	nc, err := encrypt(ctx, addr, cfg, transport)
	if err != nil {
		_ = transport.Close()
		return nil, dialError(ctx, addr, "tls handshake", err)
	}
	c := newConn(addr, cfg, transport, nc)
	if c.auth, err = c.login(cfg); err == nil {
		err = c.handshake(ctx, cfg)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// limit holds how much of ConnectTimeout is left.
type limit struct{ timeout, left time.Duration }

func newLimit(timeout time.Duration) *limit {
	if timeout == 0 {
		timeout = DefaultConnectTimeout
	}
	return &limit{timeout, timeout}
}

// apply returns a context that ends when nothing is left. The time until end counts.
func (l *limit) apply(ctx context.Context) (_ context.Context, end func()) {
	if l.timeout < 0 {
		return ctx, func() {}
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, l.left, connectTimeout(l.timeout))
	return ctx, func() {
		l.left -= time.Since(begin)
		cancel()
	}
}

// connectTimeout reports the cause of a Dial that took too long.
type connectTimeout time.Duration

func (t connectTimeout) Error() string {
	return fmt.Sprintf("not connected within %v (connectTimeoutMS)", time.Duration(t))
}

// Timeout reports whether the error is a timeout, as net.Error does: always.
func (connectTimeout) Timeout() bool { return true }

// dialError returns the error of a Dial that failed because of err. If ctx has ended, it has the
// cause of that.
func dialError(ctx context.Context, addr address.Address, op string, err error) error {
	cause := err
	if ctxErr := ctxwatch.Err(ctx); ctxErr != nil {
		cause = ctxErr
	} else if errors.Is(err, io.EOF) { // callers take io.EOF for the end of a result
		cause = io.ErrUnexpectedEOF
	}
	if e, ok := errors.AsType[*ProxyError](err); ok && cause != err { //nolint:errorlint // identity
		cause = &ProxyError{Reached: e.Reached, Err: cause}
	}
	failed := &mongoerr.NetworkError{Address: addr, Op: op, Err: cause}
	if isRefusal(err) && isRefusal(cause) {
		return &mongoerr.OverloadError{Err: failed}
	}
	return failed
}

// isRefusal reports whether an overloaded server may cause err while a connection is made: the
// transport broke, or time ran out (CMAP, "Pool Backpressure"). Errors of DNS, the proxy,
// certificates and TLS itself are independent of the server's load.
func isRefusal(err error) bool {
	if mongoerr.IsCanceled(err) || is[*net.DNSError](err) || is[*net.AddrError](err) ||
		is[*ProxyError](err) ||
		is[*certificateError](err) {
		return false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		// crypto/tls uses these two names for alerts.
		return op.Op != "remote error" && op.Op != "local error"
	}
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe} {
		if errors.Is(err, broken) {
			return true
		}
	}
	return mongoerr.IsTimeout(err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func openTransport(ctx context.Context, addr address.Address, cfg Config) (net.Conn, error) {
	dial := cfg.Dialer
	if dial == nil {
		dial = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 2 * time.Minute, Interval: 10 * time.Second, Count: 9,
		}}).DialContext
	}
	if cfg.Proxy != nil && addr.Network() == "tcp" {
		return cfg.Proxy.dial(ctx, addr, dial)
	}
	return dial(ctx, addr.Network(), string(addr))
}
