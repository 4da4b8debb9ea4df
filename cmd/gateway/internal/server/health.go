package server

import (
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Clients of health need no credential, so what they can make the gateway hold is limited: a
// request arrives within healthPatience, and the name of a service, which Watch keeps, has at most
// maxServiceName bytes.
const (
	healthPatience = 5 * time.Second
	maxServiceName = 1 << 10
)

var (
	errSlowHealth = status.Error(codes.DeadlineExceeded, "the request did not arrive in time")
	errLongName   = status.Error(codes.InvalidArgument,
		fmt.Sprintf("the service's name is longer than %d bytes", maxServiceName))
)

// RegisterHealth registers grpc.health.v1 on a server that NewGRPC has made. Its unary methods are
// registered as streams, since grpc sets no limit to the time that it reads a unary request.
func RegisterHealth(g *grpc.Server, h healthpb.HealthServer) {
	late := func(_ string, unary grpc.MethodHandler) grpc.StreamHandler {
		return func(server any, ss grpc.ServerStream) error {
			response, err := unary(server, ss.Context(), stranger{ss}.RecvMsg, nil)
			if err != nil {
				return err
			}
			return ss.SendMsg(response)
		}
	}
	g.RegisterService(asStreams(&healthpb.Health_ServiceDesc, late), h)
}

// stranger wraps a stream of a client that is not authenticated.
type stranger struct{ grpc.ServerStream }

// RecvMsg receives a request within healthPatience. A goroutine receives. It ends with the stream,
// which grpc ends when the handler has returned; m is not used any more then.
func (s stranger) RecvMsg(m any) error {
	received := make(chan error, 1)
	go func() { received <- s.ServerStream.RecvMsg(m) }()
	timer := time.NewTimer(healthPatience)
	defer timer.Stop()
	select {
	case err := <-received:
		in, ok := m.(*healthpb.HealthCheckRequest)
		if err == nil && ok && len(in.GetService()) > maxServiceName {
			return errLongName
		}
		return err
	case <-timer.C:
		return errSlowHealth
	}
}
