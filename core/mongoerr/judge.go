package mongoerr

import (
	"errors"
	"slices"
)

// Delivery says how far the command of a failed operation got.
type Delivery uint8

const (
	// Undetermined says that the error does not tell.
	Undetermined Delivery = iota
	// Unsent says that nothing of the command was sent: whatever it is, it may be sent again.
	Unsent
	// Refused says that the server has answered and executed nothing: whatever the command is, it
	// may be sent again.
	Refused
	// Unanswered says that the server may have carried out the command, in full or in part: its
	// answer is missing, cannot be read, or does not tell.
	Unanswered
	// Executed says that the server has come to the command: the error is that of the command
	// itself, or a part of it was done.
	Executed
)

var deliveries = [...]string{"undetermined", "unsent", "refused", "unanswered", "executed"}

func (d Delivery) String() string { return deliveries[d] }

// Verdict holds what an error says about sending the command of an operation again.
type Verdict struct {
	// Delivery says how far the command got.
	Delivery Delivery
	// Retryable says that the driver may send the command again, to another server if there is one,
	// if it only reads (Retryable Reads). A write needs LabelRetryableWrite besides.
	Retryable bool
}

// Judge returns the verdict on the error that ended an operation. Every decision about a further
// attempt, be it the driver's or a caller's, begins with it. Errors of other packages take part by
// the methods Delivery() Delivery and Retryable() bool; of several in a chain, the outermost
// counts.
func Judge(err error) Verdict {
	return Verdict{Delivery: delivery(err), Retryable: retryable(err)}
}

func delivery(err error) Delivery {
	d, ok := errors.AsType[interface {
		error
		Delivery() Delivery
	}](err)
	if !ok {
		return Undetermined
	}
	return d.Delivery()
}

func retryable(err error) bool {
	if IsCanceled(err) {
		return false
	}
	r, ok := errors.AsType[interface {
		error
		Retryable() bool
	}](err)
	return ok && r.Retryable() || IsNetwork(err) || replyClass(err)&retryableRead != 0
}

// Delivery returns Refused if the server executed nothing, by the labels or the code, else
// Executed. The codes of a server that changes its state count as a refusal. They also end a
// command that has begun: whether a part of it was done, only the operation knows.
func (e *CommandError) Delivery() Delivery {
	switch {
	case slices.Contains(e.Labels, LabelNoWritesPerformed), IsRetryableOverload(e),
		e.Code == codeRateLimitExceeded, e.Code == codeTooManySessions, IsStateChange(e):
		return Refused
	}
	return Executed
}

// The codes of a server that admits no more requests, and of one that keeps no more sessions.
const (
	codeRateLimitExceeded = 462
	codeTooManySessions   = 261
)

// Delivery returns Executed.
func (e *WriteException) Delivery() Delivery { return Executed }

// Delivery returns Executed.
func (e *WriteConcernError) Delivery() Delivery { return Executed }

// Delivery returns Unanswered, since what the server meant is not known.
func (e *MalformedReplyError) Delivery() Delivery { return Unanswered }

// Delivery returns Unsent.
func (e *SelectionError) Delivery() Delivery { return Unsent }

// Delivery returns Unanswered or Unsent, as Sent says.
func (e *NetworkError) Delivery() Delivery {
	if e.Sent {
		return Unanswered
	}
	return Unsent
}

// delivered gives an error a delivery that it does not tell itself.
type delivered struct {
	err      error
	delivery Delivery
}

// WithDelivery returns err with a delivery, or err itself if it tells that.
func WithDelivery(err error, d Delivery) error {
	if err == nil || Judge(err).Delivery == d {
		return err
	}
	return &delivered{err, d}
}

func (e *delivered) Error() string { return e.err.Error() }

// Unwrap returns the error that got the delivery.
func (e *delivered) Unwrap() error { return e.err }

// Delivery returns what WithDelivery was called with.
func (e *delivered) Delivery() Delivery { return e.delivery }
