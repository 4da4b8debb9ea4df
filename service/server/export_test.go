package server

import (
	"context"

	"google.golang.org/grpc"
)

// Network is network.
var Network = network

// SetCheck replaces the check of grpc when the server starts.
func (s *Server) SetCheck(check func(context.Context) error) { s.check = check }

// Open opens the stream of a call.
func Open(ctx context.Context, cfg *GRPCConfig, ss grpc.ServerStream, method string) error {
	_, err := cfg.open(ctx, ss, method)
	return err
}

// Queue gives grpc a message on the wire by the transport stream of a call.
func Queue(ctx context.Context) error {
	raw, err := transportOf(ctx)
	if err != nil {
		return err
	}
	return (&stream{raw: raw}).queue(nil, nil)
}

// Trace observes one call of a server.
func Trace(ctx context.Context, cfg *GRPCConfig, method string) {
	_, end := cfg.trace(ctx, method)
	end(nil)
}
