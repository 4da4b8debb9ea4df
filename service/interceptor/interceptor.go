// Package interceptor is what every call passes on its way to a handler, gRPC and REST alike: it
// gets an id and a deadline, is logged and counted, and its errors and panics become a status.
// Calls can be refused and ended when the gateway shuts down (see Gate).
//
// It decides nothing about what a call does.
package interceptor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Config of the interceptors.
type Config struct {
	// Logger gets one debug line a call, and an error line for what is our own fault; nil: none.
	Logger *slog.Logger
	// Gate counts the calls; nil: one that is never closed.
	Gate *Gate
	// DefaultTimeout bounds unary calls that bring no deadline; 0: nothing does.
	DefaultTimeout time.Duration
	// StallTimeout is how long the client of a stream may keep a message waiting: whoever has
	// stopped reading must not hold a cursor, and perhaps its connection, for ever. 0 is
	// DefaultStallTimeout.
	StallTimeout time.Duration
}

// DefaultStallTimeout is that of Config.
const DefaultStallTimeout = 10 * time.Minute

// Chain is all interceptors in their order, as one.
type Chain struct {
	cfg     Config
	steps   []step
	stalled error // what ends a stream whose client takes nothing
}

// step is one interceptor, for unary calls and streams alike. It runs the rest of the call by
// c.next.
type step func(ctx context.Context, c *pass) error

// New returns the interceptors.
func New(cfg Config) *Chain {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Gate == nil {
		cfg.Gate = NewGate()
	}
	if cfg.StallTimeout == 0 {
		cfg.StallTimeout = DefaultStallTimeout
	}
	x := &Chain{cfg: cfg, stalled: &rpcerr.Error{
		Reason: rpcerr.StreamStalled, Message: fmt.Sprintf("the client has taken nothing of the stream for %s: it is over", cfg.StallTimeout),
	}}
	x.steps = []step{
		x.identify, // the request's id
		x.log,      // one line, with the status that the client gets
		x.explain,  // errors become a status
		x.recover,  // panics become errors
		x.gate,     // refused when shutting down, ended when that takes too long
		x.deadline, // the shortest of all that were given
		x.inform,   // handlers learn of the call
	}
	return x
}

// pass is one call on its way through the steps: one value, since each request needs one.
type pass struct {
	call      call.Context // its Context is set for the handler, in inform
	method    string
	steps     []step // that are still to come
	admission admission

	// Of a unary call:
	request, response any
	unary             grpc.UnaryHandler
	// Of a stream:
	chain  *Chain
	server any
	wire   grpc.ServerStream
	stream grpc.StreamHandler // nil: the call is unary
}

func (c *pass) next(ctx context.Context) error {
	if len(c.steps) == 0 {
		return c.handle(ctx)
	}
	s := c.steps[0]
	c.steps = c.steps[1:]
	return s(ctx, c)
}

func (c *pass) handle(ctx context.Context) (err error) {
	if c.stream != nil {
		return c.stream(c.server, &stream{c.wire, ctx, c.chain})
	}
	c.response, err = c.unary(ctx, c.request)
	return err
}

// Unary returns the interceptor of unary calls.
func (x *Chain) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c := &pass{method: info.FullMethod, steps: x.steps, request: req, unary: handler}
		if err := c.next(ctx); err != nil {
			return nil, err
		}
		return c.response, nil
	}
}

// Stream returns the interceptor of streams.
func (x *Chain) Stream() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		c := &pass{method: info.FullMethod, steps: x.steps, chain: x, server: srv, wire: ss, stream: handler}
		return c.next(ss.Context())
	}
}

// stream is a stream with the context that the steps have made.
type stream struct {
	grpc.ServerStream
	ctx   context.Context //nolint:containedctx // as grpc has it
	chain *Chain
}

func (s *stream) Context() context.Context { return s.ctx }

// interruptible is a stream whose sends a context can end.
type interruptible interface {
	SendMsgContext(ctx context.Context, m any) error
}

// SendMsg does not outlast the context: a client that reads nothing would otherwise hold the
// handler, and its cursor, beyond the end of a drain, or for ever. On grpc's own streams a
// goroutine sends, and ends with the stream, which grpc ends when the handler has returned.
func (s *stream) SendMsg(m any) error {
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.chain.cfg.StallTimeout, s.chain.stalled)
	defer cancel()
	if x, ok := s.ServerStream.(interruptible); ok {
		err := x.SendMsgContext(ctx, m)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	sent := make(chan error, 1)
	go func() { sent <- s.ServerStream.SendMsg(m) }()
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
