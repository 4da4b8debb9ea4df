package mongoerr

import "errors"

// Delivery says how far the command of a failed operation got.
type Delivery uint8

const (
	// Undetermined says that the error does not tell.
	Undetermined Delivery = iota
	// Unsent says that nothing of the command was sent: whatever it is, it may be sent again.
	Unsent
	// Unanswered says that the command was sent, in part at least, and that its answer is missing
	// or cannot be read: the server may have carried it out.
	Unanswered
	// Answered says that the server has answered, with this error.
	Answered
)

var deliveries = [...]string{"undetermined", "unsent", "unanswered", "answered"}

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

// Delivery returns Answered.
func (e *CommandError) Delivery() Delivery { return Answered }

// Delivery returns Answered.
func (e *WriteException) Delivery() Delivery { return Answered }

// Delivery returns Answered.
func (e *WriteConcernError) Delivery() Delivery { return Answered }

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
