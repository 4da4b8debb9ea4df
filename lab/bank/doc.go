// Package bank shows that transactions keep their promises through the gateway, whatever happens to
// connections, servers and replicas: money moves between accounts, and its sum never changes. It
// has tests only.
package bank
