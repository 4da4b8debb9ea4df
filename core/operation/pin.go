package operation

import "github.com/mooringdb/mooring/core/description"

// Pin is a connection that stays checked out after the operation that used it first. Behind a load balancer it alone leads
// back to the service that holds a cursor, so the cursor's further commands have it as their Operation.On.
//
// It has one holder, who runs one operation on it at a time and calls Release once. It counts as one check-out and one
// check-in, however many operations use it (Load Balancer Support, "Connection Pinning").
type Pin struct {
	server Server
	conn   Conn
}

// HoldForCursor counts the connection among those that cursors hold from now on. It fails where no more of them may be held;
// the connection stays the holder's either way.
func (p *Pin) HoldForCursor() error { return p.conn.PinForCursor() }

// Release checks the connection in. What there was to learn from its operations, the topology has learnt at their ends.
func (p *Pin) Release() { p.conn.CheckIn(nil) }

// pins tells whether the connection is what further commands need, rather than the server: behind a load balancer.
func pins(s Server) bool { return s.TopologyKind() == description.KindLoadBalanced }
