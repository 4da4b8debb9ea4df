// Package seal seals what a client holds between its calls: a token that a client can neither read
// nor change, bound to its principal. It holds the ring of handle keys. From each key it derives
// one key that seals and one key that authenticates the gateway's replicas to each other.
//
// It knows of a token what a Claim has: its kind, its deployment and when it expires. It does not
// know what is in a token's body: not cursors, not transactions.
//
// # Versions
//
// A token begins with its version, which is one number for all kinds. While replicas are upgraded
// one after the other, two releases read each other's tokens: a release reads a new version before
// the next release writes it. If a release does not know the version of a token, it refuses the
// token with ErrVersion and never misreads it.
package seal
