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

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/clientaddr"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// GRPCConfig holds what a gRPC server is made of.
type GRPCConfig struct {
	TLS *tls.Config // nil: plain text
	// MaxRequestSize limits each message of a client, in bytes. MaxSizeOf, if it is set, limits
	// those of a method.
	MaxRequestSize int
	MaxSizeOf      func(method string) int
	// MaxItems limits the items of all lists of a message; 0 means no limit.
	MaxItems int
	// MinCompressed is the size from which a response is compressed; 0: coding.DefaultMinSize.
	MinCompressed int
	// OpenAccount opens an account of the client that makes the call of ctx: that of the call,
	// which its call.Local has and which is closed when the response was sent, or, for a stream of
	// a client that is watched, one for its large messages. If it is nil, nothing is charged.
	OpenAccount func(ctx context.Context, c *admission.Account)
	// Room limits the bytes of the requests, and of the responses, that are on their way; 0 means
	// no limit.
	Room int
	// Stall is how long the client of a stream may leave a message unread; 0: as of other calls.
	Stall time.Duration
	// MaxStreams limits the calls in flight on a connection; 0 means no limit.
	MaxStreams int
	// MaxAge is the age from which clients are told to use another connection; 0 means none.
	MaxAge time.Duration
	// Proxies lists the proxies that name the clients of calls; nil: none.
	Proxies *clientaddr.Proxies
	// Authenticate finds out who makes a call, and returns the context for the interceptors. It
	// is called for all calls but those of health, before the request is read. If it is nil,
	// clients are not authenticated.
	Authenticate func(ctx context.Context, method string) (context.Context, error)
	// Refuse, if it is set, records a unary call of the API whose request could not be read, which
	// Unary does not see, and returns the error that its client gets. ctx is what Authenticate has
	// returned.
	Refuse func(ctx context.Context, method string, err error) error
	// Trace, if it is set, begins to observe a call of the API. It returns the context of the call,
	// and what is called with the error of the call at its end.
	Trace func(ctx context.Context, method string) (context.Context, func(error))
	// Unary and Stream intercept every call of the API, and none of health and reflection.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// Stopping is closed when the server stops. Streams of health and reflection have no end of
	// their own; they end then.
	Stopping <-chan struct{}

	dog *watchdog // set by NewGRPC; nil: no client is watched
}

// Clients of health need no credential, so what they can make the gateway hold is limited: a
// request arrives within healthPatience, and has at most maxHealthRequest bytes. Watch keeps it,
// since it has the name of a service.
const (
	healthPatience   = 5 * time.Second
	maxHealthRequest = 1 << 10
)

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
	// readBuffer is how much is read of a connection at once. Others wait while its frames are
	// handled, which takes long if they are small. A large request costs about a tenth more than
	// with 32 KiB.
	readBuffer = 4 << 10
	// handshakeTimeout limits the handshakes of TLS and HTTP/2.
	handshakeTimeout = 10 * time.Second
)

// NewGRPC returns a gRPC server without services, and what registers the API on it. Services that
// are registered on the server itself, and have unary methods, are not intercepted.
func NewGRPC(cfg GRPCConfig) (*grpc.Server, grpc.ServiceRegistrar) {
	cfg.dog = newWatchdog(cfg.Room)
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(NewCodec()),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout, MaxConnectionAge: cfg.MaxAge,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: keepaliveLeast, PermitWithoutStream: true,
		}),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ReadBufferSize(readBuffer),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.InTapHandle(refuseEarly),
		grpc.StreamInterceptor(cfg.stream),
		grpc.UnknownServiceHandler(refuseUnknown),
	}
	if cfg.MaxStreams > 0 {
		opts = append(opts, grpc.MaxConcurrentStreams(uint32(cfg.MaxStreams)))
	}
	if cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(cfg.TLS)))
	}
	g := grpc.NewServer(opts...)
	return g, lateReader{g, &cfg}
}

