package rpcerr

import (
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
)

// Response holds the HTTP response to a failed call.
type Response struct {
	// Code is the HTTP status.
	Code int
	// RetryAfter is the value of the header Retry-After; 0: no header.
	RetryAfter time.Duration
	// Body holds the same as the details of a gRPC status, but nothing is cut. Its documents are
	// BSON.
	Body *mooringv1.ErrorResponse
}

// HTTP returns the response to a call that is not known. If the error is from a gRPC client, HTTP
// returns what its status says.
func HTTP(err error) Response { return Explain(err, call.Call{}).HTTP() }

// HTTP returns the response for a REST client.
func (f *Failure) HTTP() Response {
	e := &mooringv1.Error{
		Status: codeName(f.code), Reason: string(f.reason), Code: int32(f.code),
		Message: valid(f.message), RequestId: f.call.RequestID, Retry: string(f.retry),
		Offset: f.offset,
	}
	if f.field != "" {
		field := valid(f.field)
		e.Field = &field
	}
	if f.server != nil {
		e.WriteErrors = f.server.GetWriteErrors()
		e.WriteConcernError = f.server.GetWriteConcernError()
		e.Truncated, e.Server = f.server.GetTruncated(), serverOnREST(f.server)
	}
	return Response{
		Code: f.http, RetryAfter: f.retryAfter,
		Body: &mooringv1.ErrorResponse{Error: e, Result: f.result},
	}
}

// serverOnREST returns d without the fields that REST has beside it, or nil if no other is set.
func serverOnREST(d *mooringv1.ServerError) *mooringv1.ServerError {
	if d.GetCode() == 0 && d.GetCodeName() == "" && len(d.GetLabels()) == 0 {
		return nil
	}
	return &mooringv1.ServerError{
		Code: d.GetCode(), CodeName: d.GetCodeName(), Labels: d.GetLabels(),
		KeyPattern: d.GetKeyPattern(), KeyValue: d.GetKeyValue(), ErrInfo: d.GetErrInfo(),
		Violations: d.GetViolations(),
	}
}
