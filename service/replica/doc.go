// Package replica is the transport between the replicas of a gateway: it is paging.Replicas over
// gRPC, and the listener on which a pager answers the other replicas. Only a process that holds a
// handle key is a replica: both sides of a connection prove a key by mutual TLS, whose
// certificates are made from the handle keys.
//
// It carries questions and answers and decides nothing about them. The listener answers from its
// own pager only, so a question is never passed on twice. The listener is never one of the public
// ports, and nothing of it is in the public API.
//
// It also knows where the other replicas are: the addresses that names stand for in DNS, the
// addresses from which calls come, and the addresses that other replicas report. A new replica
// meets all others when it starts, so that they know it before DNS does.
package replica
