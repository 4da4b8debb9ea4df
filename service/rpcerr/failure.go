package rpcerr

import (
	"errors"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/service/call"
)

// Failure explains the error that a call ended with. A gRPC client gets GRPCStatus, a REST client
// gets HTTP. Both are made from the error itself, so the form for REST is not cut to the length
// that a gRPC status may have.
type Failure struct {
	err  error
	call call.Call
	explanation
	logged string // the message for logs

	grpc func() *status.Status
}

// Explain explains an error, which must not be nil. It returns an error that is already a Failure
// as it is. An error that carries a gRPC status keeps what the status says.
func Explain(err error, of call.Call) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	f := &Failure{err: err, call: of, explanation: explain(err)}
	f.retry = advise(f.row, evidenceOf(err), of)
	f.logged = f.outline()
	if of.Quiet || of.Terse {
		f.hush()
	}
	if of.Terse {
		f.conceal()
	}
	f.grpc = sync.OnceValue(func() *status.Status { return f.status(f.call) })
	return f
}

// Error returns the text of the error that was explained.
func (f *Failure) Error() string { return f.err.Error() }

// Unwrap returns the error that was explained.
func (f *Failure) Unwrap() error { return f.err }

// Code returns the gRPC code.
func (f *Failure) Code() codes.Code { return f.code }

// HTTPStatus returns the status of HTTP.
func (f *Failure) HTTPStatus() int { return f.http }

// Reason returns the name of the cause.
func (f *Failure) Reason() string { return string(f.reason) }

// Message returns the text for people, cut to the longest message that a status may have.
func (f *Failure) Message() string { return cut(f.message, maxMessageBytes) }

// Retry returns whether the client may repeat the call.
func (f *Failure) Retry() Retry { return f.retry }

// Logged returns the text for logs: nothing is concealed but the server's words, which may have
// values of documents and filters.
func (f *Failure) Logged() string { return cut(f.logged, maxMessageBytes) }

// IsKept reports whether the client is told that the server's words are kept back. The log then has
// a line with the request's id.
func (f *Failure) IsKept() bool { return f.kept }

// outline returns the message before anything is concealed or, if it is the server's, the error
// without the server's words. What another replica answers has those in its status.
func (f *Failure) outline() string {
	if !f.said {
		return f.message
	}
	if _, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](f.err); ok {
		return sentence(string(f.reason))
	}
	return mongoerr.Outline(f.err)
}

// GRPCStatus returns the gRPC status with its details, together shorter than 4 KiB. The grpc
// package calls it by this name.
func (f *Failure) GRPCStatus() *status.Status { return f.grpc() }

// Status returns the gRPC status of an error whose call is not known. It returns OK for nil.
func Status(err error) *status.Status {
	if err == nil {
		return status.New(codes.OK, "")
	}
	return Explain(err, call.Call{}).GRPCStatus()
}
