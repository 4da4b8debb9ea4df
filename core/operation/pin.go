package operation

import (
	"sync/atomic"

	"github.com/mooringdb/mooring/core/description"
)

// Pin holds a connection that stays checked out after the operation that used it first. Behind a
// load balancer no other connection leads back to the service that holds a cursor or runs a
// transaction, so the further commands of a cursor have it as their Operation.On.
//
// A cursor that was opened in a transaction shares the transaction's. Each holder calls Release
// once, and one operation at a time runs on the Pin. It counts as one check-out and one check-in,
// however many operations use it (Load Balancer Support, "Connection Pinning").
type Pin struct {
	server Server
	conn   Conn
	// transaction says that the connection counts among those that transactions hold.
	transaction bool
	holders     atomic.Int32
}

func newPin(s Server, c Conn, transaction bool) *Pin {
	p := &Pin{server: s, conn: c, transaction: transaction}
	p.holders.Store(1)
	return p
}

// share returns the Pin for another holder.
func (p *Pin) share() *Pin {
	p.holders.Add(1)
	return p
}

// HoldForCursor counts the connection among those that cursors hold, unless a transaction has taken
// it before. If no more of them may be held, it returns an error. The holder keeps the connection
// in either case.
func (p *Pin) HoldForCursor() error {
	if p.transaction {
		return nil
	}
	return p.conn.PinForCursor()
}

// Release ends the use by one holder. The last one checks the connection in. The topology has
// learned from each of its operations before.
func (p *Pin) Release() {
	if p.holders.Add(-1) == 0 {
		p.conn.CheckIn(nil)
	}
}

// pins reports whether further commands need the same connection, and not only the same server.
func pins(s Server) bool { return s.TopologyKind() == description.KindLoadBalanced }
