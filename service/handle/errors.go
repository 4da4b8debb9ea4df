package handle

import (
	"errors"
	"fmt"
)

// What a token can be refused for. The texts are for clients; the table of errors gives each its status.
var (
	// ErrCursorNotFound: the token is foreign, changed, expired or closed. Which of these is not told.
	ErrCursorNotFound = errors.New("cursor not found: its token is unknown, expired or closed")
	// ErrCursorTokenReused: the page was delivered for this token before and is no longer held.
	ErrCursorTokenReused = errors.New("the page of this cursor token was delivered before and is no longer held")
	// ErrCursorPositionUnknown: nobody can say whether the page that follows this token was delivered.
	ErrCursorPositionUnknown = errors.New("the cursor's position is unknown: a page may have been lost; allowGap continues behind it")
	// ErrOwnerGone: a pinned cursor can be continued by one replica only, which is gone, was restarted, or cannot be reached.
	ErrOwnerGone = errors.New("cursor not found: the gateway replica that held its connection is gone, and the cursor with it")
	// ErrClosing: the gateway shuts down. The cursor may still be alive.
	ErrClosing = errors.New("shutting down")
	// ErrHandleNotFound: no open handle has that id.
	ErrHandleNotFound = errors.New("handle not found")
	// ErrTokenTooLong: the cursor was killed. No namespace that MongoDB allows can make it so.
	ErrTokenTooLong = errors.New("the cursor cannot be read in pages, since its token would be too long: the names of its database, its " +
		"collection and its server are; a stream can read it")
	// ErrNotHere is for replicas only: the one that was asked knows nothing of the cursor.
	ErrNotHere = errors.New("this replica knows nothing of the cursor")
)

// PrincipalLimitError refuses a cursor to a principal who has as many open ones as he may.
type PrincipalLimitError struct {
	Principal string
	Max       int
}

func (e *PrincipalLimitError) Error() string {
	return fmt.Sprintf("%d cursors are open already, which is the limit: read them to their end, or close some", e.Max)
}
