package rpcerr

import (
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// read explains a status. It explains a status that this package made, perhaps in another replica,
// by the details, and any other by the code. It keeps details that this package does not know.
func (x *explanation) read(st *status.Status) {
	x.row, x.message = foreign(st.Code()), st.Message()
	x.code = st.Code()
	for i, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			x.readInfo(d)
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				x.field = v.GetField()
			}
		case *errdetails.RetryInfo:
			x.retryAfter = d.GetRetryDelay().AsDuration()
		case *mooringv1.ServerError:
			x.server = d
		case *mooringv1.BulkWriteResult:
			x.result = d
		case *errdetails.RequestInfo: // of another call
		default:
			x.others = append(x.others, st.Proto().GetDetails()[i])
		}
	}
	// The error of a write concern alone has no name of a code; its reason is no gateway's.
	_, ours := reasons[x.reason]
	x.said = x.server != nil && (x.server.GetCodeName() != "" || !ours)
}

func (x *explanation) readInfo(d *errdetails.ErrorInfo) {
	if d.GetDomain() != Domain {
		return
	}
	x.reason = Reason(d.GetReason())
	md := d.GetMetadata()
	if code, err := strconv.Atoi(md[keyHTTP]); err == nil {
		x.http = code
	}
	if retry := md[keyRetry]; retry != "" {
		x.retry = Retry(retry)
	}
	if offset, err := strconv.ParseInt(md[keyOffset], 10, 64); err == nil {
		x.at(offset)
	}
}

// foreign returns the row of a status that this package did not make, such as grpc's own.
func foreign(code codes.Code) row {
	r, ok := foreignCodes[code]
	if !ok {
		return reasons[Internal]
	}
	return r
}

var foreignCodes = map[codes.Code]row{
	codes.Canceled:         reasons[Canceled],
	codes.InvalidArgument:  reasons[InvalidArgument],
	codes.DeadlineExceeded: reasons[DeadlineExceeded],
	codes.NotFound:         reasons[RouteNotFound],
	codes.AlreadyExists: {
		codes.AlreadyExists, http.StatusConflict, "AlreadyExists", Never,
	},
	codes.PermissionDenied: {
		codes.PermissionDenied, http.StatusForbidden, "PermissionDenied", Never,
	},
	codes.ResourceExhausted: {
		codes.ResourceExhausted, http.StatusTooManyRequests, "ResourceExhausted", Never,
	},
	codes.FailedPrecondition: {
		codes.FailedPrecondition, http.StatusUnprocessableEntity, "FailedPrecondition", Never,
	},
	codes.Aborted:       {codes.Aborted, http.StatusConflict, "Aborted", Never},
	codes.OutOfRange:    {codes.OutOfRange, http.StatusBadRequest, "OutOfRange", Never},
	codes.Unimplemented: reasons[Unimplemented],
	codes.Unavailable: {
		codes.Unavailable, http.StatusServiceUnavailable, "Unavailable", Never,
	},
	codes.Unauthenticated: {
		codes.Unauthenticated, http.StatusUnauthorized, "Unauthenticated", Never,
	},
}

// codeName returns the code as the protocol spells it: ALREADY_EXISTS.
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
