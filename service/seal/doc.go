// Package seal seals what a client holds between its calls: a token that a client can neither read
// nor change, bound to its principal. It holds the ring of handle keys. From each key it derives
// one key that seals and one key that authenticates the gateway's replicas to each other.
//
// It does not know what is in a token: not cursors, not transactions, not when a token expires.
//
// # Versions
//
// A token begins with the version of its layout. While replicas are upgraded one after the other,
// two releases read each other's tokens: a release reads a new layout before the next release
// writes it. If a release does not know the layout of a token, it refuses the token with
// ErrVersion and never misreads it. The same rule holds for the sealed content, which has a
// version of its own.
package seal
