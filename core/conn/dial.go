package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/internal/ctxwatch"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// Dial connects to addr and says hello. Its error is a *mongoerr.NetworkError, or what the server's hello reported.
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
	transport, err := openTransport(ctx, addr, cfg)
	if err != nil {
		return nil, dialError(ctx, addr, "dial", err)
	}
	nc, err := encrypt(ctx, addr, cfg, transport)
	if err != nil {
		_ = transport.Close()
		return nil, dialError(ctx, addr, "tls handshake", err)
	}
	c := newConn(addr, cfg, transport, nc)
	if err := c.handshake(ctx, cfg); err != nil {
		_ = c.Close()
		return nil, err
	}
	c.timeout = cfg.SocketTimeout
	return c, nil
}

// connectTimeout is the cause of a Dial that took too long.
type connectTimeout time.Duration

func (t connectTimeout) Error() string {
	return fmt.Sprintf("not connected within %v (connectTimeoutMS)", time.Duration(t))
}

// Timeout says that it is one, as net.Error does.
func (connectTimeout) Timeout() bool { return true }

func dialError(ctx context.Context, addr address.Address, op string, err error) error {
	if ctxErr := ctxwatch.Err(ctx); ctxErr != nil {
		if e, ok := errors.AsType[*ProxyError](err); ok {
			ctxErr = &ProxyError{Reached: e.Reached, Err: ctxErr}
		}
		err = ctxErr
	}
	return &mongoerr.NetworkError{Address: addr, Op: op, Err: err}
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
