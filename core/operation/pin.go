package operation

import "github.com/mooringdb/mooring/core/description"

// Pin holds a connection that stays checked out after the operation that used it first. Behind a
// load balancer no other connection leads back to the service that holds a cursor, so the
// cursor's further commands have it as their Operation.On.
//
// It has one holder, which runs one operation on it at a time and calls Release once. It counts
// as one check-out and one check-in, however many operations use it (Load Balancer Support,
// "Connection Pinning").
type Pin struct {
	server Server
	conn   Conn
}

// HoldForCursor counts the connection among those that cursors hold. If no more of them may be
// held, it returns an error. The holder keeps the connection in either case.
func (p *Pin) HoldForCursor() error { return p.conn.PinForCursor() }

// Release checks the connection in. The topology has learned from each of its operations before.
func (p *Pin) Release() { p.conn.CheckIn(nil) }

// pins reports whether further commands need the same connection, and not only the same server.
func pins(s Server) bool { return s.TopologyKind() == description.KindLoadBalanced }
