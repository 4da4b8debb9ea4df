package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/internal/ctxwatch"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// Dial connects to addr, says hello and authenticates. It blocks until that is done, ctx ends or
// ConnectTimeout is over. Its error is a *mongoerr.NetworkError, in a *mongoerr.OverloadError if the server
// may have refused because it is overloaded, what the server's hello reported, or an *auth.Error.
func Dial(ctx context.Context, addr address.Address, cfg Config) (*Conn, error) {
	timeout := cfg.ConnectTimeout
	if timeout == 0 {
		timeout = DefaultConnectTimeout
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, connectTimeout(timeout))
		defer cancel()
	}
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
	if err := c.establish(ctx, cfg); err != nil {
		_ = c.Close()
		return nil, err
	}
	c.timeout = cfg.SocketTimeout
	return c, nil
}

// establish speaks to the server until the connection can be used.
func (c *Conn) establish(ctx context.Context, cfg Config) (err error) {
	if c.auth, err = c.login(cfg); err != nil {
		return err
	}
	if err := c.handshake(ctx, cfg); err != nil {
		return err
	}
	return c.authenticate(ctx)
}

// connectTimeout is the cause of a Dial that took too long.
type connectTimeout time.Duration

func (t connectTimeout) Error() string {
	return fmt.Sprintf("not connected within %v (connectTimeoutMS)", time.Duration(t))
}

// Timeout says that it is one, as net.Error does.
func (connectTimeout) Timeout() bool { return true }

// dialError returns the error of a connection that was not made because of err. If ctx has ended, the
// cause of that stands in it.
func dialError(ctx context.Context, addr address.Address, op string, err error) error {
	cause := err
	if ctxErr := ctxwatch.Err(ctx); ctxErr != nil {
		cause = ctxErr
		if e, ok := errors.AsType[*ProxyError](err); ok {
			cause = &ProxyError{Reached: e.Reached, Err: ctxErr}
		}
	}
	failed := &mongoerr.NetworkError{Address: addr, Op: op, Err: cause}
	if isRefusal(err) && isRefusal(cause) {
		return &mongoerr.OverloadError{Err: failed}
	}
	return failed
}

// isRefusal reports whether err, met while a connection was made, is one that an overloaded server may
// cause: the transport broke, or time ran out (CMAP, "Pool Backpressure"). DNS, the proxy, certificates
// and what TLS itself objects to have nothing to do with the server's load.
func isRefusal(err error) bool {
	if mongoerr.IsCanceled(err) || is[*net.DNSError](err) || is[*net.AddrError](err) || is[*ProxyError](err) ||
		is[*certificateError](err) {
		return false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op != "remote error" && op.Op != "local error" // crypto/tls has alerts of both sides under these names
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
