// Package page keeps the ledger of one cursor's pages: which page comes next, what became of the
// one before, and which replica of the gateway holds the cursor.
//
// A getMore cannot be repeated, so a page that may have been fetched is never fetched again: each
// page is granted once. The ledger decides which call is granted a page, and what all other calls
// are told. It is a value: each transition returns the new ledger, and what the caller has to do.
// The package has no lock, no clock and no I/O, and it knows neither documents nor tokens. What a
// phase means is known here and nowhere else.
//
// Pages are numbered. The token with number n asks for page n. The call that opens a cursor
// delivers page 0.
package page
