// Package paging reads cursors in pages. A client holds a sealed token, which it can neither read
// nor change; the gateway holds the cursor, what is left of its last batch, and the last page, so
// that a client that asks again gets the same one.
//
// It joins four packages. The table of handles (handle) holds the cursors, knows which call works
// on one, and ends them when they expire. Each cursor has a ledger (page), which decides which call
// is granted a page. Tokens are sealed by seal. Other replicas are reached through Replicas, which
// package replica implements.
//
// A cursor stays with the replica that opened it. Other replicas pass the calls of their clients
// on to it. When that replica drains, it pushes its cursors to another one, except those that
// hold a connection, which end. If the replica that holds a cursor is gone, so is the cursor.
//
// A page that has been granted is fetched to the end although its client goes away
// (operation.Operation's RunOn), and is remembered within a memory budget.
//
// The package knows neither gRPC nor HTTP, and it runs no commands: it calls the cursors and the
// replicas that it is given.
package paging
