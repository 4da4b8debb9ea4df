// Package replica lets the replicas of a gateway ask each other about cursors: it is handle.Peers over gRPC, and the listener on which a
// registry answers the others. Whoever holds a key of the handle keys is a replica, and nobody else is: both sides of a connection prove
// one by mutual TLS, whose certificates are made of those keys.
//
// It carries questions and answers and decides nothing about them. The listener answers from its own registry only, so a question is never
// passed on twice. It is never one of the public ports, and nothing of it is in the public API.
package replica
