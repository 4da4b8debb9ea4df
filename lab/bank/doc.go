// Package bank shows that transactions keep their promises through the gateway, whatever happens to
// connections, servers and replicas: money moves between accounts, and its sum never changes.
// Beside it porcupine judges what clients see of single documents, of writes with a key and of
// transactions. It has tests only.
package bank
