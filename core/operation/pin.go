package operation

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/mooringdb/mooring/core/description"
)

// Pin holds a connection that stays checked out after the operation that used it first. Behind a
// load balancer no other connection leads back to the service that holds a cursor or runs a
// transaction, so the further commands of a cursor have it as their Operation.On.
//
// A cursor that was opened in a transaction shares the transaction's. Each holder calls Release
// once. One operation at a time runs on the Pin, and holds it meanwhile: the others wait. It counts
// as one check-out and one check-in, however many operations use it (Load Balancer Support,
// "Connection Pinning").
type Pin struct {
	server Server
	conn   Conn
	// transaction says that the connection counts among those that transactions hold.
	transaction bool
	holders     atomic.Int32
	// turn holds a value while an operation runs on the connection.
	turn chan struct{}
}

// errReleased is the error of an operation whose transaction has ended before its turn.
var errReleased = errors.New("the transaction no longer holds its connection")

func newPin(s Server, c Conn) *Pin {
	p := &Pin{server: s, conn: c, turn: make(chan struct{}, 1)}
	p.holders.Store(1)
	return p
}

// newTransactionPin returns the Pin of a transaction, in the turn of its first operation.
func newTransactionPin(s Server, c Conn) *Pin {
	p := newPin(s, c)
	p.transaction = true
	p.turn <- struct{}{}
	p.holders.Add(1)
	return p
}

// share returns the Pin for another holder.
func (p *Pin) share() *Pin {
	p.holders.Add(1)
	return p
}

// begin waits until no other operation runs on the connection. Its operation holds the Pin until
// end. If ctx ends first, or the last holder has released the Pin, begin returns an error.
func (p *Pin) begin(ctx context.Context) error {
	for n := p.holders.Load(); ; n = p.holders.Load() {
		if n == 0 {
			return errReleased
		}
		if p.holders.CompareAndSwap(n, n+1) {
			break
		}
	}
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		p.Release()
		return ended(ctx)
	}
}

// end ends the turn of an operation.
func (p *Pin) end() {
	<-p.turn
	p.Release()
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
