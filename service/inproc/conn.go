// Package inproc provides a gRPC connection within the process. A call on it runs the handler that
// is registered for it, through the interceptors, on the caller's goroutine. The package serialises
// nothing and knows no service.
package inproc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Conn runs gRPC calls within the process. A call runs the handler that is registered for it,
// through the same interceptors as a call from the network, on the caller's messages. Nothing is
// serialised or copied.
//
// A handler therefore does not change its request. It neither keeps nor changes a message that it
// has returned or sent; the data that the message points to may be shared for reading. Contexts
// carry deadline, cancellation, metadata and peer to the handler, as over the network. A panic
// passes through the interceptors; if none recovers, it reaches the caller. An error is the
// *rpcerr.Failure that the interceptors return.
//
// Services must be registered before the first call. From then on a Conn is safe for concurrent
// use.
type Conn struct {
	unary   grpc.UnaryServerInterceptor
	stream  grpc.StreamServerInterceptor
	methods map[string]*method
}

var (
	_ grpc.ClientConnInterface = (*Conn)(nil)
	_ grpc.ServiceRegistrar    = (*Conn)(nil)
)

// NewConn returns a Conn whose calls pass through these interceptors; nil means no interceptor.
func NewConn(unary grpc.UnaryServerInterceptor, stream grpc.StreamServerInterceptor) *Conn {
	if unary == nil {
		unary = func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
		) (any, error) {
			return handler(ctx, req)
		}
	}
	if stream == nil {
		stream = func(
			srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
		) error {
			return handler(srv, ss)
		}
	}
	return &Conn{unary: unary, stream: stream, methods: map[string]*method{}}
}

// method describes one registered RPC: a unary one, whose handler is set, or a stream.
type method struct {
	server    any
	handler   grpc.UnaryHandler
	unaryInfo *grpc.UnaryServerInfo
	stream    *grpc.StreamDesc
	info      grpc.StreamServerInfo
}

// newUnary returns a unary method. A generated handler makes an empty request, has it filled, and
// passes it on with what it knows of the RPC, which is the same for all calls.
func newUnary(server any, generated grpc.MethodHandler) *method {
	m := &method{}
	_, _ = generated(server, context.Background(), func(any) error { return nil }, func(
		_ context.Context, _ any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		m.unaryInfo, m.handler = info, handler
		return nil, nil
	})
	return m
}

// RegisterService makes a service's methods callable. It panics on a second registration, as
// grpc.Server ends the process.
func (c *Conn) RegisterService(desc *grpc.ServiceDesc, server any) {
	add := func(name string, m *method) {
		full := "/" + desc.ServiceName + "/" + name
		if c.methods[full] != nil {
			panic("bug: inproc: " + full + " is registered twice")
		}
		m.server = server
		c.methods[full] = m
	}
	for i := range desc.Methods {
		add(desc.Methods[i].MethodName, newUnary(server, desc.Methods[i].Handler))
	}
	for i := range desc.Streams {
		s := &desc.Streams[i]
		info := grpc.StreamServerInfo{
			FullMethod:     "/" + desc.ServiceName + "/" + s.StreamName,
			IsClientStream: s.ClientStreams,
			IsServerStream: s.ServerStreams,
		}
		add(s.StreamName, &method{stream: s, info: info})
	}
}

// Invoke runs a unary RPC on the caller's goroutine.
func (c *Conn) Invoke(
	ctx context.Context, name string, args, reply any, opts ...grpc.CallOption,
) error {
	r, err := c.Call(ctx, name, args)
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = r.Header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = r.Trailer
		}
	}
	if err != nil {
		return err
	}
	return move(reply, r.Message)
}

// Reply holds what a unary RPC has returned.
type Reply struct {
	Message         any // the handler's own: the caller reads it only
	Header, Trailer metadata.MD
}

// Call does what Invoke does and returns the handler's message, instead of moving its fields into
// one of the caller's. A call that fails may have headers and trailers, too.
func (c *Conn) Call(ctx context.Context, name string, args any) (r Reply, err error) {
	m := c.methods[name]
	if m == nil || m.handler == nil {
		return r, unknownMethod(name)
	}
	if err := ctx.Err(); err != nil {
		return r, failure(err)
	}
	t := &transport{method: name}
	r.Message, err = c.unary(serverContext(ctx, t), args, m.unaryInfo, m.handler)
	r.Header, r.Trailer = t.headers()
	if err != nil {
		return r, failure(err)
	}
	return r, nil
}

