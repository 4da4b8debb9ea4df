package operation

import (
	"context"
	"fmt"

	"github.com/mooringdb/mooring/core/mongoerr"
)

// OutcomeUnknownError reports a write that the server may have carried out: it was sent, in part at
// least, and got no answer that tells. So it must not be repeated blindly. Err is what left the
// outcome open.
type OutcomeUnknownError struct {
	Err error
	// Later is the error of the last attempt, which does not tell either; nil: it is Err. It is in
	// the text only.
	Later error
}

func (e *OutcomeUnknownError) Error() string {
	text := "outcome of the write is unknown: " + e.Err.Error()
	if e.Later != nil {
		text += "; a later attempt: " + mongoerr.Outline(e.Later)
	}
	return text
}

// Unwrap returns what left the outcome open.
func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// Delivery returns mongoerr.Unanswered.
func (e *OutcomeUnknownError) Delivery() mongoerr.Delivery { return mongoerr.Unanswered }

// TimeoutError reports the end of the operation's time, if it was found before anything was sent
// or if the server reported it. errors.Is(err, context.DeadlineExceeded) holds.
type TimeoutError struct {
	// Err is the error of the server, or says where the end was found.
	Err error
}

func (e *TimeoutError) Error() string { return "timed out: " + e.Err.Error() }

// Unwrap returns the underlying error.
func (e *TimeoutError) Unwrap() error { return e.Err }

// Is reports whether target is context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout returns true.
func (e *TimeoutError) Timeout() bool { return true }

// Delivery returns that of Err, or mongoerr.Unsent if Err does not tell.
func (e *TimeoutError) Delivery() mongoerr.Delivery {
	if d := mongoerr.Judge(e.Err).Delivery; d != mongoerr.Undetermined {
		return d
	}
	return mongoerr.Unsent
}

// TooLargeError refuses a command that is longer than the server accepts. Nothing was
// sent.
type TooLargeError struct {
	Size, Limit int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the command of %d bytes is larger than the server's limit of %d bytes",
		e.Size, e.Limit)
}
