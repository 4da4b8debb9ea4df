package rpcerr

import (
	"errors"

	"github.com/mooringdb/mooring/core/mongoerr"
)

// BrokenOff returns the error of a call whose client's stream cannot be read to its end, for a
// reason. taken says that the handler has taken a message of it, and ended is what the handler
// ended with then; nil: that is not known. The error hides nothing that the call has done, or may
// have done.
func BrokenOff(reason error, taken bool, ended error) error {
	switch {
	case !taken:
		return reason
	case IsOutcomeUnknown(ended):
		return ended
	}
	reason = mongoerr.WithDelivery(reason, mongoerr.Executed)
	partial, ok := errors.AsType[*PartialError](ended)
	if !ok {
		return reason
	}
	err := &PartialError{Result: partial.Result, Err: reason}
	if f, ok := errors.AsType[*Failure](ended); ok {
		return Explain(err, f.call) // it may be quiet
	}
	return err
}
