package handle

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrClosing refuses calls because the gateway shuts down. The thing of a handle may still
	// exist.
	ErrClosing = errors.New("shutting down")
	// ErrNotFound refuses an id that no open handle has.
	ErrNotFound = errors.New("handle not found")
	// ErrKilled is the cause with which the work on a killed handle ends.
	ErrKilled = errors.New("the handle was killed")
)

// LimitError refuses a call that may open a handle to a principal that has as many as it may.
type LimitError struct {
	Principal string // empty: the client has no name
	Max       int
	// RetryAfter is when the first of them expires if no call continues it; 0: it is not known.
	RetryAfter time.Duration
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d cursors and transactions are open already, which is the limit: "+
		"end some", e.Max)
}
