package handle

import "errors"

// What a token can be refused for. The texts are for clients; the table of errors gives each its status.
var (
	// ErrCursorNotFound: the token is foreign, changed, expired or closed. Which of these is not told.
	ErrCursorNotFound = errors.New("cursor not found: its token is unknown, expired or closed")
	// ErrCursorTokenReused: the page was delivered for this token before and is no longer held.
	ErrCursorTokenReused = errors.New("the page of this cursor token was delivered before and is no longer held")
	// ErrCursorPositionUnknown: nobody can say whether the page that follows this token was delivered.
	ErrCursorPositionUnknown = errors.New("the cursor's position is unknown: a page may have been lost; allowGap continues behind it")
	// ErrClosing: the gateway shuts down. The cursor may still be alive.
	ErrClosing = errors.New("shutting down")
)
