package server

import "net"

// Network is network.
var Network = network

// Watched returns a listener whose connections the watchdog of gRPC can close.
func Watched(l net.Listener) net.Listener { return newClients(l, nil, nil) }
