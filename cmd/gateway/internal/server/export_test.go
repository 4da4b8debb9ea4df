package server

import (
	"context"
	"net"
)

// Network is network.
var Network = network

// Watched returns a listener whose connections the watchdog of gRPC can close.
func Watched(l net.Listener) net.Listener { return newClients(l, nil, nil) }

// Trace observes one call of a server.
func Trace(ctx context.Context, cfg *GRPCConfig, method string) {
	_, end := cfg.trace(ctx, method)
	end(nil)
}
