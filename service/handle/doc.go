// Package handle keeps a table of what outlives a request: cursors that are read in pages, and
// transactions. For each of them the table knows its id, its kind, its principal and when it
// expires. It bounds how many there are, lists them, kills them, and knows which call works on one.
// It does not know what a page is.
//
// A kind embeds a Handle in what it keeps, and guards its own fields with the table's lock, so
// that a handle and what it stands for change in one step: Table.Do holds the lock.
package handle
