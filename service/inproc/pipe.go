package inproc

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// pipe is one streaming call on a Conn. In both directions a send returns when the other side has
// taken the message, so a caller that does not read holds its handler back.
//
// The handler's goroutine (run) owns the server side, and the caller's goroutine the client side.
// The channels are between them.
type pipe struct {
	ctx       context.Context //nolint:containedctx // a gRPC stream hands out its context
	cancel    context.CancelFunc
	transport *transport
	method    *method

	requests  chan any
	responses chan any
	closeSend sync.Once // of requests, by the caller

	// ended is closed when the handler has returned; err and panicked are set before.
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

// serverStream is the handler's side.
type serverStream pipe

var _ grpc.ServerStream = (*serverStream)(nil)

func (s *serverStream) Context() context.Context        { return s.ctx }
func (s *serverStream) SetHeader(md metadata.MD) error  { return s.transport.SetHeader(md) }
func (s *serverStream) SendHeader(md metadata.MD) error { return s.transport.SendHeader(md) }
func (s *serverStream) SetTrailer(md metadata.MD)       { _ = s.transport.SetTrailer(md) }

// SendMsg returns when the caller has taken the message, or the context has ended.
func (s *serverStream) SendMsg(m any) error { return s.SendMsgContext(s.ctx, m) }

// SendMsgContext does what SendMsg does, until ctx ends, which an interceptor has made of the
// stream's context: a caller that does not read must not hold a handler that is to end.
func (s *serverStream) SendMsgContext(ctx context.Context, m any) error {
	s.transport.closeHeader()
	select {
	case s.responses <- m:
		return nil
	case <-ctx.Done():
		return failure(context.Cause(ctx))
	}
}

// RecvMsg is io.EOF after the caller's CloseSend.
func (s *serverStream) RecvMsg(m any) error {
	select {
	case request, open := <-s.requests:
		if !open {
			return io.EOF
		}
		return move(m, request)
	case <-s.ctx.Done():
		return failure(context.Cause(s.ctx))
	}
}

// clientStream is the caller's side.
type clientStream pipe

var _ grpc.ClientStream = (*clientStream)(nil)

func (c *clientStream) Context() context.Context { return c.ctx }

// Header waits until the handler has sent it.
func (c *clientStream) Header() (metadata.MD, error) {
	<-c.transport.sent
	header, _ := c.transport.headers()
	return header, nil
}

// Trailer is complete after RecvMsg has returned an error.
func (c *clientStream) Trailer() metadata.MD {
	_, trailer := c.transport.headers()
	return trailer
}

func (c *clientStream) CloseSend() error {
	c.closeSend.Do(func() { close(c.requests) })
	return nil
}

// SendMsg is io.EOF when the handler has ended; RecvMsg says how. As in grpc, only a client
// stream is told.
func (c *clientStream) SendMsg(m any) error {
	select {
	case c.requests <- m:
	case <-c.ended:
		if c.method.info.IsClientStream {
			return io.EOF
		}
	}
	return nil
}

// RecvMsg returns the next message, or how the handler ended: io.EOF, its error, or its panic.
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