// NewStream begins a streaming RPC. The handler runs on a goroutine that ends with the handler.
// RecvMsg returns an error only after that. A caller that stops reading before the end must cancel
// ctx.
func (c *Conn) NewStream(
	ctx context.Context, _ *grpc.StreamDesc, name string, _ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	m := c.methods[name]
	if m == nil || m.stream == nil {
		return nil, unknownMethod(name)
	}
	if err := ctx.Err(); err != nil {
		return nil, failure(err)
	}
	p := newPipe(ctx, m)
	go p.run(func(ss grpc.ServerStream) error {
		return c.stream(m.server, ss, &m.info, m.stream.Handler)
	})
	return (*clientStream)(p), nil
}

// serverContext returns the context of a handler. The caller's outgoing metadata becomes incoming.
// A call.Local holds for one call, so the handler's own calls on a Conn have none.
func serverContext(ctx context.Context, t grpc.ServerTransportStream) context.Context {
	incoming, ok := ctx.(*incomingContext)
	if !ok {
		md, sent := metadata.FromOutgoingContext(ctx)
		if sent {
			ctx = metadata.NewOutgoingContext(ctx, nil)
		}
		incoming = &incomingContext{call.LocalContext{Context: ctx}, md}
	}
	ctx = metadata.NewIncomingContext(incoming, incoming.md)
	return grpc.NewContextWithServerTransportStream(ctx, t)
}

// incomingContext carries the context of one call and what its handler learns of the call.
type incomingContext struct {
	call.LocalContext
	md metadata.MD
}

// WithIncoming does what metadata.NewOutgoingContext does, for one call on a Conn and without
// copies, and tells the interceptors local. The handler owns md afterwards. The caller passes the
// returned context to the call unchanged.
func WithIncoming(ctx context.Context, local call.Local, md metadata.MD) context.Context {
	return &incomingContext{call.LocalContext{Context: ctx, Local: local}, md}
}

// failure returns err as the interceptors have explained it, or explains it. Over the network a
// caller gets only the status of it.
func failure(err error) error { return rpcerr.Explain(err, call.Call{}) }

func unknownMethod(name string) error {
	return failure(&rpcerr.Error{
		Reason: rpcerr.Unimplemented, Message: "there is no method " + name,
	})
}

// move sets the fields of dst, which is empty, to those of src. It does not copy their contents.
func move(dst, src any) error {
	to, ok := dst.(proto.Message)
	if !ok {
		return fmt.Errorf("bug: inproc: %T is not a message", dst)
	}
	from, ok := src.(proto.Message)
	if !ok {
		return fmt.Errorf("bug: inproc: %T is not a message", src)
	}
	target, source := to.ProtoReflect(), from.ProtoReflect()
	if target.Descriptor() != source.Descriptor() {
		return fmt.Errorf("bug: inproc: %T where %T is expected", src, dst)
	}
	source.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		target.Set(fd, v)
		return true
	})
	if unknown := source.GetUnknown(); len(unknown) > 0 {
		target.SetUnknown(unknown)
	}
	return nil
}

// transport stores the headers and trailers that a handler sets. The handler and the caller share
// it; mu guards it.
type transport struct {
	method string

	// mu guards the fields below.
	mu      sync.Mutex
	header  metadata.MD
	trailer metadata.MD
	sent    chan struct{} // closed when the header cannot change any more; nil for unary calls
	isSent  bool
}

var _ grpc.ServerTransportStream = (*transport)(nil)

func (t *transport) Method() string { return t.method }

func (t *transport) SetHeader(md metadata.MD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isSent {
		return errors.New("the header has been sent")
	}
	t.header = join(t.header, md)
	return nil
}

func (t *transport) SendHeader(md metadata.MD) error {
	if err := t.SetHeader(md); err != nil {
		return err
	}
	t.closeHeader()
	return nil
}

func (t *transport) SetTrailer(md metadata.MD) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trailer = join(t.trailer, md)
	return nil
}

func (t *transport) closeHeader() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isSent {
		t.isSent = true
		if t.sent != nil {
			close(t.sent)
		}
	}
}

func (t *transport) headers() (header, trailer metadata.MD) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.header, t.trailer
}

func join(md, more metadata.MD) metadata.MD {
	if len(more) == 0 {
		return md
	}
	joined := maps.Clone(md)
	if joined == nil {
		joined = make(metadata.MD, len(more))
	}
	for k, v := range more {
		joined.Append(k, v...)
	}
	return joined
}
