package rest

import (
	"github.com/mooringdb/mooring/service/rpcerr"
)

// A request with an invalid path, header or body reaches no handler and fails with an
// *rpcerr.Error.

// refuse returns the error of a request that is refused as a whole.
func refuse(reason rpcerr.Reason, message string) *rpcerr.Error {
	return &rpcerr.Error{Reason: reason, Message: message}
}

// refuseField returns the error of a request with an invalid field, header or parameter.
func refuseField(field, message string) *rpcerr.Error {
	return &rpcerr.Error{Reason: rpcerr.InvalidArgument, Field: field, Message: message}
}

// malformed returns the error of a body that cannot be parsed at the offset.
func malformed(field string, offset int, message string) *rpcerr.Error {
	return &rpcerr.Error{
		Reason: rpcerr.MalformedDocument, Field: field, Offset: int64(offset), Message: message,
	}
}
