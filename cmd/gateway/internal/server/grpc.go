package server

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	alphapb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mooringdb/mooring/service/rpcerr"
)

// GRPCConfig holds what a gRPC server is made of.
type GRPCConfig struct {
	TLS            *tls.Config // nil: plain text
	MaxRequestSize int
	// MaxStreams limits the calls in flight on a connection; 0 means no limit.
	MaxStreams int
	// MaxAge is the age from which clients are told to use another connection; 0 means none.
	MaxAge time.Duration
	// Authenticate finds out who makes a call, and returns the context for the interceptors. It
	// is called for all calls but those of health, before the request is read. If it is nil,
	// clients are not authenticated.
	Authenticate func(ctx context.Context, method string) (context.Context, error)
	// Unary and Stream intercept every call of the API, and none of health and reflection.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// Stopping is closed when the server stops. Streams of health and reflection have no end of
	// their own; they end then.
	Stopping <-chan struct{}
}

const (
	// A client that disappears is noticed after the sum of the two, and its streams end.
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 20 * time.Second
	// Clients that ping more often than this are disconnected.
	keepaliveLeast = 10 * time.Second
	// Number of goroutines that serve one stream after the other. A new goroutine for each stream
	// would grow its stack each time, which takes an eighth of the processor time of a small
	// request. When all are busy, more are started.
	streamWorkers = 64
	// handshakeTimeout limits the handshakes of TLS and HTTP/2.
	handshakeTimeout = 10 * time.Second
)

// NewGRPC returns a gRPC server without services. Register adds them.
func NewGRPC(cfg GRPCConfig) *grpc.Server {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(cfg.MaxRequestSize),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, MaxConnectionAge: cfg.MaxAge,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: keepaliveLeast, PermitWithoutStream: true,
		}),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.UnaryInterceptor(cfg.unary),
		grpc.StreamInterceptor(cfg.stream),
		grpc.UnknownServiceHandler(refuseUnknown),
	}
	if cfg.MaxStreams > 0 {
		opts = append(opts, grpc.MaxConcurrentStreams(uint32(cfg.MaxStreams)))
	}
	if cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(cfg.TLS)))
	}
	return grpc.NewServer(opts...)
}

// Register returns what registers the services of the API on a server of this configuration. With
// authentication, grpc would read the request of a unary call before any code of ours runs, so
// that strangers could make it hold as much as a request may have. Such a call is registered as a
// stream, which its handler reads.
func (cfg GRPCConfig) Register(g *grpc.Server) grpc.ServiceRegistrar {
	if cfg.Authenticate == nil {
		return g
	}
	return lateReader{g, cfg}
}

// lateReader registers unary methods as streams. grpc intercepts no stream of a single request and
// a single response, so their handlers authenticate.
type lateReader struct {
	server *grpc.Server
	cfg    GRPCConfig
}

// RegisterService registers a service.
func (l lateReader) RegisterService(desc *grpc.ServiceDesc, server any) {
	l.server.RegisterService(asStreams(desc, l.handler), server)
}

// asStreams returns a service whose unary methods are streams with the handlers that handler makes.
func asStreams(
	desc *grpc.ServiceDesc,
	handler func(method string, unary grpc.MethodHandler) grpc.StreamHandler,
) *grpc.ServiceDesc {
	late := *desc
	late.Methods, late.Streams = nil, slices.Clone(desc.Streams)
	for _, m := range desc.Methods {
		method := "/" + desc.ServiceName + "/" + m.MethodName
		late.Streams = append(late.Streams, grpc.StreamDesc{
			StreamName: m.MethodName, Handler: handler(method, m.Handler),
		})
	}
	return &late
}

func (l lateReader) handler(method string, unary grpc.MethodHandler) grpc.StreamHandler {
	return func(server any, ss grpc.ServerStream) error {
		ctx, err := l.cfg.Authenticate(ss.Context(), method)
		if err != nil {
			return err
		}
		response, err := unary(server, ctx, ss.RecvMsg, l.cfg.Unary)
		if err != nil {
			return err
		}
		return ss.SendMsg(response)
	}
}

func (cfg GRPCConfig) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler,
) (any, error) {
	if isInfrastructure(info.FullMethod) {
		return h(ctx, req)
	}
	return cfg.Unary(ctx, req, info, h)
}

func (cfg GRPCConfig) stream(
	srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler,
) error {
	if cfg.Authenticate != nil && !isHealth(info.FullMethod) {
		ctx, err := cfg.Authenticate(ss.Context(), info.FullMethod)
		if err != nil {
			return err
		}
		ss = &authenticated{ss, ctx}
	}
	if isHealth(info.FullMethod) {
		ss = stranger{ss}
	}
	if !isInfrastructure(info.FullMethod) {
		return cfg.Stream(srv, ss, info, h)
	}
	done := make(chan error, 1)
	// The stream ends when this function returns, which ends the goroutine.
	go func() { done <- h(srv, ss) }()
	select {
	case err := <-done:
		return err
	case <-cfg.Stopping:
		return rpcerr.Status(&rpcerr.Error{
			Reason:  rpcerr.ShuttingDown,
			Message: "the gateway is shutting down",
		}).Err()
	}
}

// authenticated wraps a stream and has the context that Authenticate has returned.
type authenticated struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // as grpc has it
}

func (a *authenticated) Context() context.Context { return a.ctx }

// refuseUnknown answers calls of unknown methods, so that the error has details and the call is
// logged, like all others.
func refuseUnknown(_ any, ss grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(ss)
	return rpcerr.Status(&rpcerr.Error{
		Reason:  rpcerr.Unimplemented,
		Message: "there is no method " + method,
	}).Err()
}

// isInfrastructure reports whether a method belongs to grpc.health.v1 or grpc.reflection, not to
// the API.
func isInfrastructure(method string) bool { return strings.HasPrefix(method, "/grpc.") }

// isHealth reports whether a method belongs to grpc.health.v1, whose clients need no credential.
func isHealth(method string) bool { return strings.HasPrefix(method, "/grpc.health.v1.Health/") }

// internalPackage names the package that only replicas of the gateway use.
const internalPackage = "mooring.replica"

// RegisterReflection lets clients ask for the API that a server serves. It hides all other
// descriptors of the program.
func RegisterReflection(g *grpc.Server) {
	opts := reflection.ServerOptions{
		Services: g, DescriptorResolver: public{protoregistry.GlobalFiles},
	}
	reflectionpb.RegisterServerReflectionServer(g, reflection.NewServerV1(opts))
	alphapb.RegisterServerReflectionServer(g, reflection.NewServer(opts))
}

// public resolves the descriptors that clients may see.
type public struct{ protodesc.Resolver }

func (p public) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	file, err := p.Resolver.FindFileByPath(path)
	if err == nil && isInternal(file) {
		return nil, protoregistry.NotFound
	}
	return file, err
}

func (p public) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	d, err := p.Resolver.FindDescriptorByName(name)
	if err == nil && isInternal(d.ParentFile()) {
		return nil, protoregistry.NotFound
	}
	return d, err
}

func isInternal(file protoreflect.FileDescriptor) bool {
	return strings.HasPrefix(string(file.Package())+".", internalPackage+".")
}
