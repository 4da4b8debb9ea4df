// Package seal seals what a client holds between its calls: a token that a client can neither read nor change, bound to its
// principal. It holds the ring of handle keys, and derives from each key one that seals and one by which the gateway's
// replicas know each other.
//
// It does not know what is in a token: not cursors, not transactions, not when a token expires.
//
// # Versions
//
// A token begins with the version of its layout. While replicas are upgraded one after the other, two releases read each
// other's tokens: a release reads a new layout before the next one writes it. A token of a layout that a release does not
// know is refused with ErrVersion, never misread. The same rule holds for what is sealed, which has a version of its own.
package seal
