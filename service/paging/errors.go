package paging

import (
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/service/seal"
)

// The errors with which a token is refused. Their texts are for clients; the table of errors
// gives each its status.
var (
	// ErrCursorNotFound refuses a token that is foreign, changed, expired or closed. It does not
	// say which.
	ErrCursorNotFound = errors.New("cursor not found: its token is unknown, expired or closed")
	// ErrTokenVersion refuses a token that another version of the gateway has made and this one
	// cannot read.
	ErrTokenVersion = fmt.Errorf("cursor not found: %w", seal.ErrVersion)
	// ErrCursorTokenReused refuses a token whose page was delivered before and is no longer held.
	ErrCursorTokenReused = errors.New("the page of this cursor token was delivered before and is " +
		"no longer held")
	// ErrCursorPositionUnknown refuses a token where it is not known whether the page that it asks
	// for was delivered.
	ErrCursorPositionUnknown = errors.New("the cursor's position is unknown: a page may have " +
		"been lost")
	// ErrCursorEvicted refuses the token of a cursor whose second page was not asked for before its
	// principal needed room for other cursors.
	ErrCursorEvicted = errors.New("the cursor was closed: the client opened too many others " +
		"after it without reading its second page")
	// ErrOwnerGone refuses the token of a pinned cursor. Only one replica can continue the cursor,
	// and that replica is gone, was restarted, or cannot be reached.
	ErrOwnerGone = errors.New("cursor not found: the gateway replica that held its connection is " +
		"gone, and the cursor with it")
	// ErrOtherTransaction refuses the token of a cursor in a call that does not run in the
	// transaction that the cursor belongs to.
	ErrOtherTransaction = errors.New("the cursor belongs to a transaction, and the call does " +
		"not run in it; or the call runs in a transaction that the cursor does not belong to")
	// ErrNotHere is for replicas only: the replica that was asked knows nothing of the cursor.
	ErrNotHere = errors.New("this replica does not know the cursor")
)

var errPanic = errors.New("panic")
