package server

import (
	"context"
	"crypto/tls"
	"fmt"
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
)

// NewGRPC returns a gRPC server without services.
func NewGRPC(cfg GRPCConfig) *grpc.Server {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(cfg.MaxRequestSize),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: keepaliveTime, Timeout: keepaliveTimeout,
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
	if cfg.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(cfg.TLS)))
	}
	return grpc.NewServer(opts...)
}

// LoadTLS reads a certificate and its key. Empty names mean no TLS.
func LoadTLS(certificateFile, keyFile string) (*tls.Config, error) {
	if certificateFile == "" && keyFile == "" {
		return nil, nil
	}
	certificate, err := tls.LoadX509KeyPair(certificateFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("options tls.certificateFile and tls.keyFile: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{certificate},
	}, nil
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
