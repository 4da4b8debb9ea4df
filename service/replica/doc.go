// Package replica is the transport between the replicas of a gateway, over gRPC. On a listener of
// its own it serves what replicas tell each other (paging.Replicas), and the API, for the calls of
// clients that other replicas forward (interceptor.Replicas). Only a process that holds a handle
// key is a replica: both sides of a connection prove a key by mutual TLS, whose certificates are
// made from the handle keys. So only a replica can say for which client it makes a call.
//
// It decides nothing about calls. A call that is forwarded to here goes no further. The listener is
// never one of the public ports, and nothing of ReplicaService is in the public API.
//
// It also knows where the other replicas are: the addresses that names stand for in DNS, the
// addresses from which calls come, and the addresses that other replicas report. A new replica
// meets all others when it starts, so that they know it before DNS does.
package replica
