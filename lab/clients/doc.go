// Package clients tests what clients are made of: openapi.json against the gateway's responses, the
// clients in client/ and clients/, clients that others' tools make, and the examples. It has tests
// only.
package clients