// LateReader returns what registers the API on another gRPC server, which has the codec of NewCodec
// and whose clients are trusted: they are not watched. It uses only MaxRequestSize, OpenAccount,
// Unary and Stream of cfg. r gets the unary methods as streams in no direction, whose handlers grpc
// calls without an interceptor. streams intercepts the calls of the other streams. What is sent on
// the server's streams has a method Size() int.
func LateReader(
	r grpc.ServiceRegistrar, cfg GRPCConfig,
) (api grpc.ServiceRegistrar, streams grpc.StreamServerInterceptor) {
	return lateReader{r, &cfg}, cfg.stream
}

// lateReader registers unary methods as streams. grpc would read the request of a unary call before
// any code of ours runs, so that strangers could make it hold as much as a request may have, for as
// long as they like. The handler of a stream reads the request itself.
type lateReader struct {
	server grpc.ServiceRegistrar
	cfg    *GRPCConfig
}

// RegisterService registers a service.
func (l lateReader) RegisterService(desc *grpc.ServiceDesc, server any) {
	late := *desc
	late.Methods, late.Streams = nil, slices.Clone(desc.Streams)
	for _, m := range desc.Methods {
		method := "/" + desc.ServiceName + "/" + m.MethodName
		late.Streams = append(late.Streams, grpc.StreamDesc{
			StreamName: m.MethodName, Handler: l.handler(method, m.Handler),
		})
	}
	l.server.RegisterService(&late, server)
}

func (l lateReader) handler(method string, unary grpc.MethodHandler) grpc.StreamHandler {
	return func(server any, ss grpc.ServerStream) (err error) {
		ctx, end := l.cfg.trace(ss.Context(), method)
		defer func() { end(err) }()
		s, err := l.cfg.open(ctx, ss, method)
		defer waste(ss.Context(), s, time.Now())
		if err != nil {
			return err
		}
		s.unary = true
		var intercept grpc.UnaryServerInterceptor
		if !isInfrastructure(method) {
			intercept = l.cfg.Unary
			s.inform()
			s.openAccount()
			s.lendAccount()
		}
		defer s.charged.Close()
		defer s.lent.Close()
		response, err := unary(server, s.ctx, s.RecvMsg, intercept)
		switch {
		case err == nil:
			return s.SendMsg(response)
		case !s.arrived.Load() && intercept != nil && l.cfg.Refuse != nil:
			return l.cfg.Refuse(s.ctx, method, err)
		default:
			return err
		}
	}
}

// trace begins to observe a call. It returns the context of the call, which has the client's
// address, and what ends that.
func (cfg *GRPCConfig) trace(ctx context.Context, method string) (context.Context, func(error)) {
	ctx = nameCaller(ctx, cfg.Proxies)
	if cfg.Trace == nil || isInfrastructure(method) {
		return ctx, func(error) {}
	}
	return cfg.Trace(ctx, method)
}

// open finds out who makes a call, and returns its stream. ctx is that of trace.
func (cfg *GRPCConfig) open(
	ctx context.Context, ss grpc.ServerStream, method string,
) (*stream, error) {
	if err := refusedEarly(ctx); err != nil {
		return nil, err
	}
	if isHealth(method) {
		s, err := cfg.wrap(ctx, ss, method)
		if err == nil {
			s.patience, s.limit, s.free = healthPatience, maxHealthRequest, true
		}
		return s, err
	}
	if cfg.Authenticate != nil {
		var err error
		if ctx, err = cfg.Authenticate(ctx, method); err != nil {
			return nil, err
		}
		trust(ctx)
	}
	return cfg.wrap(ctx, ss, method)
}

// stream intercepts the calls that are streams by their definition. grpc calls the handler of the
// others itself.
func (cfg *GRPCConfig) stream(
	srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler,
) (err error) {
	ctx, end := cfg.trace(ss.Context(), info.FullMethod)
	defer func() { end(err) }()
	s, err := cfg.open(ctx, ss, info.FullMethod)
	defer waste(ss.Context(), s, time.Now())
	if err != nil {
		return err
	}
	s.openAccount()
	defer s.charged.Close()
	s.several, s.stall = info.IsClientStream, cfg.Stall
	if !isInfrastructure(info.FullMethod) {
		s.inform()
		if s.client == nil && !s.several { // each request of several has the account for itself
			s.lendAccount()
		}
		defer s.lent.Close()
		return cfg.Stream(srv, s, info, h)
	}
	return cfg.infrastructure(func() error { return h(srv, s) })
}

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
