package client

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Retry says whether to repeat a call.
type Retry string

// The words of Error.Retry.
const (
	Never       Retry = "never"
	SameRequest Retry = "same-request" // repeat the request as it is: no write is applied twice
	Transaction Retry = "transaction"  // repeat the whole transaction
	Restart     Retry = "restart"      // repeat the operation from its beginning
)

// Error describes the failure of a call, as the gateway describes it. errors.AsType finds it.
type Error struct {
	// Code is the status of gRPC.
	Code codes.Code
	// Reason is what happened, as one word: the server's name of its code, or one of the
	// gateway's. It is empty if no gateway has answered.
	Reason string
	// Message is for people.
	Message string
	// Retry says whether to repeat the call.
	Retry Retry
	// RetryAfter is how long to wait before repeating it; 0 if the gateway does not say.
	RetryAfter time.Duration
	// RequestID identifies the call in the gateway's log.
	RequestID string
	// IdempotencyKey is the key that the call had; empty: none. Pass it to WithIdempotencyKey to
	// repeat the same call without executing it twice.
	IdempotencyKey string
	// Field is the path of the field that is wrong in the request; empty: not known.
	Field string
	// HTTPStatus is the status that the same failure has over HTTP; 0 if no gateway has answered.
	HTTPStatus int
	// Server is what MongoDB said, nil if it has not answered.
	Server *mooringv1.ServerError
	// Result is what a call with several writes did before it failed, or nil.
	Result *mooringv1.BulkWriteResult

	err error
}

// Error returns reason and message.
func (e *Error) Error() string {
	if e.Reason == "" {
		return "mooring: " + e.Message
	}
	return "mooring: " + e.Reason + ": " + e.Message
}

// Unwrap returns gRPC's error.
func (e *Error) Unwrap() error { return e.err }

// GRPCStatus returns the status with all of its details.
func (e *Error) GRPCStatus() *status.Status { return status.Convert(e.err) }

// isUnanswered reports whether no gateway has answered, and the connection is to blame.
func (e *Error) isUnanswered() bool { return e.Reason == "" && e.Code == codes.Unavailable }

// isCut reports whether a stream was ended by the connection or a proxy, and not by a gateway: grpc
// gives the reset of a stream one of these codes. If the caller has closed the connection, a new
// stream is canceled before anything comes.
func (e *Error) isCut(begun bool) bool {
	switch e.Code {
	case codes.Unavailable, codes.Internal, codes.Unknown:
		return e.Reason == ""
	case codes.Canceled:
		return e.Reason == "" && begun
	default:
		return false
	}
}

// isGivenUp reports whether the caller's context ended before a gateway answered.
func (e *Error) isGivenUp() bool {
	return e.Reason == "" && (e.Code == codes.DeadlineExceeded || e.Code == codes.Canceled)
}

// hasConcern describes the responses to writes.
type hasConcern interface {
	GetWriteConcernError() *mooringv1.WriteConcernError
}

// withConcern adds to the error of a write, or nil, that its write concern was not met.
func withConcern(err error, response hasConcern) error {
	w := response.GetWriteConcernError()
	if w == nil {
		return err
	}
	message := "done, but not acknowledged as the write concern asks: " +
		cmp.Or(w.GetMessage(), w.GetCodeName(), strconv.Itoa(int(w.GetCode())))
	unmet := &Error{
		Code: codes.Unavailable, Reason: "WriteConcernFailed", Message: message, Retry: Never,
		HTTPStatus: http.StatusServiceUnavailable,
		Server: &mooringv1.ServerError{
			Code: w.GetCode(), CodeName: w.GetCodeName(), Labels: w.GetLabels(),
			WriteConcernError: w,
		},
		err: status.Error(codes.Unavailable, message),
	}
	if err == nil {
		return unmet
	}
	return errors.Join(err, unmet)
}

// Explain converts the error of a gRPC call, unless it is an *Error already. If no gateway made the
// error, only Code, Message and Retry, which is Never, are set.
func Explain(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	s := status.Convert(err)
	e := &Error{Code: s.Code(), Message: s.Message(), Retry: Never, err: err}
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			e.Reason = d.GetReason()
			e.Retry = Retry(d.GetMetadata()["retry"])
			e.HTTPStatus, _ = strconv.Atoi(d.GetMetadata()["httpStatus"])
		case *errdetails.RequestInfo:
			e.RequestID = d.GetRequestId()
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Field = v.GetField()
			}
		case *mooringv1.ServerError:
			e.Server = d
		case *mooringv1.BulkWriteResult:
			e.Result = d
		}
	}
	return e
}
