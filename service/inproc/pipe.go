package inproc

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// pipe connects the two sides of one streaming call on a Conn. In both directions a send returns
// when the other side has received the message, so a caller that does not read blocks its handler.
//
// The handler's goroutine (run) owns the server side, and the caller's goroutine the client side.
// They communicate through the channels.
type pipe struct {
	ctx       context.Context //nolint:containedctx // a gRPC stream hands out its context
	cancel    context.CancelFunc
	transport *transport
	method    *method

	requests  chan any
	responses chan any
	closeSend sync.Once // of requests, by the caller

	// answering is closed when the handler of a stream that only the client sends begins to send
	// its response: it takes no more requests.
	answering chan struct{}
	answers   sync.Once // closes answering

	// ended is closed when the handler has returned; err and panicked are set before that.
	ended    chan struct{}
	err      error
	panicked any
}

func newPipe(ctx context.Context, m *method) *pipe {
	t := &transport{method: m.info.FullMethod, sent: make(chan struct{})}
	ctx, cancel := context.WithCancel(serverContext(ctx, t))
	return &pipe{
		ctx: ctx, cancel: cancel, transport: t, method: m,
		requests: make(chan any), responses: make(chan any), ended: make(chan struct{}),
		answering: make(chan struct{}),
	}
}

func (p *pipe) run(handle func(grpc.ServerStream) error) {
	defer close(p.ended)
	defer p.transport.closeHeader()
	defer p.cancel()
	defer func() { p.panicked = recover() }()
	if err := handle((*serverStream)(p)); err != nil {
		p.err = failure(err)
	}
}

// serverStream implements the handler's side.
type serverStream pipe

var _ grpc.ServerStream = (*serverStream)(nil)

func (s *serverStream) Context() context.Context        { return s.ctx }
func (s *serverStream) SetHeader(md metadata.MD) error  { return s.transport.SetHeader(md) }
func (s *serverStream) SendHeader(md metadata.MD) error { return s.transport.SendHeader(md) }
func (s *serverStream) SetTrailer(md metadata.MD)       { _ = s.transport.SetTrailer(md) }

// SendMsg blocks until the caller has received the message or the context has ended.
func (s *serverStream) SendMsg(m any) error { return s.SendMsgContext(s.ctx, m) }

// SendMsgContext does what SendMsg does, but blocks until ctx ends. An interceptor derives ctx from
// the stream's context, so that a caller that does not read cannot block a handler that has to end.
func (s *serverStream) SendMsgContext(ctx context.Context, m any) error {
	s.transport.closeHeader()
	if s.method.info.IsClientStream && !s.method.info.IsServerStream {
		s.answers.Do(func() { close(s.answering) })
	}
	select {
	case s.responses <- m:
		return nil
	case <-ctx.Done():
		return failure(context.Cause(ctx))
	}
}

// RecvMsg receives the next request. It returns io.EOF after the caller's CloseSend.
func (s *serverStream) RecvMsg(m any) error { return s.RecvMsgContext(s.ctx, m) }

// RecvMsgContext does what RecvMsg does, but blocks until ctx ends, which an interceptor derives
// from the stream's context.
func (s *serverStream) RecvMsgContext(ctx context.Context, m any) error {
	select {
	case request, open := <-s.requests:
		if !open {
			return io.EOF
		}
		return move(m, request)
	case <-ctx.Done():
		return failure(context.Cause(ctx))
	}
}

// clientStream implements the caller's side.
type clientStream pipe

var _ grpc.ClientStream = (*clientStream)(nil)

func (c *clientStream) Context() context.Context { return c.ctx }

// Header blocks until the handler has sent the header, and returns it.
func (c *clientStream) Header() (metadata.MD, error) {
	<-c.transport.sent
	header, _ := c.transport.headers()
	return header, nil
}

// Trailer returns the trailer, which is complete once RecvMsg has returned an error.
func (c *clientStream) Trailer() metadata.MD {
	_, trailer := c.transport.headers()
	return trailer
}

func (c *clientStream) CloseSend() error {
	c.closeSend.Do(func() { close(c.requests) })
	return nil
}

// SendMsg blocks until the handler has received the message or has ended. If the handler of a
// client stream has ended, or has begun to send its response, it returns io.EOF, and RecvMsg
// returns the response or the handler's error. On other streams it returns nil then, as in grpc.
func (c *clientStream) SendMsg(m any) error {
	select {
	case c.requests <- m:
	case <-c.answering:
		return io.EOF
	case <-c.ended:
		if c.method.info.IsClientStream {
			return io.EOF
		}
	}
	return nil
}

// RecvMsg blocks until the next message or the end of the handler. At the end it returns io.EOF or
// the handler's error, or panics with the handler's panic.
func (c *clientStream) RecvMsg(m any) error {
	select {
	case response := <-c.responses:
		return move(m, response)
	case <-c.ended:
		switch {
		case c.panicked != nil:
			panic(c.panicked)
		case c.err != nil:
			return c.err
		}
		return io.EOF
	}
}
