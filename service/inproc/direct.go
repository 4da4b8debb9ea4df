package inproc

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Outlet takes what the handler of a stream sends, on the handler's goroutine.
type Outlet interface {
	// Header gets the header of the stream, before its first message or at its end, when ctx has
	// ended. It should return soon when ctx ends.
	Header(ctx context.Context, md metadata.MD)
	// Message gets a message, which is the handler's again when Message returns. Its error is that
	// of the handler's call. It should return soon when ctx ends.
	Message(ctx context.Context, m any) error
}

// Serve runs a streaming RPC that has one request, on the caller's goroutine. The handler waits
// while the outlet takes a message. Serve returns the handler's trailer and error.
func (c *Conn) Serve(
	ctx context.Context, name string, request any, to Outlet,
) (trailer metadata.MD, err error) {
	m := c.methods[name]
	if m == nil || m.stream == nil || m.info.IsClientStream {
		return nil, unknownMethod(name)
	}
	if err := ctx.Err(); err != nil {
		return nil, failure(err)
	}
	s := &directStream{transport: transport{method: name}, request: request, to: to}
	ctx, cancel := context.WithCancel(serverContext(ctx, &s.transport))
	defer cancel()
	s.ctx = ctx
	err = c.stream(m.server, s, &m.info, m.stream.Handler)
	cancel() // the outlet's waits end with the call
	s.sendHeader(ctx)
	_, trailer = s.headers()
	if err != nil {
		return trailer, failure(err)
	}
	return trailer, nil
}

// directStream implements the handler's side of a call of Serve.
type directStream struct {
	transport

	ctx     context.Context //nolint:containedctx // a gRPC stream hands out its context
	request any             // nil: the handler has received it
	to      Outlet
	// hasHeader says that the outlet has the header.
	hasHeader bool
}

var _ grpc.ServerStream = (*directStream)(nil)

// Context returns the context of the stream.
func (s *directStream) Context() context.Context { return s.ctx }

// SetTrailer sets the trailer.
func (s *directStream) SetTrailer(md metadata.MD) { _ = s.transport.SetTrailer(md) }

// SendMsg blocks until the outlet has taken the message.
func (s *directStream) SendMsg(m any) error { return s.SendMsgContext(s.ctx, m) }

// SendMsgContext does what SendMsg does, and tells the outlet of a context that an interceptor has
// derived.
func (s *directStream) SendMsgContext(ctx context.Context, m any) error {
	if ctx.Err() != nil {
		return failure(context.Cause(ctx))
	}
	s.sendHeader(ctx)
	return s.to.Message(ctx, m)
}

func (s *directStream) sendHeader(ctx context.Context) {
	if s.hasHeader {
		return
	}
	s.hasHeader = true
	s.closeHeader()
	header, _ := s.headers()
	s.to.Header(ctx, header)
}

// RecvMsg receives the request, and io.EOF after it.
func (s *directStream) RecvMsg(m any) error {
	if s.request == nil {
		return io.EOF
	}
	request := s.request
	s.request = nil
	return move(m, request)
}

// RecvMsgContext does what RecvMsg does, which does not block.
func (s *directStream) RecvMsgContext(_ context.Context, m any) error { return s.RecvMsg(m) }
