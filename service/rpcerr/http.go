package rpcerr

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Response is a failed call on REST.
type Response struct {
	// Code is the HTTP status.
	Code int
	// RetryAfter is for the header of that name; 0: none.
	RetryAfter time.Duration
	// Body says the same as the status' details.
	Body *mooringv1.ErrorResponse
}

// HTTP is a status as REST shows it.
func HTTP(st *status.Status) Response {
	r := foreign(st.Code())
	e := &mooringv1.Error{Status: codeName(st.Code()), Reason: string(r.reason), Message: st.Message(), Retry: string(r.retry)}
	response := Response{Code: r.http, Body: &mooringv1.ErrorResponse{Error: e}}
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			response.info(d)
		case *errdetails.RetryInfo:
			response.RetryAfter = d.GetRetryDelay().AsDuration()
		case *mooringv1.ServerError:
			response.server(d)
		case *mooringv1.BulkWriteResult:
			response.Body.Result = d
		}
	}
	return response
}

func (r *Response) info(d *errdetails.ErrorInfo) {
	e := r.Body.Error
	e.Reason = d.GetReason()
	md := d.GetMetadata()
	if code, err := strconv.Atoi(md[keyHTTP]); err == nil {
		r.Code = code
	}
	if retry := md[keyRetry]; retry != "" {
		e.Retry = retry
	}
	e.RequestId = md[keyRequestID]
	if field, ok := md[keyField]; ok {
		e.Field = &field
	}
	if offset, err := strconv.ParseInt(md[keyOffset], 10, 64); err == nil {
		e.Offset = &offset
	}
}

// server puts write errors and the write-concern error beside the server's answer, where REST has them.
func (r *Response) server(d *mooringv1.ServerError) {
	e := r.Body.Error
	e.WriteErrors, e.WriteConcernError, e.Truncated = d.GetWriteErrors(), d.GetWriteConcernError(), d.GetTruncated()
	e.Server = &mooringv1.ServerError{
		Code: d.GetCode(), CodeName: d.GetCodeName(), Labels: d.GetLabels(),
		KeyPattern: d.GetKeyPattern(), KeyValue: d.GetKeyValue(), ErrInfo: d.GetErrInfo(),
	}
}

// foreign is the row of a status that this package did not make: grpc's own.
func foreign(code codes.Code) row {
	r, ok := foreignCodes[code]
	if !ok {
		return reasons[Internal]
	}
	return r
}

var foreignCodes = map[codes.Code]row{
	codes.Canceled:           reasons[Canceled],
	codes.InvalidArgument:    reasons[InvalidArgument],
	codes.DeadlineExceeded:   reasons[DeadlineExceeded],
	codes.NotFound:           reasons[RouteNotFound],
	codes.AlreadyExists:      {codes.AlreadyExists, http.StatusConflict, "AlreadyExists", Never},
	codes.PermissionDenied:   {codes.PermissionDenied, http.StatusForbidden, "PermissionDenied", Never},
	codes.ResourceExhausted:  {codes.ResourceExhausted, http.StatusTooManyRequests, "ResourceExhausted", Never},
	codes.FailedPrecondition: {codes.FailedPrecondition, http.StatusUnprocessableEntity, "FailedPrecondition", Never},
	codes.Aborted:            {codes.Aborted, http.StatusConflict, "Aborted", Never},
	codes.OutOfRange:         {codes.OutOfRange, http.StatusBadRequest, "OutOfRange", Never},
	codes.Unimplemented:      reasons[Unimplemented],
	codes.Unavailable:        {codes.Unavailable, http.StatusServiceUnavailable, "Unavailable", Never},
	codes.Unauthenticated:    {codes.Unauthenticated, http.StatusUnauthorized, "Unauthenticated", Never},
}

// codeName is the code as the protocol spells it: ALREADY_EXISTS.
func codeName(code codes.Code) string {
	if code == codes.OK {
		return "OK"
	}
	if code == codes.Canceled {
		return "CANCELLED"
	}
	var b strings.Builder
	for i, c := range code.String() {
		if i > 0 && c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(c)
	}
	return strings.ToUpper(b.String())
}
