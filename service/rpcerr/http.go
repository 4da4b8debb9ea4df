package rpcerr

import (
	"time"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
)

// Response is a failed call on REST.
type Response struct {
	// Code is the HTTP status.
	Code int
	// RetryAfter is for the header of that name; 0: none.
	RetryAfter time.Duration
	// Body says the same as the details of a gRPC status, and all of it. Its documents are BSON.
	Body *mooringv1.ErrorResponse
}

// HTTP returns what REST shows of an error whose call is not known. Given the error of a gRPC
// client, it returns what the status says.
func HTTP(err error) Response { return Explain(err, call.Call{}).HTTP() }

// HTTP returns what a REST client gets.
func (f *Failure) HTTP() Response {
	e := &mooringv1.Error{
		Status: codeName(f.code), Reason: string(f.reason), Code: int32(f.code), Message: valid(f.message),
		RequestId: f.call.RequestID, Retry: string(f.retry), Offset: f.offset,
	}
	if f.field != "" {
		field := valid(f.field)
		e.Field = &field
	}
	if f.server != nil {
		e.WriteErrors, e.WriteConcernError = f.server.GetWriteErrors(), f.server.GetWriteConcernError()
		e.Truncated, e.Server = f.server.GetTruncated(), serverOnREST(f.server)
	}
	return Response{
		Code: f.http, RetryAfter: f.retryAfter,
		Body: &mooringv1.ErrorResponse{Error: e, Result: f.result},
	}
}

// serverOnREST leaves out what REST has beside the server's answer; nil if there is nothing else.
func serverOnREST(d *mooringv1.ServerError) *mooringv1.ServerError {
	if d.GetCode() == 0 && d.GetCodeName() == "" && len(d.GetLabels()) == 0 {
		return nil
	}
	return &mooringv1.ServerError{
		Code: d.GetCode(), CodeName: d.GetCodeName(), Labels: d.GetLabels(),
		KeyPattern: d.GetKeyPattern(), KeyValue: d.GetKeyValue(), ErrInfo: d.GetErrInfo(),
	}
}
