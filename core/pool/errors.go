package pool

import (
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// ErrClosed matches every *ClosedError.
var ErrClosed = errors.New("connection pool is closed")

// ClosedError refuses a check-out from a closed pool: the specification's PoolClosedError.
type ClosedError struct{ Address address.Address }

func (e *ClosedError) Error() string {
	return "Attempted to check out a connection from closed connection pool"
}

// Is reports whether the target is ErrClosed.
func (e *ClosedError) Is(target error) bool { return target == ErrClosed }

// Delivery returns mongoerr.Unsent.
func (e *ClosedError) Delivery() mongoerr.Delivery { return mongoerr.Unsent }

// PoolClearedError refuses a check-out because the pool is paused, or ends the use of a
// connection in an interrupting clear. A refused operation may be retried: the server has not
// seen it. The error does not wrap Cause, which is the error of another operation: its text leaves
// out what a server has said to that.
type PoolClearedError struct { //nolint:revive // the specification's name
	Address     address.Address
	Cause       error // why the pool was cleared; nil if it was never ready
	Interrupted bool
}

func (e *PoolClearedError) Error() string {
	switch {
	case e.Interrupted:
		return fmt.Sprintf("Connection to %s interrupted due to server monitor timeout", e.Address)
	case e.Cause == nil:
		return fmt.Sprintf("Connection pool for %s is paused", e.Address)
	default:
		return fmt.Sprintf("Connection pool for %s was cleared because another operation "+
			"failed with: %s", e.Address, mongoerr.Outline(e.Cause))
	}
}

// Retryable reports whether the operation may be retried, on this server or another: always.
func (e *PoolClearedError) Retryable() bool { return true }

// Delivery returns mongoerr.Unsent: the operation got no connection. An interrupted one is inside
// the error of its connection, which counts first.
func (e *PoolClearedError) Delivery() mongoerr.Delivery { return mongoerr.Unsent }

// WaitQueueTimeoutError ends a wait for a connection after WaitQueueTimeout, or, if Err is set,
// because the caller's context ended. It says nothing about the state of the server.
type WaitQueueTimeoutError struct {
	Address address.Address
	Err     error  // why the context ended
	Usage   *Usage // set in load-balancer mode if the pool had its maximum size
}

// Usage counts by purpose what a full pool's connections were in use for.
type Usage struct {
	MaxSize                      uint64
	Cursors, Transactions, Other int
}

func (e *WaitQueueTimeoutError) Error() string {
	text := "Timed out while checking out a connection from connection pool"
	if u := e.Usage; u != nil {
		text = fmt.Sprintf("Timeout waiting for connection from the connection pool. "+
			"maxPoolSize: %d, "+
			"connections in use by cursors: %d, connections in use by transactions: %d, "+
			"connections in use by other operations: %d",
			u.MaxSize, u.Cursors, u.Transactions, u.Other)
	}
	if e.Err == nil {
		return text
	}
	return text + ": " + e.Err.Error()
}

// Delivery returns mongoerr.Unsent.
func (e *WaitQueueTimeoutError) Delivery() mongoerr.Delivery { return mongoerr.Unsent }

// Timeout reports whether the error is a timeout, as net.Error does: always.
func (e *WaitQueueTimeoutError) Timeout() bool { return true }

func (e *WaitQueueTimeoutError) Unwrap() error { return e.Err }

// PinLimitError refuses to pin another connection.
type PinLimitError struct {
	Address               address.Address
	Max                   uint64
	Cursors, Transactions int // the pinned connections by purpose
}

func (e *PinLimitError) Error() string {
	return fmt.Sprintf("pin a connection to %s: %d of at most %d connections are pinned: "+
		"%d by cursors, %d by transactions",
		e.Address, e.Cursors+e.Transactions, e.Max, e.Cursors, e.Transactions)
}
